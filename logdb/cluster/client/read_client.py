"""Calls of a client that read: questions one after another, and the large values, which it reads in the log itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from logdb.cluster import messages
from logdb.cluster.client import requests as calls
from logdb.cluster.client.query_client import QueryClient, Told
from logdb.cluster.log_adapter import LogAdapter, ignore_result
from logdb.cluster.messages import Consistency, FutureVersionReply, Question, VersionTrimmedReply
from logdb.cores.context import ClientContext
from logdb.errors import Corruption, FutureVersion, Unavailable, VersionTrimmed
from logdb.log import requests as log
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.store.records import PIN, Place, Value, encode_pin


class PendingRead:
    """A call under way. `question`: its read that is out; `tries`: how often values were looked for. `applied`: how far
    a server must have got to be asked, since the values that stood at `trimmed` were trimmed by then."""

    __slots__ = ("applied", "call", "deadline", "question", "tries", "trimmed")

    def __init__(self, call: int, deadline: int | None) -> None:
        self.call, self.deadline = call, deadline
        self.question = self.tries = self.applied = 0
        self.trimmed: set[int] = set()


class ReadClient:
    """All reads that an application has called for."""

    def __init__(self, context: ClientContext, log: LogAdapter, asking: QueryClient, keys_per_read: int) -> None:
        self._context, self._log, self._asking = context, log, asking
        self._keys_per_read = keys_per_read

    def _open(self, call: int, deadline: int | None) -> PendingRead:
        reading = PendingRead(call, deadline)

        def expired() -> None:
            self._asking.drop(reading.question)
            self._context.answer(call, Unavailable("no mapping server answered before the deadline"))

        self._context.open(call, deadline, expired)
        return reading

    def _ask(
        self, reading: PendingRead, question: Question, consistency: Consistency, version: int, told: Told
    ) -> None:
        """Put a question; what is not the version asked for ends the call, all else goes to `told`."""

        def answered(at: int, result: Any) -> None:
            if isinstance(result, VersionTrimmedReply):
                self._context.answer(reading.call, VersionTrimmed(version, result.oldest))
            elif isinstance(result, FutureVersionReply):
                self._context.answer(reading.call, FutureVersion(version, result.newest))
            elif self._context.is_open(reading.call):
                told(at, result)

        reading.question = self._asking.ask(question, consistency, version, answered, reading.applied)

    # ---- keys, ranges, histories

    def get(self, call: int, request: calls.Get) -> None:
        self._get(self._open(call, request.deadline), request)

    def _get(self, reading: PendingRead, request: calls.Get) -> None:
        """Many keys are asked for in parts, the later ones at the version that the first was read at."""
        keys, most = tuple(request.keys), self._keys_per_read
        found: list[tuple[int, Value]] = []

        def told(version: int, entries: messages.Entries) -> None:
            found.extend(entries.entries)
            left = keys[len(found) : len(found) + most]
            if left:
                self._ask(reading, messages.Get(left), calls.SNAPSHOT, version, told)
                return

            def whole(values: list[bytes | None]) -> None:
                entries = tuple(zip([entry[0] for entry in found], values, strict=True))
                self._context.answer(reading.call, calls.Found(version, entries))

            again = request._replace(consistency=calls.SNAPSHOT, version=version)
            self._fetch(reading, version, [entry[1] for entry in found], whole, lambda: self._get(reading, again))

        self._ask(reading, messages.Get(keys[:most]), request.consistency, request.version, told)

    def scan(self, call: int, request: calls.Scan) -> None:
        self._scan(self._open(call, request.deadline), request)

    def _scan(self, reading: PendingRead, request: calls.Scan) -> None:
        def told(version: int, rows: messages.Rows) -> None:
            def whole(values: list[bytes | None]) -> None:
                found = tuple(zip([key for key, _ in rows.rows], values, strict=True))
                self._context.answer(reading.call, calls.Page(version, found, rows.more))  # type: ignore[arg-type]

            again = request._replace(consistency=calls.SNAPSHOT, version=version)
            self._fetch(reading, version, [value for _, value in rows.rows], whole, lambda: self._scan(reading, again))

        question = messages.Scan(request.start, request.end, request.reverse, request.rows)
        self._ask(reading, question, request.consistency, request.version, told)

    def multi_scan(self, call: int, request: calls.MultiScan) -> None:
        self._multi_scan(self._open(call, request.deadline), request)

    def _multi_scan(self, reading: PendingRead, request: calls.MultiScan) -> None:
        def told(version: int, found: messages.MultiRows) -> None:
            def whole(values: list[bytes | None]) -> None:
                rest = iter(values)
                pages = [
                    calls.Page(version, tuple([(key, next(rest)) for key, _ in rows.rows]), rows.more)  # type: ignore[misc]
                    for rows in found.ranges
                ]
                self._context.answer(reading.call, calls.Pages(version, tuple(pages)))

            again = request._replace(consistency=calls.SNAPSHOT, version=version)
            values = [value for rows in found.ranges for _, value in rows.rows]
            self._fetch(reading, version, values, whole, lambda: self._multi_scan(reading, again))

        self._ask(reading, messages.MultiScan(request.scans), request.consistency, request.version, told)

    def history(self, call: int, request: calls.History) -> None:
        self._history(self._open(call, request.deadline), request)

    def _history(self, reading: PendingRead, request: calls.History) -> None:
        def told(version: int, versions: messages.Versions) -> None:
            def whole(values: list[bytes | None]) -> None:
                entries = tuple(zip([entry[0] for entry in versions.versions], values, strict=True))
                self._context.answer(reading.call, calls.Versions(version, entries, versions.more))

            again = request._replace(consistency=calls.SNAPSHOT, version=version)
            values = [value for _, value in versions.versions]
            self._fetch(reading, version, values, whole, lambda: self._history(reading, again))

        question = messages.History(request.key, request.rows)
        self._ask(reading, question, request.consistency, request.version, told)

    # ---- large values

    def _fetch(
        self,
        reading: PendingRead,
        version: int,
        values: list[Value],
        whole: Callable[[list[bytes | None]], None],
        again: Callable[[], None],
    ) -> None:
        """Put the large values in the place of their places. `again`: look them up anew, they were moved.

        A value is trimmed when the ENDING of the compaction that moved it is in the log. So a server that has applied
        the log up to a tail that is asked for after that knows the copy, or has a newer floor (DBS-13).
        """
        places = [(index, value) for index, value in enumerate(values) if isinstance(value, Place)]
        if not places:
            whole(values)  # type: ignore[arg-type]
            return
        reading.tries += 1
        tries, left = reading.tries, len(places)

        def got(index: int, place: Place, result: Any) -> None:
            nonlocal left
            if not self._context.is_open(reading.call) or reading.tries != tries:
                return
            if isinstance(result, LogRecord):
                if not place.has(result.tag, result.payload):
                    what = f"record {place.gsn} does not hold the value that the map places there (DBS-10)"
                    self._context.answer(reading.call, Corruption(f"shard {place.shard}", None, what))
                    return
                values[index] = result.payload
                left -= 1
                if not left:
                    whole(values)  # type: ignore[arg-type]
            elif isinstance(result, Trimmed) and place.gsn in reading.trimmed:
                what = f"record {place.gsn} was trimmed, and the map has no copy of the value (DBS-13)"
                self._context.answer(reading.call, Corruption(f"shard {place.shard}", None, what))
            elif isinstance(result, Trimmed):
                reading.tries += 1
                reading.trimmed.add(place.gsn)
                self._log.call(log.Tail(reading.deadline), moved)
            elif not isinstance(result, TimeoutError):
                self._context.answer(reading.call, result)

        def moved(tail: Any) -> None:
            if self._context.is_open(reading.call) and not isinstance(tail, TimeoutError):
                reading.applied = tail
                again()

        for index, place in places:
            read = log.Read(place.gsn, place.shard, reading.deadline, place.length)
            self._log.call(read, partial(got, index, place))

    # ---- versions, pins, outcomes

    def version(self, call: int, request: calls.Version) -> None:
        self._simple(call, request.deadline, messages.Version(), request.consistency, request.version)

    def oldest(self, call: int, request: calls.Oldest) -> None:
        self._simple(call, request.deadline, messages.Oldest(), calls.LINEARIZABLE, 0)

    def at_time(self, call: int, request: calls.AtTime) -> None:
        self._simple(call, request.deadline, messages.AtTime(request.time), calls.LINEARIZABLE, 0)

    def pins(self, call: int, request: calls.Pins) -> None:
        self._simple(call, request.deadline, messages.Pins(), calls.LINEARIZABLE, 0)

    def aborted(self, call: int, request: calls.Aborted) -> None:
        question = messages.Aborted(request.after)
        self._simple(call, request.deadline, question, calls.SNAPSHOT, request.through)

    def outcome(self, call: int, request: calls.Outcome) -> None:
        self._simple(call, request.deadline, messages.Outcome(*request.txn_id), calls.LINEARIZABLE, 0)

    def _simple(
        self, call: int, deadline: int | None, question: Question, consistency: Consistency, version: int
    ) -> None:
        """One question, whose answer is the call's."""

        def told(at: int, result: Any) -> None:
            if isinstance(result, messages.VersionReply):
                result = at
            elif isinstance(result, messages.Pinned):
                result = dict(result.pins)
            elif isinstance(result, messages.NotApplied):
                result = result.gsns
            self._context.answer(call, result)

        self._ask(self._open(call, deadline), question, consistency, version, told)

    def pin(self, call: int, request: calls.Pin) -> None:
        """The version must be readable; then the log is told; and then what the pin came to is looked at."""
        reading = self._open(call, request.deadline)

        def told(_: int, pinned: messages.Pinned) -> None:
            self._context.answer(call, dict(pinned.pins).get(request.name, 0))

        def appended(result: Any) -> None:
            if isinstance(result, log.AppendResult):
                self._ask(reading, messages.Pins(), calls.SESSION, result.gsns[0], told)
            else:
                self._context.answer(call, Unavailable(f"the pin was not written: {result}"))

        def append(*_: Any) -> None:
            record = (PIN, encode_pin(request.name, request.version))
            self._log.call(log.Append((record,), None, request.deadline), appended)

        if request.version:
            self._ask(reading, messages.Version(), calls.SNAPSHOT, request.version, append)
        else:
            append()

    # ---- the log itself

    def record_at(self, call: int, request: calls.RecordAt) -> None:
        """Nobody says which shard has it, so the log is followed from there on, by one step."""
        reading = self._open(call, request.deadline)

        def subscribed(result: Any) -> None:
            if isinstance(result, int):
                self._log.call(log.Next(result, request.deadline), partial(delivered, result))
            else:
                answer(result)

        def delivered(subscription: int, result: Any) -> None:
            self._log.call(log.Close(subscription), ignore_result)
            answer(result.records[0] if isinstance(result, Batch) else result)

        def answer(result: Any) -> None:
            self._context.answer(reading.call, None if isinstance(result, Trimmed) else result)

        self._log.call(log.Subscribe(request.version), subscribed)
