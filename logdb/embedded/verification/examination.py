"""Deciding a log again, and comparing a map with it: by partitions of the keys, with a process for each processor.

1. Each segment is read: its frames are checked, its records decoded, and the writes, reads and conditions of commits
   are written to files by partition of the key. So are the rows of the map.
2. Each partition is examined alone: keys that were read and had changed, conditions that failed, and differences
between
   the map and the log. A write counts if its commit is claimed to have been applied.
3. Decisions that depend on the order alone are made here: transaction ids, the floor, pins.

This finds the first wrong decision: a decision follows from the commits before it that were applied. As long as the
claims about those are right, the partitions decide as the log does, so the first wrong claim differs.

Memory: about 150 MB for each process (`spills.PARTITION_BYTES`), the versions of one key, and 100 bytes for each commit
that was not applied. Files: about as large as log and map, in the directory for temporary files.
"""

from __future__ import annotations

import marshal
import os
import shutil
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from logdb.embedded.verification import examination_tasks
from logdb.embedded.verification.examination_tasks import (
    Examiner,
    Plan,
    Summary,
    aborted_path,
    deletions_path,
    state_path,
    summary_path,
)
from logdb.embedded.verification.spills import partitions_for
from logdb.embedded.verification.workers import Answer, Worker, WorkerEnded, do_all
from logdb.errors import Corruption, Unavailable
from logdb.log.contract import LogRecord
from logdb.log.local.local_log import LocalLog
from logdb.log.segments.segment import Segment
from logdb.store.key_map import KeyMap
from logdb.store.records import COMMIT, DECISION, DeletedRange, TxnId, decode_commit, decode_decision
from logdb.store.values import Values
from logdb.txn.coordinator import Coordinator
from logdb.txn.validation import Reason

SMALL_BYTES: Final = 16 << 20
"""A log up to this size is read in this process: starting others would take as long."""
Progress = Callable[[int, int], None]
"""Called with the number of steps done, and of all steps."""


class Decided(NamedTuple):
    """The decisions that follow from the log.

    `coordinator`: its state without a map; `trusted`: the number of commits whose decisions follow from trimmed
    records; `refused`: the reason of each other aborted commit, by GSN; `declared`: the aborted commits of decision
    records up to `declared_through`; `aborted`: all aborted commits.
    """

    coordinator: Coordinator
    commits: int
    trusted: int
    refused: dict[int, Reason]
    declared: set[int]
    declared_through: int
    aborted: set[int]


class Examination:
    """One examination of `log`. Ends its processes and removes its files when it is closed."""

    def __init__(self, log: LocalLog, log_id: bytes, size: int) -> None:
        self._log, self._log_id, self._size = log, log_id, size
        self.workers: list[Worker] = []
        # Not TemporaryDirectory: a child of fork() would also remove it when it ends.
        self._scratch, self._owner = tempfile.mkdtemp(prefix="logdb-"), os.getpid()
        self._files = [(str(segment.path), segment.fileno()) for segment in log.store.segments]
        self._is_small = True

    def __enter__(self) -> Examination:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.end()
        for worker in self.workers:
            worker.close()
        if os.getpid() == self._owner:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def start_worker(self) -> Worker:
        """Start one more process. Raises OSError."""
        worker = Worker(examination_tasks.__name__, [fd for _, fd in self._files])
        self.workers.append(worker)
        return worker

    # ---- reading

    def read(
        self, through: int, progress: Callable[[int], None], *, maps: bool
    ) -> tuple[int, int, list[Corruption], Answer | Exception]:
        """(bytes, records, damage, answer about the map) after reading every segment, and if `maps` the map, by the
        first worker. Records up to `through` are examined, later ones only checked."""
        store = self._log.store
        partitions = partitions_for(self._size)
        self._plan = Plan(self._scratch, self._log_id.hex(), partitions, store.durable_end, through)
        segments = store.segments
        known = dict(self._files)
        files = [(str(segment.path), known.get(str(segment.path), -1)) for segment in segments]
        self._is_small = sum(segment.length for segment in segments) <= SMALL_BYTES
        processors = len(os.sched_getaffinity(0))
        if not self._is_small:
            while len(self.workers) < min(processors, len(segments) + maps):
                self.start_worker()
        for number, worker in enumerate(self.workers):
            begin = {"task": "begin", "plan": self._plan._asdict(), "segments": files, "name": str(number)}
            try:
                self._sound(worker.do(begin, _ignored))
            except WorkerEnded as error:
                self._sound(error)
        self._own = Examiner(self._plan, [(segment.base, partial(_unchanged, segment)) for segment in segments], "own")
        tasks: list[dict[str, Any]] = [{"task": "segment", "index": index} for index in range(len(segments))]
        mapping: list[dict[str, Any]] = [{"task": "map"}] if maps else []

        def on_progress(answer: Answer) -> None:
            progress(answer.get("progress", 0))

        if self._is_small:
            answers: list[Answer | Exception] = [
                self._own.segment(index, on_progress) for index in range(len(segments))
            ]
            answers += do_all(self.workers, mapping, _ignored)
        else:
            answers = do_all(
                self.workers, tasks + mapping, on_progress, first=range(len(tasks), len(tasks) + len(mapping))
            )
        of_map = answers.pop() if maps else {}
        size = records = 0
        watermark = store.damaged_watermark()
        damage = [] if watermark is None else [watermark]
        for answer in map(self._sound, answers):
            size += answer["bytes"]
            records += answer["records"]
            damage += [Corruption(*found) for found in answer["damage"]]
        return size, records, damage, of_map

    def _sound(self, answer: Answer | Exception) -> Answer:
        """The answer, if it is not an error. Raises Unavailable."""
        failure = answer if isinstance(answer, Exception) else answer.get("failed") or answer.get("broken")
        if failure:
            raise Unavailable(f"{self._log.store.segments[0].path.parent} could not be checked: {failure}")
        assert isinstance(answer, dict)
        return answer

    def _summaries(self) -> Iterator[Summary]:
        for index in range(len(self._log.store.segments)):
            path = summary_path(Path(self._scratch), index)
            if path.exists():
                yield Summary.load(path)

    def state(self) -> dict[bytes, list[tuple[bytes, bytes]]]:
        """The state rows of the map, by prefix."""
        rows: dict[bytes, list[tuple[bytes, bytes]]] = marshal.loads(state_path(Path(self._scratch)).read_bytes())
        return rows

    # ---- deciding

    def decide(
        self, aborted: Collection[int], claimed_after: int, progress: Callable[[int, int], None], *, maps: bool
    ) -> tuple[Decided, int, bytes | None]:
        """(the decisions of the log, the number of keys that the map should have, the first key that differs there).

        `aborted`: the commits after `claimed_after` that are claimed to have aborted. Decision records have the earlier
        ones.
        """
        oldest = self._log.oldest_after_trim(self._log.oldest())
        declared: set[int] = set()
        declared_through = 0
        for summary in self._summaries():
            for _, tag, payload in summary.others:
                if tag == DECISION:
                    decision = decode_decision(payload)
                    declared.update(decision.aborted)
                    declared_through = max(declared_through, decision.through)
        trusted = declared_through if oldest > 1 else 0
        claimed_after = max(claimed_after, trusted)
        claimed = {gsn for gsn in declared if gsn <= claimed_after} | {gsn for gsn in aborted if gsn > claimed_after}
        aborted_path(Path(self._scratch)).write_bytes(marshal.dumps(sorted(claimed), 2))
        coordinator, commits, trusted_commits, refused, changed = self._in_order(oldest, trusted)
        coordinator.map.add_deletions(
            DeletedRange(*deleted)
            for summary in self._summaries()
            for deleted in summary.deletes
            if deleted[0] not in claimed
        )
        deletions = list(map(tuple, coordinator.map.deletions or ()))
        deletions_path(Path(self._scratch)).write_bytes(marshal.dumps(deletions, 2))
        keys, first, conflicts, failed = self._partitions(coordinator.floor, trusted, progress, maps=maps)
        for gsn, writers in changed:
            if gsn > trusted and not claimed.issuperset(writers):
                conflicts.add(gsn)
        for gsn in conflicts:
            refused.setdefault(gsn, Reason.CONFLICT)
        for gsn in failed:
            refused.setdefault(gsn, Reason.CONDITION)
        not_applied = refused.keys() | {gsn for gsn in declared if oldest <= gsn <= trusted}
        left = sorted(gsn for gsn in not_applied if gsn >= coordinator.floor)
        coordinator.ledger.aborted = array("Q", left)
        decided = Decided(coordinator, commits, trusted_commits, refused, declared, declared_through, set(not_applied))
        return decided, keys, first

    def _in_order(
        self, oldest: int, trusted: int
    ) -> tuple[Coordinator, int, int, dict[int, Reason], list[tuple[int, list[int]]]]:
        """(the coordinator at the end, the number of commits, of those up to `trusted`, the reasons of aborted ones
        after it, `changed`)."""
        coordinator = Coordinator(KeyMap(Values(_refuse), None))
        coordinator.pass_to(oldest - 1)
        commits = trusted_commits = 0
        refused: dict[int, Reason] = {}
        changed: list[tuple[int, list[int]]] = []
        for summary in self._summaries():
            changed += summary.changed
            refused.update((gsn, Reason.DANGLING) for gsn in summary.dangling if gsn > trusted)
            snapshots = summary.snapshots
            events: list[tuple[int, Any]] = [(run[2], run) for run in summary.runs]
            events += [(gsn, (tag, payload)) for gsn, tag, payload in summary.others]
            events.sort(key=lambda event: event[0])
            looked = 0
            for gsn, event in events:
                if isinstance(event, list):
                    client, sequence, _, count = event
                    commits += count
                    trusted_commits += max(0, min(count, trusted - gsn + 1))
                    for again in coordinator.ledger.used_again(client, sequence, gsn, count):
                        if again > trusted:
                            refused[again] = Reason.DUPLICATE
                    end = bisect_left(snapshots, (gsn + count,), looked)
                    for reader, snapshot in snapshots[looked:end]:
                        if reader > trusted and snapshot < coordinator.floor:
                            refused.setdefault(reader, Reason.TOO_OLD)
                    looked = end
                    coordinator.pass_to(gsn + count - 1)
                else:
                    coordinator.deliver_other(gsn, *event)
        return coordinator, commits, trusted_commits, refused, changed

    def _partitions(
        self, floor: int, trusted: int, progress: Callable[[int, int], None], *, maps: bool
    ) -> tuple[int, bytes | None, set[int], set[int]]:
        count = self._plan.partitions
        keys, first = 0, None
        conflicts: set[int] = set()
        failed: set[int] = set()
        done = 0

        def take(answer: Answer) -> None:
            nonlocal keys, first, done
            keys += answer["keys"]
            if answer["first"] is not None:
                found = bytes.fromhex(answer["first"])
                first = found if first is None else min(first, found)
            conflicts.update(answer["conflicts"])
            failed.update(answer["conditions"])
            done += 1
            progress(done, count)

        if self._is_small:
            for partition in range(count):
                take(self._own.partition(partition, floor, trusted, maps))
        else:
            asked = {"task": "partition", "floor": floor, "trusted": trusted, "compared": maps}
            tasks = [{**asked, "partition": partition} for partition in range(count)]
            for answer in do_all(self.workers, tasks, lambda answer: take(self._sound(answer))):
                self._sound(answer)
        return keys, first, conflicts, failed


def first_difference(
    log: LocalLog, decided: Decided, claims: Sequence[tuple[str, Collection[int], int, int]]
) -> str | None:
    """A description of the first commit that was decided differently; None if there is none. `claims`: (source, aborted
    commits, after and up to which GSN)."""
    oldest = log.oldest_after_trim(log.oldest())
    differing = sorted(
        (gsn, number)
        for number, (_, aborted, after, through) in enumerate(claims)
        for gsn in decided.aborted.symmetric_difference(aborted)
        if max(after + 1, oldest) <= gsn <= through
    )
    for gsn, number in differing:
        record = log.read_record(gsn, 0)
        if record.tag != COMMIT:
            continue
        commit = decode_commit(record.payload, gsn)
        claim = "aborted" if gsn in claims[number][1] else "committed"
        reason = decided.refused.get(gsn, Reason.CONFLICT if gsn in decided.aborted else Reason.COMMITTED)
        return (
            f"transaction {TxnId(commit.client, commit.sequence)} at version {gsn}"
            f"{f' ({commit.label})' if commit.label else ''}: {claims[number][0]} {claim}, "
            f"but the log decides: {reason.value}"
        )
    return None


def _unchanged(segment: Segment) -> Segment:
    return segment


def _ignored(_: Answer) -> None:
    """Progress that is not reported."""


def _refuse(gsn: int, shard: int) -> LogRecord:
    raise AssertionError(f"record {gsn} is not needed")
