"""A checkpoint made of a log whose beginning was trimmed: what the last compaction wrote into it (`compactor.py`), and
the commit records from its floor to its BEGINNING. It is the state as of that BEGINNING, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from logdb.cluster.cleaning import decode_ending, decode_part
from logdb.cluster.line import LogLine
from logdb.cluster.messages import HeadRows, LedgerRows, MapRow, MapRows, Part
from logdb.log.contract import Batch, LogFailed
from logdb.log.cores import ProtocolViolation
from logdb.log.scalog import calls
from logdb.store.records import BEGINNING, COMMIT, ENDING, PART, MalformedRecord, Value, decode_commit
from logdb.txn.coordinator import floor_of
from logdb.txn.ledger import aborted_of

CLEANING: Final = frozenset({BEGINNING, PART, ENDING})

Done = Callable[[int, list[Part]], None]
"""Takes the version and the parts."""


class Rebuilding:
    """One attempt. `failed` hears why it cannot be done."""

    def __init__(self, line: LogLine, oldest: int, done: Done, failed: Callable[[Any], None]) -> None:
        self._line, self._oldest, self._done, self._failed = line, oldest, done, failed
        self._begun = self._whole = 0
        self._parts: list[Part] = []
        self._found: list[Part] = []
        self._aborted: set[int] = set()
        self._floor = 0
        self._versions: dict[bytes, dict[int, Value]] = {}
        line.call(calls.Tail(), self._look)

    def _read(self, first: int, last: int, tags: frozenset[int], take: Callable[[Batch], None], then: Any) -> None:
        """Take all records of these kinds from `first` to `last`."""

        def subscribed(result: Any) -> None:
            if isinstance(result, Exception):
                self._failed(result)
            else:
                self._line.call(calls.Next(result), lambda batch: delivered(result, batch))

        def delivered(subscription: int, batch: Any) -> None:
            if not isinstance(batch, Batch):
                self._failed(batch)
                return
            try:
                take(batch)
            except MalformedRecord as error:
                raise ProtocolViolation(f"the log holds what this version cannot read: {error}") from error
            if batch.end <= last:
                self._line.call(calls.Next(subscription), lambda batch: delivered(subscription, batch))
            else:
                self._line.call(calls.Close(subscription), lambda _: None)
                then()

        self._line.call(calls.Subscribe(first, tags), subscribed)

    # ---- the last compaction

    def _look(self, tail: int) -> None:
        self._read(self._oldest, tail, CLEANING, self._take_part, self._read_commits)

    def _take_part(self, batch: Batch) -> None:
        for gsn, _, tag, payload in batch.records:
            if tag == BEGINNING:
                self._begun, self._parts = gsn, []
            elif tag == PART:
                began, part = decode_part(payload)
                if began == self._begun:
                    self._parts.append(part)
            elif decode_ending(payload) == self._begun:
                self._whole, self._found = self._begun, self._parts

    # ---- commits after its floor

    def _read_commits(self) -> None:
        if not self._whole:
            what = f"the log begins with record {self._oldest}, and holds no compaction that would say what was before"
            self._failed(LogFailed(what))
            return
        for part in self._found:
            if isinstance(part, HeadRows):
                self._floor = floor_of(part.rows)
            elif isinstance(part, LedgerRows):
                self._aborted.update(aborted_of(part.rows))
        if self._floor < self._oldest:
            raise ProtocolViolation(f"DBS-12: the log begins with {self._oldest}, its last floor is {self._floor}")
        self._read(self._floor, self._whole, frozenset({COMMIT}), self._take_commits, self._finish)

    def _take_commits(self, batch: Batch) -> None:
        for gsn, _, _, payload in batch.records:
            if gsn < self._whole and gsn not in self._aborted:
                for key, value in decode_commit(payload).writes.items():
                    self._versions.setdefault(key, {})[gsn] = value

    def _finish(self) -> None:
        for part in self._found:
            if isinstance(part, MapRows):
                for key, version, value, _ in part.rows:
                    self._versions.setdefault(key, {})[version] = value
        rows = [
            MapRow(key, version, value, 0)
            for key, versions in sorted(self._versions.items())
            for version, value in sorted(versions.items(), reverse=True)
            if version > self._floor or value is not None
        ]
        others = [part for part in self._found if not isinstance(part, MapRows)]
        self._done(self._whole, [*others, MapRows(tuple(rows))])
