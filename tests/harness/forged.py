"""Records with numbers that no client means, by what is wrong with them."""

from __future__ import annotations

from typing import Final

from logdb.cluster.messages import COLD_SHARD
from logdb.log.contract import Record
from logdb.store.limits import INLINE_VALUE_BYTES, MAX_VALUE_BYTES
from logdb.store.records import COMMIT, PIN, Commit, Condition, Place, encode_commit, encode_pin

PLACE: Final = Place(1, 1, 5_000, bytes(16))
BEFORE: Final = Commit(1, 2, {b"k": b"v"})


def _commit(**fields: object) -> Record:
    return COMMIT, encode_commit(BEFORE._replace(**fields))  # type: ignore[arg-type]


FORGED: Final[dict[str, Record]] = {
    "a length just above the limit": _commit(writes={b"k": PLACE._replace(length=MAX_VALUE_BYTES + 1)}),
    "the largest length": _commit(writes={b"k": PLACE._replace(length=(1 << 64) - 1)}),
    "a place behind the end": _commit(writes={b"k": PLACE._replace(gsn=1 << 63)}),
    "a place in the cold tier": _commit(writes={b"k": PLACE._replace(shard=COLD_SHARD)}),
    "a large value inside": _commit(writes={b"k": bytes(INLINE_VALUE_BYTES + 1)}),
    "a large number": _commit(sequence=1 << 63),
    "a snapshot behind the end": _commit(snapshot=1 << 63, reads=[b"r"]),
    "a condition on a length": _commit(conditions=[Condition(1, b"k", PLACE._replace(length=1 << 63))]),
    "a pin behind the end": (PIN, encode_pin("p", 1 << 63)),
}
