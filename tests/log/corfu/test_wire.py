"""The limits of the fields of messages."""

from __future__ import annotations

from typing import Any

import pytest

from logdb.log.corfu.messages import Pull, TokenRequest, WriteRequest
from logdb.log.corfu.projection import MAX_TOKENS
from logdb.log.corfu.wire import MAX_PULL_BYTES, WIRE
from logdb.log.requests import MAX_STREAMS

SIXTEEN = tuple([(stream, 0) for stream in range(1, MAX_STREAMS + 1)])


@pytest.mark.parametrize(
    ("kind", "field", "allowed", "refused"),
    [
        (Pull, "max_bytes", MAX_PULL_BYTES, MAX_PULL_BYTES + 1),
        (Pull, "step", 1, 0),
        (TokenRequest, "places", (0,) * MAX_TOKENS, (0,) * (MAX_TOKENS + 1)),
        (TokenRequest, "streams", ((0, 1),) * MAX_TOKENS * MAX_STREAMS, ((0, 1),) * (MAX_TOKENS * MAX_STREAMS + 1)),
        (WriteRequest, "streams", SIXTEEN, (*SIXTEEN, (MAX_STREAMS + 1, 0))),
        (WriteRequest, "streams", ((1, 0), (2, 0)), ((1, 0), (1, 2))),
    ],
)
def test_a_field_has_a_limit(kind: type, field: str, allowed: Any, refused: Any) -> None:
    for convert in WIRE.field_converters[kind, field]:
        assert convert(allowed) == allowed
        with pytest.raises(ValueError, match=kind.__name__):
            convert(refused)
