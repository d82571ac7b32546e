"""One sweep: deletes what has expired. A generator of requests, so that threads and cores carry out the same one.

A sweep first writes one small record, the tick, whose time is the time of the log. Then it marks what was written since
the sweep before (`marks.py`), and deletes what the marks say has expired:

- a key, if its newest version is the one that was written with the time to live (a condition of the commit);
- the first entries of a named log, by a range delete, if policy and marks are as they were read (conditions, too).

Programs can write any key, so a row, a policy or marks that LogDB does not write are skipped: they stop no sweep.

So two sweeps at once, or one that is repeated or interrupted, delete nothing twice and nothing else. Deletions are
commits like others: every view of a version has a key or entry until the version that deletes it.

The invariants:

RET-3  A sweep deletes a key or an entry only after its age, by the times of records, or beyond its size.
RET-4  While some process sweeps and clocks go on, all that has expired is deleted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from logdb.named_logs.layout import ID_BYTES, Layout
from logdb.named_logs.retention import POLICIES, RETENTION, Retention
from logdb.retention.expiry import EXPIRING, TTL_MARKS, place_in, prefix_of, ttl_in, version_in
from logdb.retention.marks import (
    LAST_PLACE,
    PARTS,
    Limits,
    Mark,
    decode_marks,
    encode_marks,
    end_of,
    expired,
    is_due,
    with_mark,
)
from logdb.store.conditions import absent, equals, version_equals
from logdb.store.key_map import Rows
from logdb.store.limits import MAX_KEY_BYTES
from logdb.store.records import APPENDED_BYTES, VERSION_BYTES, Condition, Place, Range

TICK: Final = RETENTION.pack((3,))
"""The key that a tick writes."""
LABEL: Final = "retention"
"""The label of the commits of sweeps."""
MAX_ROWS: Final = 10_000
"""Maximum number of keys that a sweep deletes, and of entries whose sizes it reads."""
LOGS_AT_ONCE: Final = 500
"""Number of named logs that a sweep looks at; the next one continues behind them."""
KEYS_AT_ONCE: Final = 128
BYTES_AT_ONCE: Final = 64 << 10
"""Size of the keys that one commit of a sweep deletes."""
ENTRIES_AT_ONCE: Final = 256
MS: Final = 1_000_000
NO_MARK: Final = bytes(APPENDED_BYTES)


class Scan(NamedTuple):
    """A request for the first `limit` rows of [start, end), or the last: answered by a list of (key, value). `whole`
    False: a large value may be its place."""

    start: bytes
    end: bytes
    limit: int
    reverse: bool = False
    whole: bool = True


class Write(NamedTuple):
    """A request to delete ranges and write if conditions hold: answered by `Written`, when the next scan sees it."""

    conditions: Sequence[Condition]
    writes: Mapping[bytes, bytes | None]
    deletes: Sequence[Range] = ()


class Written(NamedTuple):
    """The `version` of a write, and the positions of the conditions that did not hold, with which it was refused."""

    version: int
    failed: Sequence[int]


class TimeOf(NamedTuple):
    """A request for the time of a version that the sweep has just written: answered in ns since the epoch, or by None
    if a compaction has overtaken it."""

    version: int


class Swept(NamedTuple):
    """The result of a sweep: `expired_keys`, the number of keys that it deleted; `truncated_logs`, that of named logs
    that it truncated; `is_complete`: it has not ended at its bound."""

    expired_keys: int
    truncated_logs: int
    is_complete: bool


Steps = Generator[Scan | Write | TimeOf, Any, Swept]


class Series(NamedTuple):
    """Rows in the order of their versions, which expire from the first one on.

    `prefix`: of their keys; `marks`: the key of their marks, `stored` its value; `last`: the place of the last row.
    `log`: the layout and the stored policy of a named log, None for keys that expire.
    """

    prefix: bytes
    marks: bytes
    stored: bytes | None
    limits: Limits
    last: bytes
    log: tuple[Layout, bytes] | None

    @property
    def rows(self) -> tuple[bytes, bytes]:
        """The range of the rows."""
        return self.prefix, self.prefix + LAST_PLACE

    def up_to(self, place: bytes) -> tuple[bytes, bytes]:
        """The range of the rows up to a place."""
        return self.prefix, self.prefix + place + b"\0"

    @property
    def unchanged(self) -> list[Condition]:
        """The conditions that marks and policy are those that were read."""
        marks = absent(self.marks) if self.stored is None else equals(self.marks, self.stored)
        return [marks] if self.log is None else [marks, equals(self.log[0].policy, self.log[1])]


class Sweeper:
    """Makes sweeps, one after another. It remembers the time of the last tick, and the named log that the last sweep
    ended at, which only saves work."""

    def __init__(self) -> None:
        self._tick: tuple[int, int] | None = None
        self._next_log = POLICIES.range()[0]
        self._left = 0
        self._keys = self._logs = 0

    def sweep(self, clock_ns: int) -> Steps:
        """The next sweep. `clock_ns`: any clock that never goes back, by which the next tick becomes due."""
        self._keys = self._logs = 0
        self._left = MAX_ROWS
        now_ns = None if self._tick is None else self._tick[0] + clock_ns - self._tick[1]
        found = [*(yield from self._expiring()), *(yield from self._logs_with_policy())]
        due = [rows for rows in found if is_due(decode_marks(rows.stored), rows.limits, rows.last, now_ns)]
        if due:
            version = (yield Write((), {TICK: b""})).version
            time_ns = yield TimeOf(version)
            if time_ns is None:
                return Swept(0, 0, False)
            self._tick = time_ns, clock_ns
            for rows in due:
                yield from self._sweep(rows, version, time_ns)
        return Swept(self._keys, self._logs, self._left > 0)

    # ---- series

    def _expiring(self) -> Generator[Any, Any, list[Series]]:
        """The times to live that keys were written with."""
        found, (start, end) = list[Series](), EXPIRING.range()
        while rows := (yield Scan(start, end, 1)):
            row = rows[0][0]
            try:
                ttl = ttl_in(row)
            except ValueError:
                start = row + b"\0"
                continue
            limits = Limits(ttl * MS, None)
            found.append((yield from self._with_last(prefix_of(ttl), TTL_MARKS.pack((ttl,)), limits, None)))
            start = max(row, prefix_of(ttl) + b"\xff" * APPENDED_BYTES) + b"\0"
        return found

    def _logs_with_policy(self) -> Generator[Any, Any, list[Series]]:
        """The next named logs with a retention."""
        start, end = POLICIES.range()
        policies = yield Scan(self._next_log, end, LOGS_AT_ONCE)
        self._next_log = policies[-1][0] + b"\0" if len(policies) == LOGS_AT_ONCE else start
        found = []
        for key, stored in policies:
            try:
                (name,) = POLICIES.unpack(key)
                layout, retention = Layout(name), Retention.decode(stored)  # type: ignore[arg-type]
            except (TypeError, ValueError):
                continue
            limits = Limits(None if retention.age_ms is None else retention.age_ms * MS, retention.size_bytes)
            found.append((yield from self._with_last(layout.entries, layout.marks, limits, (layout, stored))))
        return [rows for rows in found if rows.last > NO_MARK]

    def _with_last(
        self, prefix: bytes, marks: bytes, limits: Limits, log: tuple[Layout, bytes] | None
    ) -> Generator[Any, Any, Series]:
        stored = yield Scan(marks, marks + b"\0", 1)
        rows = Series(prefix, marks, stored[0][1] if stored else None, limits, NO_MARK, log)
        last = yield Scan(*rows.rows, 1, True)
        return rows._replace(last=place_in(last[0][0], prefix)) if last else rows

    # ---- marking and deleting

    def _sweep(self, rows: Series, version: int, time_ns: int) -> Generator[Any, Any, None]:
        """Mark the new rows, and delete those that have expired at the time of the tick at `version`."""
        marks = decode_marks(rows.stored)
        if marks and marks[-1].place > end_of(version):
            marks = []  # of another database with later versions, whose rows were restored here
        if rows.last > (marks[-1].place if marks else NO_MARK):
            if rows.limits.size_bytes is None:
                marks = with_mark(marks, Mark(end_of(version), time_ns, 0), rows.limits)
            else:
                marks = yield from self._counted(rows, marks, version, time_ns)
        count = expired(marks, rows.limits, time_ns)
        if rows.log is None:
            if count and not (yield from self._delete_keys(rows.prefix, marks[count - 1].place)):
                count = 0
            deletes = []
        else:
            deletes = (yield from self._entries_before(rows.log[0], marks[count - 1].place)) if count else []
        value = encode_marks(marks[count:]) or None
        if value != rows.stored:
            done = yield Write(rows.unchanged, {rows.marks: value}, deletes)
            self._logs += bool(deletes) and not done.failed

    def _counted(self, rows: Series, marks: list[Mark], version: int, time_ns: int) -> Generator[Any, Any, list[Mark]]:
        """The marks with the sizes of the entries since the last one, as far as the bound of the sweep allows."""
        assert rows.limits.size_bytes is not None
        part = rows.limits.size_bytes / PARTS
        while self._left > 0:
            start = rows.prefix + (marks[-1].place + b"\0" if marks else b"")
            page = yield Scan(start, rows.up_to(end_of(version))[1], min(ENTRIES_AT_ONCE, self._left), whole=False)
            self._left -= len(page)
            size = 0
            for key, value in page:
                size += value.length if isinstance(value, Place) else len(value)
                if size >= part:
                    marks, size = with_mark(marks, Mark(place_in(key, rows.prefix), time_ns, size), rows.limits), 0
            if self._left > 0 and len(page) < ENTRIES_AT_ONCE:
                return with_mark(marks, Mark(end_of(version), time_ns, size), rows.limits)
            if size:
                marks = with_mark(marks, Mark(place_in(page[-1][0], rows.prefix), time_ns, size), rows.limits)
        return marks

    def _delete_keys(self, prefix: bytes, place: bytes) -> Generator[Any, Any, bool]:
        """Delete the keys that the rows up to a place name, unless they were written since. Returns whether that is all
        of them."""
        start, end = prefix, prefix + place + b"\0"
        while self._left > 0:
            found = yield Scan(start, end, min(KEYS_AT_ONCE, self._left))
            if not found:
                return True
            page = list(_up_to_bytes(found))
            self._left -= len(page)
            done = start, page[-1][0] + b"\0"
            wanted = {key: version_in(row, prefix) for row, key in page if 0 < len(key) <= MAX_KEY_BYTES}
            while True:
                conditions = [version_equals(*which) for which in wanted.items()]
                written = yield Write(conditions, dict.fromkeys(wanted), [done])
                if not written.failed:
                    break
                for at in written.failed:
                    del wanted[conditions[at].key]
            self._keys += len(wanted)
            start = done[1]
        return False

    def _entries_before(self, layout: Layout, place: bytes) -> Generator[Any, Any, list[Range]]:
        """The ranges of the entries up to a place, and of the transaction ids that no longer have entries: all but the
        last one up to there, which is found by bisection, since ids are in the order of versions (`layout.py`)."""
        deletes: list[Range] = [(layout.entries, layout.entries + place + b"\0")]
        end = layout.id_range[1]
        last_version = int.from_bytes(place[:VERSION_BYTES]) - (place != end_of(int.from_bytes(place[:VERSION_BYTES])))
        low, high = 0, 1 << 8 * ID_BYTES
        while low < high:  # the id before `low` has a row up to `last_version`; the first row from `high` on has not
            middle = (low + high) // 2
            found = yield Scan(layout.id_key(middle), end, 1)
            if found and self._version_of_id(layout, found[0][0]) <= last_version:
                low = layout.id_of(found[0][0]) + 1
            else:
                high = middle
        if low:
            behind = layout.id_key(low - 1) + (last_version + 1).to_bytes(VERSION_BYTES)
            last = yield Scan(layout.ids, behind, 1, True)
            if last:
                deletes.append((layout.ids, last[0][0]))
        return deletes

    @staticmethod
    def _version_of_id(layout: Layout, row: bytes) -> int:
        return version_in(row, layout.ids + bytes(ID_BYTES))


def _up_to_bytes(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The first rows that have less than `BYTES_AT_ONCE`, at least one."""
    size = 0
    for row, key in rows:
        size += len(key)
        if size > BYTES_AT_ONCE and size > len(key):
            return
        yield row, key


class Host(Protocol):
    """A database that a thread sweeps: a `Backend`."""

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterable[Rows]: ...
    def write(
        self,
        writes: Mapping[bytes, bytes | None],
        label: str = "",
        conditions: Sequence[Condition] = (),
        deletes: Sequence[Range] = (),
    ) -> tuple[int, Any]: ...
    def time_of(self, version: int) -> int | None: ...


def answer_to(host: Host, request: Scan | Write | TimeOf) -> Any:
    """The answer to a request of a sweep. Raises as `Database.sweep`."""
    if isinstance(request, Scan):
        batches = host.scan(request.start, request.end, reverse=request.reverse, limit=request.limit)
        return list(islice((row for batch in batches for row in batch), request.limit))
    if isinstance(request, Write):
        version, verdict = host.write(request.writes, LABEL, request.conditions, request.deletes)
        return Written(version, verdict.failed)
    return host.time_of(request.version)


def carry_out(host: Host, steps: Steps) -> Swept:
    """Carry out a sweep in this thread. Raises as `Database.sweep`."""
    answer = None
    while True:
        try:
            answer = answer_to(host, steps.send(answer))
        except StopIteration as ended:
            swept: Swept = ended.value
            return swept
