"""Reads of versions before the floor, from the segments of a cluster's cold tier (PROTOCOL.md, "The cold tier").

A view is the fold of the segments from the first one on, in a map of its own: it has every version of a window of
segments. It is made by the first read that needs it, and later reads extend it. Versions that only reads before
the window could see are removed, so its size is that of the rows and of a window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from logdb.cluster.mapping_server.query_executor import Budget, answer_from
from logdb.cluster.messages import (
    COLD_SHARD,
    AtTime,
    ColdCommit,
    ColdCommits,
    ColdValue,
    CommitPage,
    Floor,
    History,
    NotReadable,
    Oldest,
    Result,
    ValuePart,
    Version,
    VersionReply,
    Versions,
    VersionTrimmedReply,
)
from logdb.cores.effects import Recall, Recalled
from logdb.errors import ColdTierError, Corruption, LogDBError
from logdb.log.contract import LogRecord
from logdb.store.kept_views import KeptViews
from logdb.store.key_map import KeyMap
from logdb.store.limits import INLINE_VALUE_BYTES
from logdb.store.records import (
    COMMIT,
    PLACE,
    Commit,
    Place,
    Relocated,
    Value,
    decode_commit,
    decode_relocation,
    digest,
    encode_commit,
)

VIEWS_BYTES: Final = 512 << 20
"""Maximum size of the views that are kept, unless they are few."""
WINDOW: Final = 64
"""See `ColdReader`."""
RECORD_BYTES: Final = 1 << 20
"""Maximum size of a record in a page of commits."""
CACHED_BYTES: Final = 16 << 20
"""Maximum size of the segments that are kept in memory besides the last one."""


class SegmentHead(NamedTuple):
    """The content of a segment, by its manifest: the fields as of `Archive`. `is_empty`: whether it has no records."""

    log_id: bytes
    since: int
    version: int
    oldest: int
    time: int
    is_empty: bool


class Segments(Protocol):
    """The segments of a cold tier, by number from 1. Every method raises Corruption, Unavailable, ColdTierError."""

    def location(self) -> str:
        """The address of the tier, for people."""

    def head(self, number: int) -> SegmentHead:
        """The manifest of a segment."""

    def records(self, number: int) -> Iterable[LogRecord]:
        """The content of a segment, as it was written."""


class ViewMap(Protocol):
    """A map for a view. `key_map`: empty at first."""

    key_map: KeyMap

    @property
    def size_bytes(self) -> int: ...

    def rest(self) -> None:
        """Called between two records: may move changes out of memory, let other threads run, and raise Unavailable."""

    def prune(self, floor: int) -> None:
        """Remove the versions that only reads before `floor` could see; all versions are older or that one."""

    def close(self) -> None:
        """Remove it."""


class Content(NamedTuple):
    """The content of a segment: rows of the first version, then commits as (version, time, commit). Large values are
    places in it, and `values` has them by digest. `large`: by version, the place of a record of more than
    `RECORD_BYTES`, which `values` has, too."""

    rows: list[Relocated]
    commits: list[tuple[int, int, Commit]]
    values: dict[bytes, bytes]
    large: dict[int, Place]
    size: int


class ColdView:
    """The versions from `floor` up to segment `folded`, of which `map` has each."""

    def __init__(self, made: ViewMap, floor: int) -> None:
        self.users = self.folded = 0
        self.floor = floor
        self.map, self._made = made.key_map, made
        self.is_broken = False

    @property
    def size_bytes(self) -> int:
        return self._made.size_bytes

    def fold(self, content: Content) -> None:
        """Add the next segment."""
        self.is_broken = True  # until all of it is there
        for key, version, value in content.rows:
            self.map.insert(key, version, value, 0)
            self._made.rest()
        for version, _, commit in content.commits:
            self.map.apply(version, commit.writes, commit.deletes)
            self._made.rest()
        self.is_broken = False
        self.folded += 1

    def begin_window(self, floor: int) -> None:
        """Have no versions before the newest one."""
        self.is_broken = True
        self._made.prune(floor)
        self.floor, self.is_broken = floor, False

    def close(self) -> None:
        """Remove the map."""
        self._made.close()


class ColdReader:
    """Answers reads from a tier, one at a time. `make_map`: makes the map of a view. `window`: the number of segments
    of which a view has every version."""

    def __init__(self, segments: Segments, make_map: Callable[[], ViewMap], window: int = WINDOW) -> None:
        self._segments, self._make_map, self._window = segments, make_map, window
        self._views = KeptViews[ColdView](VIEWS_BYTES)
        self._contents: OrderedDict[int, Content] = OrderedDict()

    def recalled(self, recall: Recall) -> Recalled:
        """The answer to a read; NotReadable if the tier cannot be read now."""
        try:
            self._check(recall)
            version, result = self._answer(recall)
        except Corruption as damage:
            version, result = 0, NotReadable(damage.path, damage.what)
        except LogDBError as error:
            version, result = 0, NotReadable("", f"the cold tier cannot be read: {error}")
        return Recalled(recall.number, version, result)

    def _check(self, recall: Recall) -> None:
        """DBS-21: the segments are those that the log states."""
        head = self._segments.head(recall.segments)
        if (head.log_id, head.version) != (recall.log_id, recall.through):
            raise ColdTierError(
                f"{self._segments.location()} does not have segment {recall.segments} of this cluster: it was moved,"
                " removed or replaced"
            )

    def _answer(self, recall: Recall) -> tuple[int, Result]:
        question, version, oldest = recall.question, recall.version, self._segments.head(1).oldest
        if isinstance(question, Oldest):
            return version, Floor(oldest, 0, 0, 0)
        if isinstance(question, ColdValue):
            return version, self._value(question, recall)
        if isinstance(question, ColdCommits):
            if question.after < oldest:
                return 0, VersionTrimmedReply(oldest)
            return version, self._commits(question.after, recall)
        if isinstance(question, AtTime):
            at = self._at_time(question.time, recall)
            return (0, VersionTrimmedReply(oldest)) if at < oldest else (at, VersionReply())
        if version < oldest:
            if isinstance(question, History):  # the versions before those of an earlier page
                return version, Versions((), False)
            return 0, VersionTrimmedReply(oldest)
        if isinstance(question, Version):
            return version, VersionReply()
        return version, self._from_view(question, version, oldest, recall)

    # ---- views

    def _from_view(self, question: Any, version: int, oldest: int, recall: Recall) -> Result:
        while True:
            result, floor = self._from_window(question, version, oldest, recall)
            if not isinstance(result, Versions) or result.more or floor == oldest:
                return result
            if result.versions:
                return result._replace(more=True)  # the window before has older ones
            version = floor

    def _from_window(self, question: Any, version: int, oldest: int, recall: Recall) -> tuple[Result, int]:
        """The result from the view that has a version, and the oldest version of that view."""
        needed = self._segment_of(version, recall)
        start = (needed - 1) // self._window * self._window
        name = recall.log_id, start
        with self._views.use(name, lambda: ColdView(self._make_map(), oldest)) as view:
            try:
                for number in range(view.folded + 1, needed + 1):
                    self._check_order(number, recall.log_id)
                    view.fold(self._read(number))
                    if number <= start and number % self._window == 0:
                        view.begin_window(max(self._segments.head(number).version, oldest))
            finally:
                if view.is_broken:
                    self._views.drop(name)
            return answer_from(view.map, view.floor, question, version, Budget(recall.max_bytes)), view.floor

    def _check_order(self, number: int, log_id: bytes) -> None:
        """DBS-21: a segment continues the one before it."""
        head = self._segments.head(number)
        before = self._segments.head(number - 1).version if number > 1 else 0
        if (head.log_id, head.since) != (log_id, before):
            raise ColdTierError(f"segment {number} in {self._segments.location()} does not continue the one before it")

    def _segment_of(self, version: int, recall: Recall) -> int:
        """The first segment with which the tier has a version."""
        numbers = range(1, recall.segments + 1)
        return numbers[bisect_left(numbers, version, key=lambda number: self._segments.head(number).version)]

    # ---- commits and values

    def _commits(self, after: int, recall: Recall) -> CommitPage:
        if after >= recall.through:
            return CommitPage((), after + 1, False)
        number = self._segment_of(after + 1, recall)
        self._check_order(number, recall.log_id)
        found, size = list[ColdCommit](), 0
        content = self._read(number)
        for version, time, commit in content.commits:
            if version > after:
                large = content.large.get(version)
                record, place = (encode_commit(commit), b"") if large is None else (b"", PLACE.pack(*large))
                found.append(ColdCommit(version, time, record, place))
                size += len(record) + len(place)
                if size >= recall.max_bytes:
                    return CommitPage(tuple(found), version + 1, version < recall.through)
        reached = self._segments.head(number).version
        return CommitPage(tuple(found), reached + 1, reached < recall.through)

    def _value(self, question: ColdValue, recall: Recall) -> ValuePart:
        number, name, offset = question
        found = self._read(number).values.get(name) if 0 < number <= recall.segments else None
        if found is None:
            raise ColdTierError(f"segment {number} in {self._segments.location()} does not have this value")
        return ValuePart(found[offset : offset + recall.max_bytes])

    def _at_time(self, time: int, recall: Recall) -> int:
        """The last version of the tier with this time (ns since the epoch) or an earlier one; -1 if it begins later."""
        head, oldest = self._segments.head, self._segments.head(1).oldest
        first = self._segment_of(oldest, recall) + 1 if oldest else 1  # rows have the time at which they were copied
        while first < recall.segments and head(first).is_empty:
            first += 1
        numbers = range(first, recall.segments + 1)
        position = bisect_left(numbers, True, key=lambda number: head(number).time > time)
        at = -1 if oldest else 0
        for number in numbers[max(position - 1, 0) : position + 1]:
            for version, written, _ in self._read(number).commits:
                if written <= time:
                    at = version
        return at

    # ---- the content of segments

    def _read(self, number: int) -> Content:
        content = self._contents.get(number)
        if content is None:
            content = self._contents[number] = content_of(number, self._segments.records(number))
            while len(self._contents) > 1 and sum([each.size for each in self._contents.values()]) > CACHED_BYTES:
                self._contents.popitem(last=False)
        self._contents.move_to_end(number)
        return content

    def close(self) -> None:
        """Remove the views."""
        self._views.close()


def content_of(number: int, records: Iterable[LogRecord]) -> Content:
    """The content of segment `number`."""
    content, size = Content([], [], {}, {}, 0), 0

    def place(value: bytes) -> Place:
        place = Place(number, COLD_SHARD, len(value), digest(value))
        content.values[place.digest] = value
        return place

    def placed(value: Value) -> Value:
        return place(value) if isinstance(value, bytes) and len(value) > INLINE_VALUE_BYTES else value

    for record in records:
        size += len(record.payload)
        if record.tag == COMMIT:
            commit = decode_commit(record.payload, record.gsn)
            writes = {key: placed(value) for key, value in commit.writes.items()}
            commit = commit._replace(writes=writes)
            content.commits.append((commit.sequence, record.time, commit))
            if len(record.payload) > RECORD_BYTES and len(encoded := encode_commit(commit)) > RECORD_BYTES:
                content.large[commit.sequence] = place(encoded)
                size += len(encoded)
        else:
            content.rows.extend([row._replace(value=placed(row.value)) for row in decode_relocation(record.payload)])
    return content._replace(size=size)
