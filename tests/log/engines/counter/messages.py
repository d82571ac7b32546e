"""The messages of `counter`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logdb.log.contract import Record


class Put(NamedTuple):
    """Client to keeper: append these records."""

    request: int
    records: Sequence[Record]


class Numbered(NamedTuple):
    """The answer: their GSNs begin at `first`."""

    request: int
    first: int


class AskEnd(NamedTuple):
    """Client to keeper: what is the tail?"""

    request: int


class End(NamedTuple):
    """The answer."""

    request: int
    last: int
    labels: tuple[int, ...]
