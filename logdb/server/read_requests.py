"""Requests that are answered at once: reads at a version, in pages, and requests for versions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from time import thread_time
from typing import Any, Final

from logdb.embedded.backend import EmbeddedBackend
from logdb.embedded.large_values import OutgoingValue
from logdb.embedded.snapshots import Holder
from logdb.server.leases import StreamLeases
from logdb.server.outbox import Outbox
from logdb.store.key_map import Passed, Rows
from logdb.store.limits import check_key
from logdb.store.ranges import ScanRange, key_range
from logdb.transport.unread_answers import StreamAnswers
from logdb.txn.measures import encode_measures
from logdb.wire.database_codec import PAGE_BYTES, PAGE_KEYS, PAGE_RANGES, PART_BYTES, values_to
from logdb.wire.proto import database_pb2 as pb

PAGE_S: Final = 0.002
"""Processor time after which a page ends, if there are other streams."""
ALONE_S: Final = 0.05
"""The same if there are none: the server also accepts streams, and signals."""
KEYS_A_LOOK: Final = 32
"""Number of keys that are read between two looks at the time."""
ROW_BYTES: Final = 32
"""Size of a row, a key or a version in a page beside its bytes."""


class ReadRequests:
    """The reading verbs of a stream."""

    def __init__(self, database: EmbeddedBackend, leases: StreamLeases, outbox: Outbox, share: StreamAnswers) -> None:
        self._database, self._leases, self._outbox, self._share = database, leases, outbox, share

    def is_slow(self, verb: str, arguments: Any) -> bool:
        """Whether the answer to a request may be read from the cold tier, so that it is computed in a thread."""
        cold = self._database.cold
        if cold is None:
            return False
        if verb in ("get", "multi_get", "scan", "multi_scan"):
            return bool(arguments.HasField("at")) and cold.has(arguments.at)
        if verb == "at":
            question = arguments.WhichOneof("question")
            return question == "time" or (question is not None and cold.has(getattr(arguments, question)))
        return verb in ("history", "facts")

    def get(self, request: pb.Request, get: pb.Get) -> pb.Response | None:
        """The value of a key."""
        if not get.key:
            check_key(get.key)
        at = self._leases.readable(get.at) if get.HasField("at") else None
        value = self._database.get_in_parts(get.key, at, PART_BYTES)
        if isinstance(value, OutgoingValue):
            self._outbox.answer_value(pb.Response(id=request.id), value)
            return None
        return pb.Response() if value is None else pb.Response(value=value)

    def multi_get(self, _: pb.Request, arguments: pb.MultiGet) -> pb.Response:
        """The values of the first keys, as many as fit into a page."""
        database, keys = self._database, arguments.keys[:PAGE_KEYS]
        for key in keys:
            check_key(key)
        if (at := self._version_of(arguments)) is not None:
            version = self._leases.readable(at)
            holder = None
        else:
            holder = Holder()
            version = database.snapshots.begin(holder, read_only=True)
        try:
            found: dict[bytes, bytes] = {}
            size = done = 0
            ends = self._page_ends()
            for key in keys:
                if done and not done % KEYS_A_LOOK and thread_time() > ends:
                    break
                done += 1
                value = database.get(key, version)
                if value is not None:
                    found[key] = value
                    size += len(value)
                    if size >= PAGE_BYTES:
                        break
            if done < len(arguments.keys) and arguments.lease and holder is not None:
                self._leases.check_room()
                self._leases.add(arguments.lease, holder)
                holder = None
        finally:
            if holder is not None:
                database.end(holder)
        return pb.Response(version=version, values=values_to(keys[:done], found))

    def scan(self, _: pb.Request, scan: pb.Scan) -> pb.Response:
        """A page of the rows of a range."""
        requested = _range_of(scan)
        version, holder = self._leases.begin_page(scan.lease, scan.at if scan.HasField("at") else None)
        rows = pb.Rows()
        try:
            self._read_range(rows, requested, version, scan, PAGE_BYTES, self._page_ends())
        finally:
            self._leases.end_page(scan.lease, holder, rows.more)
        return pb.Response(version=version, rows=rows)

    def multi_scan(self, _: pb.Request, arguments: pb.MultiScan) -> pb.Response:
        """The rows of the first ranges, as many as fit into a page, of one at least."""
        requested = [_range_of(each) for each in arguments.ranges[:PAGE_RANGES]]
        version, holder = self._leases.begin_page(arguments.lease, self._version_of(arguments))
        found, left, more, ends = pb.MultiRows(), PAGE_BYTES, True, self._page_ends()
        try:
            for each in requested:
                if found.ranges and (left <= 0 or thread_time() > ends):
                    break
                rows = found.ranges.add()
                left -= ROW_BYTES + self._read_range(rows, each, version, arguments, left, ends)
            more = len(found.ranges) < len(arguments.ranges) or any(rows.more for rows in found.ranges)
        finally:
            self._leases.end_page(arguments.lease, holder, more)
        return pb.Response(version=version, multi_rows=found)

    def _page_ends(self) -> float:
        """The processor time at which a page ends that begins now."""
        return thread_time() + (PAGE_S if self._share.has_company else ALONE_S)

    def _version_of(self, arguments: pb.MultiGet | pb.MultiScan) -> int | None:
        """The version that is requested; None: the newest. Raises VersionTrimmed."""
        if arguments.snapshot_of:
            return self._leases.version_of(arguments.snapshot_of)
        return arguments.at if arguments.HasField("at") else None

    def _read_range(
        self,
        rows: pb.Rows,
        requested: ScanRange,
        version: int,
        scan: pb.Scan | pb.MultiScan,
        max_bytes: int,
        ends: float,
    ) -> int:
        """Put the rows of a range into a page; returns their size there. `ends`: the processor time after which no
        other batch is read. A client that does not resume gets a row nevertheless."""
        start, end, limit = requested
        size, rest = 0, None
        batches = self._database.scan(start, end, version, reverse=scan.reverse, limit=limit)
        is_whole = isinstance(batches, tuple)

        def in_time() -> Iterator[Rows]:
            nonlocal rest
            for batch in batches:
                rest = batch.rest if isinstance(batch, Passed) else None
                yield batch
                if not is_whole and thread_time() > ends and (scan.resumes or rows.keys):
                    rows.more = True
                    return

        for key, value in islice((row for batch in in_time() for row in batch), limit):
            if size >= max_bytes:
                rows.more = True
                break
            rows.keys.append(key)
            rows.values.append(value)
            size += len(key) + len(value) + ROW_BYTES
        if not isinstance(batches, tuple):
            batches.close()
        if rows.more and scan.resumes and rest is not None:
            rows.rest = rest
        return size

    def history(self, _: pb.Request, history: pb.History) -> pb.Response:
        """A page of the versions of a key."""
        check_key(history.key)
        database, at = self._database, history.at if history.HasField("at") else None
        if database.cold is None:
            version, holder = self._leases.begin_page(history.lease, at, database.oldest())
        else:  # it keeps all versions
            version, holder = database.version() if at is None else self._leases.readable(at), None
        entries = pb.Entries()
        try:
            size, ends = 0, self._page_ends()
            found = database.history(history.key, version)
            for index, (written, value) in enumerate(found):
                if size >= PAGE_BYTES or (index and thread_time() > ends):
                    entries.more = True
                    break
                if value is None:
                    entries.deleted.append(index)
                entries.versions.append(written)
                entries.values.append(value or b"")
                size += ROW_BYTES + len(value or b"")
            found.close()  # type: ignore[attr-defined]
        finally:
            self._leases.end_page(history.lease, holder, entries.more)
        return pb.Response(version=version, entries=entries)

    def at(self, _: pb.Request, at: pb.At) -> pb.Response:
        """A version, or the time of one."""
        question = at.WhichOneof("question")
        if question == "version":
            return pb.Response(version=self._database.at(at.version))
        if question == "time":
            return pb.Response(version=self._database.at_time(at.time))
        if question == "time_of":
            time = self._database.time_of(at.time_of)
            return pb.Response() if time is None else pb.Response(version=time)
        return pb.Response(version=self._database.version())

    def facts(self, _: pb.Request, facts: pb.Facts) -> pb.Response:
        """The oldest version and the pins, and numbers about this server."""
        measures = encode_measures(self._database.measures()) if facts.measures else ""
        known = pb.Known(oldest=self._database.oldest(), pins=self._database.pins(), measures=measures)
        return pb.Response(facts=known)


def _range_of(arguments: pb.Scan | pb.ScanRange) -> ScanRange:
    """Raises ValueError, KeyTooLarge."""
    start = arguments.start if arguments.HasField("start") else None
    end = arguments.end if arguments.HasField("end") else None
    limit = arguments.limit if arguments.HasField("limit") else None
    key_range(start, end, None, limit)
    return ScanRange(start, end, limit)
