"""Calls of a client that read: their queries, one after another, and large values, which it reads from the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from logdb.cluster import messages
from logdb.cluster.client import requests as calls
from logdb.cluster.client.query_client import OnAnswer, QueryClient
from logdb.cluster.log_adapter import LogAdapter, ignore_result
from logdb.cluster.messages import (
    COLD_SHARD,
    Consistency,
    FutureVersionReply,
    NotReadable,
    Question,
    VersionTrimmedReply,
)
from logdb.cores.context import ClientContext
from logdb.errors import Corruption, FutureVersion, Unavailable, VersionTrimmed
from logdb.log import requests as log
from logdb.log.contract import Batch, LogRecord, NotOfThisShard, Trimmed
from logdb.store.records import PIN, PLACE, VALUE, Place, Value, encode_pin


class PendingRead:
    """A call under way. `query`: the number of its current query. `lookups`: how many times its large values were
    looked up. `trimmed`: the places whose records were trimmed, as of version `min_applied`: only a server that has
    applied that version is asked again. `newest`: the verb and the request, of a read of the newest version."""

    __slots__ = ("call", "deadline", "lookups", "min_applied", "newest", "query", "trimmed")

    def __init__(self, call: int, deadline: int | None) -> None:
        self.call, self.deadline = call, deadline
        self.query = self.lookups = self.min_applied = 0
        self.trimmed: set[int] = set()
        self.newest: tuple[Callable[[PendingRead, Any], None], Any] | None = None


class ReadClient:
    """All reads of an application."""

    def __init__(self, context: ClientContext, log: LogAdapter, queries: QueryClient, keys_per_read: int) -> None:
        self._context, self._log, self._queries = context, log, queries
        self._keys_per_read = keys_per_read

    def _open(self, call: int, deadline: int | None) -> PendingRead:
        pending = PendingRead(call, deadline)

        def expired() -> None:
            why = "no mapping server answered before the deadline"
            if self._queries.is_recalling(pending.query):
                why = "the cold tier is still being read; try again, the server goes on"
            self._queries.drop(pending.query)
            self._context.answer(call, Unavailable(why))

        self._context.open(call, deadline, expired)
        return pending

    def _ask(
        self, pending: PendingRead, question: Question, consistency: Consistency, version: int, on_answer: OnAnswer
    ) -> None:
        """Send a query. A version that cannot be read ends the call, any other answer goes to `on_answer`."""

        def on_result(at: int, result: Any) -> None:
            if isinstance(result, VersionTrimmedReply):
                self._trimmed(pending, VersionTrimmed(version, result.oldest))
            elif isinstance(result, FutureVersionReply):
                self._context.answer(pending.call, FutureVersion(version, result.newest))
            elif isinstance(result, NotReadable):
                error = Corruption(result.damaged, None, result.why) if result.damaged else Unavailable(result.why)
                self._context.answer(pending.call, error)
            elif self._context.is_open(pending.call):
                on_answer(at, result)

        pending.query = self._queries.ask(question, consistency, version, on_result, pending.min_applied)

    def _trimmed(self, pending: PendingRead, error: VersionTrimmed) -> None:
        """A version cannot be read any more. If the application has not named it, begin again with the newest one."""
        if pending.newest is None:
            self._context.answer(pending.call, error)
        elif self._context.is_open(pending.call):
            pending.trimmed, pending.min_applied = set(), 0
            read, request = pending.newest
            read(pending, request)

    def _begin(self, call: int, request: Any, read: Callable[[PendingRead, Any], None]) -> None:
        pending = self._open(call, request.deadline)
        if request.consistency != calls.SNAPSHOT:
            pending.newest = read, request
        read(pending, request)

    # ---- keys, ranges, histories

    def get(self, call: int, request: calls.Get) -> None:
        self._begin(call, request, self._get)

    def _get(self, pending: PendingRead, request: calls.Get) -> None:
        """Get many keys in parts, the later ones at the version of the first one."""
        keys, max_keys = tuple(request.keys), self._keys_per_read
        found: list[tuple[int, Value]] = []

        def on_answer(version: int, entries: messages.Entries) -> None:
            found.extend(entries.entries)
            rest = keys[len(found) : len(found) + max_keys]
            if rest:
                self._ask(pending, messages.Get(rest), calls.SNAPSHOT, version, on_answer)
                return

            def on_values(values: list[bytes | None]) -> None:
                entries = tuple(zip([entry[0] for entry in found], values, strict=True))
                self._context.answer(pending.call, calls.Found(version, entries))

            same = request._replace(consistency=calls.SNAPSHOT, version=version)
            self._fetch(pending, version, [entry[1] for entry in found], on_values, lambda: self._get(pending, same))

        self._ask(pending, messages.Get(keys[:max_keys]), request.consistency, request.version, on_answer)

    def scan(self, call: int, request: calls.Scan) -> None:
        self._begin(call, request, self._scan)

    def _scan(self, pending: PendingRead, request: calls.Scan) -> None:
        def on_answer(version: int, rows: messages.Rows) -> None:
            def on_values(values: list[bytes | None]) -> None:
                found = tuple(zip([key for key, _ in rows.rows], values, strict=True))
                self._context.answer(pending.call, calls.Page(version, found, rows.rest))  # type: ignore[arg-type]

            same = request._replace(consistency=calls.SNAPSHOT, version=version)
            self._fetch(
                pending, version, [value for _, value in rows.rows], on_values, lambda: self._scan(pending, same)
            )

        question = messages.Scan(request.start, request.end, request.reverse, request.rows)
        self._ask(pending, question, request.consistency, request.version, on_answer)

    def multi_scan(self, call: int, request: calls.MultiScan) -> None:
        self._begin(call, request, self._multi_scan)

    def _multi_scan(self, pending: PendingRead, request: calls.MultiScan) -> None:
        def on_answer(version: int, found: messages.MultiRows) -> None:
            def on_values(values: list[bytes | None]) -> None:
                rest = iter(values)
                pages = [
                    calls.Page(version, tuple([(key, next(rest)) for key, _ in rows.rows]), rows.rest)  # type: ignore[misc]
                    for rows in found.ranges
                ]
                self._context.answer(pending.call, calls.Pages(version, tuple(pages)))

            same = request._replace(consistency=calls.SNAPSHOT, version=version)
            values = [value for rows in found.ranges for _, value in rows.rows]
            self._fetch(pending, version, values, on_values, lambda: self._multi_scan(pending, same))

        self._ask(pending, messages.MultiScan(request.scans), request.consistency, request.version, on_answer)

    def history(self, call: int, request: calls.History) -> None:
        self._begin(call, request, self._history)

    def _history(self, pending: PendingRead, request: calls.History) -> None:
        def on_answer(version: int, versions: messages.Versions) -> None:
            def on_values(values: list[bytes | None]) -> None:
                entries = tuple(zip([entry[0] for entry in versions.versions], values, strict=True))
                self._context.answer(pending.call, calls.Versions(version, entries, versions.more))

            same = request._replace(consistency=calls.SNAPSHOT, version=version)
            values = [value for _, value in versions.versions]
            self._fetch(pending, version, values, on_values, lambda: self._history(pending, same))

        question = messages.History(request.key, request.rows)
        self._ask(pending, question, request.consistency, request.version, on_answer)

    # ---- large values

    def _fetch(
        self,
        pending: PendingRead,
        version: int,
        values: list[Value],
        on_values: Callable[[list[bytes | None]], None],
        again: Callable[[], None],
    ) -> None:
        """Replace the places of large values by the values. `again` repeats the query, after a value was moved.

        A value is trimmed when the ENDING of the compaction that moved it is in the log. So a server that has applied
        a tail requested after that has the place of the copy, or a newer floor (DBS-13).
        """
        places = [(index, value) for index, value in enumerate(values) if isinstance(value, Place)]
        if not places:
            on_values(values)  # type: ignore[arg-type]
            return
        index, place = places[0]
        if place.shard == COLD_SHARD:  # one after another, as they may be large

            def on_value(value: bytes) -> None:
                values[index] = value
                self._fetch(pending, version, values, on_values, again)

            self._fetch_cold(pending, place, on_value)
            return
        pending.lookups += 1
        lookup, missing = pending.lookups, len(places)

        def on_record(index: int, place: Place, result: Any) -> None:
            nonlocal missing
            if not self._context.is_open(pending.call) or pending.lookups != lookup:
                return
            if isinstance(result, LogRecord) and place.has(result.tag, result.payload):
                values[index] = result.payload
                missing -= 1
                if not missing:
                    on_values(values)  # type: ignore[arg-type]
            elif isinstance(result, LogRecord | NotOfThisShard):
                what = f"record {place.gsn} does not hold the value that the map places there (DBS-10)"
                self._context.answer(pending.call, Corruption(f"shard {place.shard}", None, what))
            elif isinstance(result, Trimmed) and place.gsn in pending.trimmed:
                what = f"record {place.gsn} was trimmed, and the map has no copy of the value (DBS-13)"
                self._context.answer(pending.call, Corruption(f"shard {place.shard}", None, what))
            elif isinstance(result, Trimmed):
                pending.lookups += 1
                pending.trimmed.add(place.gsn)
                self._log.call(log.Tail(pending.deadline), on_tail)
            elif not isinstance(result, TimeoutError):
                self._context.answer(pending.call, result)

        def on_tail(tail: Any) -> None:
            if self._context.is_open(pending.call) and not isinstance(tail, TimeoutError):
                pending.min_applied = tail
                again()

        for index, place in places:
            read = log.Read(place.gsn, place.shard, pending.deadline, place.length)
            self._log.call(read, partial(on_record, index, place))

    def cold_value(self, call: int, request: calls.ColdValue) -> None:
        pending = self._open(call, request.deadline)
        self._fetch_cold(pending, request.place, partial(self._context.answer, call))

    def cold_commits(self, call: int, request: calls.ColdCommits) -> None:
        """Read a page of commits, then the records that are too large for it, one after another."""
        pending = self._open(call, request.deadline)

        def on_page(_: int, page: messages.CommitPage) -> None:
            for at, commit in enumerate(page.commits):
                if commit.place:
                    place = Place(*PLACE.unpack(commit.place))  # a record may be longer than any value
                    self._fetch_cold(pending, place, partial(on_record, page, at))
                    return
            self._context.answer(call, page)

        def on_record(page: messages.CommitPage, at: int, record: bytes) -> None:
            commits = list(page.commits)
            commits[at] = commits[at]._replace(record=record, place=b"")
            on_page(0, page._replace(commits=tuple(commits)))

        self._ask(pending, messages.ColdCommits(request.after), calls.LINEARIZABLE, request.after, on_page)

    def _fetch_cold(self, pending: PendingRead, place: Place, on_value: Callable[[bytes], None]) -> None:
        """Read a large value from the cold tier, part by part (DBS-10)."""
        parts = bytearray()

        def ask() -> None:
            question = messages.ColdValue(place.gsn, place.digest, len(parts))
            self._ask(pending, question, calls.LINEARIZABLE, 0, on_part)

        def on_part(_: int, part: messages.ValuePart) -> None:
            parts.extend(part.data)
            if part.data and len(parts) < place.length:
                ask()
            elif place.has(VALUE, value := bytes(parts)):
                on_value(value)
            else:
                what = "it does not have the value that the map places there (DBS-10)"
                self._context.answer(pending.call, Corruption(f"segment {place.gsn} of the cold tier", None, what))

        ask()

    # ---- versions, pins, outcomes

    def version(self, call: int, request: calls.Version) -> None:
        self._simple(call, request.deadline, messages.Version(), request.consistency, request.version)

    def oldest(self, call: int, request: calls.Oldest) -> None:
        self._simple(call, request.deadline, messages.Oldest(request.in_cold_tier), calls.LINEARIZABLE, 0)

    def at_time(self, call: int, request: calls.AtTime) -> None:
        self._simple(call, request.deadline, messages.AtTime(request.time), calls.LINEARIZABLE, 0)

    def pins(self, call: int, request: calls.Pins) -> None:
        self._simple(call, request.deadline, messages.Pins(), calls.LINEARIZABLE, 0)

    def measure(self, call: int, request: calls.Measure) -> None:
        self._simple(call, request.deadline, messages.Measure(), calls.LINEARIZABLE, 0)

    def aborted(self, call: int, request: calls.Aborted) -> None:
        question = messages.Aborted(request.after)
        self._simple(call, request.deadline, question, calls.SNAPSHOT, request.through)

    def outcome(self, call: int, request: calls.Outcome) -> None:
        self._simple(call, request.deadline, messages.Outcome(*request.txn_id), calls.LINEARIZABLE, 0)

    def _simple(
        self, call: int, deadline: int | None, question: Question, consistency: Consistency, version: int
    ) -> None:
        """Send one query, whose answer is the result of the call."""

        def on_answer(at: int, result: Any) -> None:
            if isinstance(result, messages.VersionReply):
                result = at
            elif isinstance(result, messages.Pinned):
                result = dict(result.pins)
            elif isinstance(result, messages.Measured):
                result = result.numbers
            elif isinstance(result, messages.NotApplied):
                result = result.gsns
            self._context.answer(call, result)

        self._ask(self._open(call, deadline), question, consistency, version, on_answer)

    def pin(self, call: int, request: calls.Pin) -> None:
        """Check that the version is readable, append the PIN record, then read which version the name pins after it."""
        pending = self._open(call, request.deadline)

        def on_answer(_: int, pinned: messages.Pinned) -> None:
            self._context.answer(call, dict(pinned.pins).get(request.name, 0))

        def on_appended(result: Any) -> None:
            if isinstance(result, log.AppendResult):
                self._ask(pending, messages.Pins(), calls.SESSION, result.gsns[0], on_answer)
            else:
                self._context.answer(call, Unavailable(f"the pin was not written: {result}"))

        def append(*_: Any) -> None:
            record = (PIN, encode_pin(request.name, request.version))
            self._log.call(log.Append((record,), None, request.deadline), on_appended)

        if request.version:  # a version that only the cold tier has cannot be pinned: it has no outcomes
            self._ask(pending, messages.Aborted(request.version - 1), calls.SNAPSHOT, request.version, append)
        else:
            append()

    # ---- the log itself

    def record_at(self, call: int, request: calls.RecordAt) -> None:
        """Read a record whose shard is not known: subscribe from there, and take the first batch."""
        pending = self._open(call, request.deadline)

        def on_subscribed(result: Any) -> None:
            if isinstance(result, int):
                self._log.call(log.Next(result, request.deadline), partial(on_batch, result))
            else:
                answer(result)

        def on_batch(subscription: int, result: Any) -> None:
            self._log.call(log.Close(subscription), ignore_result)
            if isinstance(result, Batch):  # GSNs need not be dense: a version may have no record of its own
                result = next((record for record in result.records if record.gsn == request.version), None)
            answer(result)

        def answer(result: Any) -> None:
            self._context.answer(pending.call, None if isinstance(result, Trimmed) else result)

        self._log.call(log.Subscribe(request.version), on_subscribed)
