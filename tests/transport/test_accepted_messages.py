"""Which servers may send a message."""

from __future__ import annotations

import pytest

from logdb.log.engine import ENGINES, engine_of
from logdb.transport.accepted_messages import ONLY_FROM
from logdb.wire.envelopes import MAPPING


@pytest.mark.parametrize("engine", ENGINES)
def test_a_mapping_server_may_send_what_a_client_may(engine: str) -> None:
    """A mapping server contains a client. A server ends a stream that brings another message."""
    kinds = engine_of(engine).wire.rights
    assert {kind.__name__ for kind in kinds if MAPPING not in ONLY_FROM.get(kind, {MAPPING})} == set()
