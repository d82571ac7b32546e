"""What a client asks in one message, in portions: between two of them other clients have their turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from logdb.cluster.messages import Await, Reads
from logdb.log.scalog.messages import AskFate

PORTION: Final = 256
"""Reads, transactions or runs of records of one portion. Messages of our clients rarely hold more."""


def portions(message: Any) -> Iterator[Any]:
    """The message, or several that mean the same together."""
    kind = type(message)
    if kind is Reads or kind is Await:
        items = message[0]
        if len(items) > PORTION:
            for first in range(0, len(items), PORTION):
                yield kind(items[first : first + PORTION])
            return
    elif kind is AskFate and len(message.sequences) > PORTION:
        for first in range(0, len(message.sequences), PORTION):
            yield message._replace(sequences=message.sequences[first : first + PORTION])
        return
    yield message
