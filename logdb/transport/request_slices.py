"""What a client asks in one message, in portions: between two of them other clients have their turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from logdb.cluster.messages import AwaitVerdicts, Reads
from logdb.log.engine import all_engines

PORTION: Final = 256
"""Reads, transactions or runs of records of one portion. Messages of our clients rarely hold more."""

_ITEMS: Final[dict[type, str]] = {
    **{kind: field for engine in all_engines() for kind, field in engine.wire.sliced_fields.items()},
    Reads: "reads",
    AwaitVerdicts: "waits",
}
"""The field with the items, of messages that are taken apart."""


def portions(message: Any) -> Iterator[Any]:
    """The message, or several that mean the same together."""
    field = _ITEMS.get(type(message))
    if field is not None and len(items := getattr(message, field)) > PORTION:
        for first in range(0, len(items), PORTION):
            yield message._replace(**{field: items[first : first + PORTION]})
        return
    yield message
