"""Slices of a client's large message: between two slices other clients get their turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from logdb.cluster.messages import AwaitVerdicts, Reads
from logdb.log.engine import all_engines

SLICE_ITEMS: Final = 256
"""Maximum number of reads, transactions or runs of records in a slice. Messages of LogDB's clients rarely have more."""

_ITEMS: Final[dict[type, str]] = {
    **{kind: field for engine in all_engines() for kind, field in engine.wire.sliced_fields.items()},
    Reads: "reads",
    AwaitVerdicts: "waits",
}
"""The field with the items of each message that is sliced."""


def slices(message: Any) -> Iterator[Any]:
    """The message, or several messages that together have the same meaning."""
    field = _ITEMS.get(type(message))
    if field is not None and len(items := getattr(message, field)) > SLICE_ITEMS:
        for first in range(0, len(items), SLICE_ITEMS):
            yield message._replace(**{field: items[first : first + SLICE_ITEMS]})
        return
    yield message
