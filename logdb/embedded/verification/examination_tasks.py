"""The tasks of an examination (`examination.py`): reading segments and the map, and taking a partition of the keys.

Run as a program, it is a worker process that carries out tasks.
"""

from __future__ import annotations

import gc
import marshal
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from logdb.embedded.verification.spills import Part, Plain, Read, Spill, Tested, placed, plain, spilled
from logdb.embedded.verification.workers import Answer, OnAnswer, serve
from logdb.errors import Corruption, LogDBError, Unavailable
from logdb.log.contract import LogRecord
from logdb.log.segments.segment import Segment
from logdb.store.checkpoint import LARGE, LIVE, TOMBSTONE, Checkpoint
from logdb.store.conditions import holds
from logdb.store.key_map import KeyMap
from logdb.store.range_deletions import RangeDeletions, RangeIndex
from logdb.store.records import (
    COMMIT,
    COMPACTION,
    DECISION,
    PIN,
    RELOCATION,
    VALUE,
    Commit,
    Condition,
    DeletedRange,
    MalformedRecord,
    Place,
    Range,
    decode_commit,
    decode_compaction,
    decode_decision,
    decode_pin,
    decode_put,
    decode_relocation,
)
from logdb.store.values import Values
from logdb.system.disk import Disk, described
from logdb.txn.coordinator import Coordinator

REPORT_BYTES: Final = 4 << 20
"""A task reports its progress each time that it has read this number of bytes."""
ITEMS_AT_ONCE: Final = 1_000
"""Number of versions read from the map between two checks of the memory that they take."""
RECENT_KEYS: Final = 50_000
"""Number of keys whose last writers are kept, for transactions that have read ranges."""
_DECODERS: Final[Mapping[int, Callable[[bytes], object]]] = {
    VALUE: len,
    DECISION: decode_decision,
    COMPACTION: decode_compaction,
    PIN: decode_pin,
}


class Plan(NamedTuple):
    """The plan of an examination: records before `end` are checked, those up to `through` examined."""

    scratch: str
    log_id: str
    partitions: int
    end: int
    through: int


class Summary:
    """The contents of a segment beside its keys.

    `runs`: (client, sequence, GSN, count) of commits that follow each other; `others`: (GSN, kind, payload);
    `snapshots`: (GSN, snapshot) of commits that have read; `dangling`: GSNs of commits that refer to values which are
    not before them; `changed`: (GSN, [GSN]) of commits, and of those that changed a range read; `deletes`: the fields
    of `DeletedRange`, of each range that a commit deletes, applied or not.
    """

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.others: list[tuple[int, int, bytes]] = []
        self.snapshots: list[tuple[int, int]] = []
        self.dangling: list[int] = []
        self.changed: list[tuple[int, list[int]]] = []
        self.deletes: list[tuple[int, bytes, bytes | None]] = []

    def save(self, path: Path) -> None:
        path.write_bytes(marshal.dumps(vars(self), 2))

    @classmethod
    def load(cls, path: Path) -> Summary:
        summary = cls()
        vars(summary).update(marshal.loads(path.read_bytes()))
        return summary

    def add_commit(self, client: int, sequence: int, gsn: int) -> None:
        """Add a commit; it follows all that were added."""
        runs = self.runs
        if runs:
            last = runs[-1]
            count = last[3]
            if gsn == last[2] + count and client == last[0] and sequence == last[1] + count:
                last[3] = count + 1
                return
        runs.append([client, sequence, gsn, 1])


class Examiner:
    """Carries out the tasks of one process. `segments`: where each begins, and how to open it; `name`: unique for each
    process."""

    def __init__(self, plan: Plan, segments: Sequence[tuple[int, Callable[[], Segment]]], name: str) -> None:
        self._plan, self._segments = plan, segments
        self._scratch = Path(plan.scratch)
        self._name = name

    # ---- reading

    def segment(self, index: int, progress: OnAnswer) -> Answer:
        """Check each frame of a segment, decode each record, and spill what the commits do."""
        plan, segment = self._plan, self._segments[index][1]()
        summary, spill = Summary(), Spill(self._scratch, f"{self._name}-{index}", plan.partitions)
        writers = _Writers(lambda first, end: self._records(index, first, end))
        size = reported = records = 0
        damage: list[tuple[str, int | None, str]] = []
        for first, bytes_of_batch, batch in segment.check(plan.end):
            size += bytes_of_batch
            if bytes_of_batch:
                records += len(batch)
            for gsn, found in enumerate(batch, first):
                if isinstance(found, Corruption):
                    damage.append((found.path, found.offset, found.what))
                    continue
                tag, payload = found
                if tag == COMMIT and gsn <= plan.through and (put := decode_put(payload)) is not None:
                    client, sequence, key, value = put
                    spill.of(key).written.append((key, gsn, value))
                    summary.add_commit(client, sequence, gsn)
                    if writers.is_used:
                        writers.add(gsn, (key,), ())
                    continue
                try:
                    self._read_record(gsn, tag, payload, summary, spill, writers)
                except Corruption:
                    pass  # of another segment, whose task reports it
                except (KeyError, MalformedRecord) as error:
                    reason = f"record {gsn} of kind {tag} cannot be decoded ({error})"
                    damage.append((str(segment.path), None, reason))
            spill.added(len(batch), bytes_of_batch)
            if size - reported >= REPORT_BYTES:
                progress({"progress": size - reported})
                reported = size
        spill.flush()
        summary.save(summary_path(self._scratch, index))
        progress({"progress": size - reported})
        return {"bytes": size, "records": records, "damage": damage}

    def _read_record(
        self, gsn: int, tag: int, payload: bytes, summary: Summary, spill: Spill, writers: _Writers
    ) -> None:
        if tag == COMMIT:
            commit = decode_commit(payload, gsn)
            if gsn <= self._plan.through:
                self._read_commit(gsn, commit, summary, spill, writers)
        elif tag == RELOCATION:
            entries = decode_relocation(payload)
            if gsn <= self._plan.through:
                for key, version, value in entries:
                    spill.of(key).written.append((key, version, plain(value)))
                spill.added(len(entries), 0)
        else:
            _DECODERS[tag](payload)
            if tag != VALUE and gsn <= self._plan.through:
                summary.others.append((gsn, tag, payload))

    def _read_commit(self, gsn: int, commit: Commit, summary: Summary, spill: Spill, writers: _Writers) -> None:
        client, sequence, writes, snapshot, _, reads, ranges, conditions, deletes, _, _ = commit
        summary.add_commit(client, sequence, gsn)
        for key, value in writes.items():
            if isinstance(value, Place) and not 0 < value.gsn < gsn:
                summary.dangling.append(gsn)
            spill.of(key).written.append((key, gsn, plain(value)))
        if reads or ranges:
            summary.snapshots.append((gsn, snapshot))
            for key in reads:
                spill.of(key).read.append((key, snapshot, gsn))
            if ranges and (changed := writers.changed(ranges, snapshot, gsn)):
                summary.changed.append((gsn, changed))
        for operator, key, operand in conditions:
            of_key = key, gsn, operator, plain(operand) if isinstance(operand, Place) else operand
            spill.of(key).tested.append(of_key)
        summary.deletes += [(gsn, start, end) for start, end in deletes]
        spill.added(len(writes) + len(reads) + len(conditions), 0)
        if writers.is_used:
            writers.add(gsn, tuple(writes), deletes)

    def _records(self, last: int, first: int, end: int) -> Iterator[LogRecord]:
        """Records `first` to `end` - 1 that there are, up to those of the segment `last`."""
        bases = [base for base, _ in self._segments]
        for number in range(max(0, bisect_right(bases, first) - 1), last + 1):
            if bases[number] < end:
                segment = self._segments[number][1]()
                yield from segment.scan(max(first, segment.base), min(end, segment.end))

    def map(self, checkpoint: Checkpoint) -> Answer:
        """Spill the rows of a checkpoint, and save those of its state."""
        spill = Spill(self._scratch, f"{self._name}-map", self._plan.partitions)
        items = size = 0
        for key, rows in checkpoint.everything():
            version, kind, _, value = next(rows)
            found = [(version, kind, plain(value))]
            found += [(version, kind, plain(older) if kind == LARGE else None) for version, kind, _, older in rows]
            spill.of(key).found.append((key, found))
            items += len(found)
            size += len(key) + (len(value) if type(value) is bytes else 64)
            if items >= ITEMS_AT_ONCE:
                spill.added(items, size)
                items = size = 0
        spill.flush()
        state: dict[bytes, list[tuple[bytes, bytes]]] = {}

        def noted(prefix: bytes) -> list[tuple[bytes, bytes]]:
            state[prefix] = checkpoint.state(prefix)
            return state[prefix]

        Coordinator(KeyMap(Values(_refuse), None)).restore(checkpoint.covers, noted)
        state_path(self._scratch).write_bytes(marshal.dumps(state, 2))
        return {}

    # ---- taking a partition

    def partition(self, partition: int, floor: int, trusted: int, compared: bool) -> Answer:
        """The number of keys that the map should have, the first key that differs there, and commits that should have
        aborted.

        `floor`: the oldest version that can be read; `trusted`: commits up to here are not decided again; `compared`:
        whether there is a map. Aborted commits, and ranges deleted by others, are read from files (`aborted_path`,
        `deletions_path`).
        """
        aborted = load_aborted(self._scratch)
        deletions = RangeDeletions(map(DeletedRange._make, marshal.loads(deletions_path(self._scratch).read_bytes())))
        versions: dict[bytes, list[Any]] = {}
        reads: list[Read] = []
        tested: list[Tested] = []
        found: dict[bytes, list[tuple[int, int, Plain]]] = {}
        for part in spilled(self._scratch, partition):
            _gather(part, aborted, versions)
            reads += [read for read in part.read if read[2] > trusted]
            tested += [test for test in part.tested if test[1] > trusted]
            found.update(part.found)
        conflicts, failed = _again(versions, deletions, reads, tested)
        keys, first = 0, None
        if compared:
            keys, first = _compare(found, versions, deletions.at(floor), self._plan.through, floor)
        shown = None if first is None else first.hex()
        return {"keys": keys, "first": shown, "conflicts": conflicts, "conditions": failed}


class _Writers:
    """The keys of recent commits, to find those that changed a range. `records`: the log's records in a range of GSNs.

    `is_used`: set by the first `changed`; before, `add` need not be called.
    """

    def __init__(self, records: Callable[[int, int], Iterator[LogRecord]]) -> None:
        self._records = records
        self._recent: deque[tuple[int, Sequence[bytes], Sequence[Range]]] = deque()
        self._keys = 0
        self.is_used = False

    def add(self, gsn: int, keys: Sequence[bytes], deletes: Sequence[Range]) -> None:
        """Add a commit; it follows all that were added."""
        self._recent.append((gsn, keys, deletes))
        self._keys += len(keys) + len(deletes)
        while self._keys > RECENT_KEYS:
            _, keys, deletes = self._recent.popleft()
            self._keys -= len(keys) + len(deletes)

    def changed(self, ranges: Sequence[Range], snapshot: int, gsn: int) -> list[int]:
        """The commits after `snapshot` and before `gsn` that wrote or deleted keys of the ranges, applied or not."""
        if not self.is_used:
            self._recent.clear()  # left by an earlier attempt that found damage
            self._keys = 0
            for record in self._records(snapshot + 1, gsn):
                if record.tag == COMMIT:
                    commit = decode_commit(record.payload, record.gsn)
                    self.add(record.gsn, tuple(commit.writes), commit.deletes)
            self.is_used = True
        bounds = _joined(ranges)
        starts = [start for start, _ in bounds]

        def touches(keys: Iterable[bytes], deletes: Sequence[Range]) -> bool:
            for start, end in deletes:
                before = len(bounds) if end is None else bisect_left(starts, end)
                if before and ((high := bounds[before - 1][1]) is None or high > start):
                    return True
            for key in keys:
                at = bisect_right(starts, key) - 1
                if at >= 0 and ((end := bounds[at][1]) is None or key < end):
                    return True
            return False

        first = self._recent[0][0] if self._recent else gsn
        found = []
        if snapshot + 1 < first:
            for record in self._records(snapshot + 1, first):
                if record.tag == COMMIT:
                    commit = decode_commit(record.payload, record.gsn)
                    if touches(commit.writes, commit.deletes):
                        found.append(record.gsn)
        for written, keys, deletes in reversed(self._recent):
            if written <= snapshot:
                break
            if touches(keys, deletes):
                found.append(written)
        return found


def _joined(ranges: Sequence[Range]) -> list[Range]:
    """The same keys in ranges that do not overlap, in order."""
    joined: list[Range] = []
    for start, end in sorted(ranges, key=lambda range_: range_[0]):
        if joined and ((known := joined[-1][1]) is None or known >= start):
            if known is not None and (end is None or end > known):
                joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined


def _gather(part: Part, aborted: set[int], versions: dict[bytes, list[Any]]) -> None:
    """Add the applied writes to `versions`: key -> [version, value, version, value, ...] in no order."""
    for key, version, value in part.written:
        if version in aborted:
            continue
        chain = versions.get(key)
        if chain is None:
            versions[key] = [version, value]
        else:
            chain += (version, value)


def _again(
    versions: Mapping[bytes, list[Any]], deletions: RangeDeletions, reads: Sequence[Read], tested: Sequence[Tested]
) -> tuple[list[int], list[int]]:
    """(GSNs of the commits that read a key which had changed, GSNs of those with a condition that did not hold)."""
    conflicts, failed = [], []
    in_order: dict[bytes, tuple[list[int], Mapping[int, Plain]]] = {}

    def history(key: bytes) -> tuple[list[int], Mapping[int, Plain]]:
        known = in_order.get(key)
        if known is None:
            chain = versions.get(key, [])
            values = {deleted.version: None for deleted in deletions if deleted.has(key)}
            values.update(zip(chain[::2], chain[1::2], strict=True))
            known = in_order[key] = sorted(values), values
        return known

    for key, snapshot, gsn in reads:
        written, _ = history(key)
        if bisect_right(written, snapshot) < bisect_left(written, gsn):
            conflicts.append(gsn)
    for key, gsn, operator, operand in tested:
        written, values = history(key)
        at = bisect_left(written, gsn)
        version, value = (written[at - 1], placed(values[written[at - 1]])) if at else (0, None)
        condition = Condition(operator, key, placed(operand) if type(operand) is tuple else operand)
        if not holds(condition, version, value):
            failed.append(gsn)
    return conflicts, failed


def _compare(
    found: dict[bytes, list[tuple[int, int, Plain]]],
    versions: Mapping[bytes, list[Any]],
    deleted: RangeIndex,
    covers: int,
    floor: int,
) -> tuple[int, bytes | None]:
    """(number of keys in the log or the map, the first key that differs). Removes the keys of `versions`
    from `found`. `deleted`: the range deletes up to the floor."""
    keys, first = 0, None
    for key, chain in versions.items():
        rows = found.pop(key, ())
        if len(rows) == 1 and len(chain) == 2 and rows[0][2] is not None and rows[0][0] <= covers:
            version, _, value = rows[0]  # most keys: one version, and its value is in the map
            is_right, is_there = version == chain[0] and value == chain[1], True
        else:
            before = deleted.newest(key)
            wanted = _readable(_rows_of(chain), covers, floor, before)
            seen = _readable(rows, covers, floor, before)
            is_right, is_there = _alike(seen, wanted), bool(wanted or seen)
        keys += is_there
        if not is_right and (first is None or key < first):
            first = key
    for key, rows in found.items():
        if _readable(rows, covers, floor, deleted.newest(key)):
            keys += 1
            first = key if first is None else min(first, key)
    return keys, first


def _rows_of(chain: Sequence[Any]) -> list[tuple[int, int, Plain]]:
    """The versions, newest first; a copied version counts once."""
    values: dict[int, Plain] = dict(zip(chain[::2], chain[1::2], strict=True))
    return [(version, _kind(value := values[version]), value) for version in sorted(values, reverse=True)]


def _readable(
    rows: Sequence[tuple[int, int, Plain]], covers: int, floor: int, deleted: int
) -> list[tuple[int, int, Plain]]:
    """The versions that a read from `floor` to `covers` can see: slices under way and unpruned rows left out, also
    those before `deleted`, the newest range delete up to the floor."""
    seen = []
    for row in rows:
        version, kind, _ = row
        if version > covers:
            continue
        if version <= floor:
            if kind != TOMBSTONE and version >= deleted:
                seen.append(row)
            break
        seen.append(row)
    return seen


def _alike(found: Sequence[tuple[int, int, Plain]], expected: Sequence[tuple[int, int, Plain]]) -> bool:
    """Whether versions of the map are those of the log. A live value that the map does not have is not compared."""
    if len(found) != len(expected):
        return False
    for (version, kind, value), right in zip(found, expected, strict=True):
        if version != right[0] or kind != right[1] or (value != right[2] and not (value is None and kind == LIVE)):
            return False
    return True


def _kind(value: Plain) -> int:
    if value is None:
        return TOMBSTONE
    return LIVE if type(value) is bytes else LARGE


def _refuse(gsn: int, shard: int) -> LogRecord:
    raise AssertionError(f"record {gsn} is not needed")


def summary_path(scratch: Path, index: int) -> Path:
    """The file of the summary of a segment."""
    return scratch / f"summary-{index}"


def state_path(scratch: Path) -> Path:
    """The file of the state rows of the checkpoint, by prefix."""
    return scratch / "state"


def aborted_path(scratch: Path) -> Path:
    """The file of the GSNs of the commits that are claimed to have aborted."""
    return scratch / "aborted"


def deletions_path(scratch: Path) -> Path:
    """The file of the range deletes that are claimed to have been applied, as the fields of `DeletedRange`."""
    return scratch / "deletions"


def load_aborted(scratch: Path) -> set[int]:
    """The GSNs in the file `aborted_path`."""
    return set(marshal.loads(aborted_path(scratch).read_bytes()))


# ---- a process of its own


class _Process:
    """Carries out tasks: "open" a checkpoint, "begin" with a plan, then "map", "segment", "partition"."""

    def __init__(self) -> None:
        self._checkpoint: Checkpoint | None = None
        self._opened: dict[int, Segment] = {}

    def do(self, task: Mapping[str, Any], send: OnAnswer) -> Answer:
        kind = task["task"]
        try:
            if kind == "open":
                return self._open(task)
            if kind == "begin":
                return self._begin(task)
            if kind == "map":
                assert self._checkpoint is not None
                return self._examiner.map(self._checkpoint)
            if kind == "segment":
                return self._examiner.segment(task["index"], send)
            return self._examiner.partition(task["partition"], task["floor"], task["trusted"], task["compared"])
        except Unavailable as error:
            return {"failed": str(error)}
        except (OSError, MemoryError) as error:
            return {"failed": described(error) if isinstance(error, OSError) else "there is not enough memory"}
        except Exception as error:  # damaged bytes may raise any exception
            return {"broken": str(error) if isinstance(error, LogDBError) else f"{error!r}; rebuild it"}

    def _open(self, task: Mapping[str, Any]) -> Answer:
        self._checkpoint = Checkpoint(Path(task["map"]), bytes.fromhex(task["log_id"]), follow=True)
        return {"covers": self._checkpoint.covers}

    def _begin(self, task: Mapping[str, Any]) -> Answer:
        plan, disk = Plan(**task["plan"]), Disk()
        log_id = bytes.fromhex(plan.log_id)

        def opener(number: int, path: Path, fd: int) -> Callable[[], Segment]:
            def opened() -> Segment:
                segment = self._opened.get(number)
                if segment is None:
                    segment = Segment.of(fd if fd >= 0 else disk.open(path, writable=False), path, log_id, disk)
                    segment.walk(plan.end)
                    self._opened[number] = segment
                return segment

            return opened

        segments = [
            (int(Path(path).stem), opener(number, Path(path), fd)) for number, (path, fd) in enumerate(task["segments"])
        ]
        self._examiner = Examiner(plan, segments, task["name"])
        return {}


if __name__ == "__main__":
    gc.disable()  # nothing here refers to itself, and a partition has many objects
    serve(_Process().do)
