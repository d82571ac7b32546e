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
    """Keeper to client: the GSNs of the records begin at `first`."""

    request: int
    first: int


class EndRequest(NamedTuple):
    """Client to keeper: a request for the tail."""

    request: int


class EndResponse(NamedTuple):
    """Keeper to client: the tail."""

    request: int
    last: int
    labels: tuple[int, ...]
