"""Messages of the first engine, chosen by its declaration: examples for tests of transport and of rights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from logdb.log.engine import ENGINES, Batch, engine_of
from tests.harness.samples import sample, variants

ENGINE = engine_of(ENGINES[0])
_WIRE, _ROLES = ENGINE.wire, ENGINE.roles.values()
view_request, tail_request = ENGINE.operations.view_request, ENGINE.operations.tail_request
"""Requests of clients to a founder, by their number."""


def _first(kinds: Iterable[type]) -> Any:
    return sample(min(kinds, key=lambda kind: kind.__name__))


APPEND = _first(_WIRE.appends)
"""A client's, with records."""
RESPONSE = _first(_WIRE.client_accepts & ENGINE.roles[ENGINE.operations.storage_role].sends)
"""A storage server's, to a client."""
REPLICATION = _first(
    kind for kind, batch in _WIRE.batches.items() if batch is Batch.STORED and kind not in _WIRE.client_accepts
)
"""With stored records, between servers of one role."""
REPORT = _first(
    {kind for role in _ROLES for kind in role.accepts if kind.__module__ == _WIRE.messages.__name__}
    - _WIRE.rights.keys()
    - _WIRE.client_accepts
    - {kind for role in _ROLES for kind in role.sends}
)
"""Any server's, and never a client's."""
_CHANGES = [(sample(kind, at), is_) for kind, is_ in _WIRE.operator_requests.items() for at in range(variants(kind))]
OPERATOR_REQUESTS = [message for message, is_operators in _CHANGES if is_operators(message)]
"""Changes that only operators make."""
(MAPPING_REQUEST,) = [message for message, is_operators in _CHANGES if not is_operators(message)]
"""The one that mapping servers make, too."""


def replication(number: int, size: int) -> Any:
    """A message with one record of this size, in bytes, that begins with its number."""
    return REPLICATION._replace(records=((1, number.to_bytes(16) + bytes(size)),))


def number_of(message: Any) -> int:
    """The number of a `replication`."""
    return int.from_bytes(message.records[0][1][:16])
