"""Checking every byte of a database directory: the log by its checksums, the checkpoint against the log.

A separate process reads the checkpoint, since LMDB may crash on damaged pages.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from logdb.embedded.directory import Directory
from logdb.embedded.verification.examination import Decided, Examination
from logdb.embedded.verification.workers import Answer, Worker, WorkerEnded
from logdb.errors import Corruption, Unavailable, shown
from logdb.log.local.local_log import LocalLog
from logdb.store.checkpoint import check_tables
from logdb.store.key_map import KeyMap
from logdb.store.records import DeletedRange
from logdb.store.values import Values
from logdb.system.directories import size_of
from logdb.system.disk import described
from logdb.txn.coordinator import Coordinator

MAX_DAMAGE = 100
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
"""Signals that end a process that has read damaged pages; other signals have other causes."""


def verify_files(path: Path, progress: Callable[[int, int], None] | None) -> tuple[int, int, int, list[Corruption]]:
    """(bytes checked, records, keys in the checkpoint, damage). Raises NotADatabase, UnsupportedFormat, Unavailable."""
    try:
        directory = Directory.open(path, writable=False)
    except Corruption as error:
        return 0, 0, 0, [error]
    log_bytes, map_bytes = size_of(directory.log_path), size_of(directory.map_path, "run-")
    try:
        log = LocalLog(directory.log_path, directory.log_id, writable=False, follow=directory.is_written())
    except Corruption as error:
        return 0, 0, 0, [error]

    done, total = 0, log_bytes + map_bytes

    def read(size: int) -> None:
        nonlocal done
        done = min(done + size, log_bytes)
        if progress is not None:
            progress(done, total)

    def compared(partitions: int, of_all: int) -> None:
        if progress is not None:
            progress(log_bytes + map_bytes * partitions // of_all, total)

    try:
        log.refresh()
        with Examination(log, directory.log_id, total) as examination:
            of_map = _Map(directory, examination) if directory.map_path.exists() else None
            if of_map is not None and of_map.covers > log.refresh():
                of_map.add_damage(f"it covers record {of_map.covers}, the log ends at {log.durable}; rebuild it")
            maps = of_map is not None and not of_map.damage
            covers = of_map.covers if of_map is not None and maps else 0
            checked, records, damage, answer = examination.read(covers, read, maps=maps)
            keys = 0
            if not damage and of_map is not None:
                if maps and of_map.is_read(answer):
                    restored = Coordinator(KeyMap(Values(log.read_record), None))
                    restored.restore(covers, examination.state().__getitem__)
                    aborted = restored.ledger.aborted
                    decided, keys, first = examination.decide(aborted, restored.floor, compared, maps=True)
                    of_map.compare(restored, decided, first)
                damage = of_map.damage
    finally:
        log.close()
    if progress is not None:
        progress(total, total)
    return checked + map_bytes, records, keys, damage[:MAX_DAMAGE]


def _deletions(coordinator: Coordinator) -> list[DeletedRange]:
    """The range deletes that a read from the floor on can see: a map may have dropped earlier ones."""
    deletions = coordinator.map.deletions
    return [] if deletions is None else [deleted for deleted in deletions if deleted.version > coordinator.floor]


class _Map:
    """The checkpoint, opened by a process of its own, and its damage. Raises Unavailable if it cannot be checked.
    `covers`: 0 if damage prevents opening it."""

    def __init__(self, directory: Directory, examination: Examination) -> None:
        self._path, self.covers = directory.map_path, 0
        self.damage: list[Corruption] = []
        try:
            check_tables(directory.map_path, ignore_note=True)
        except Corruption as found:
            self.damage = [found]
            return
        try:
            worker = examination.start_worker()
        except OSError as error:
            raise self._not_checked(f"no process could be started for it: {described(error)}") from error
        answer = self._answer(worker, {"task": "open", "map": str(self._path), "log_id": directory.log_id.hex()})
        if self.is_read(answer) and isinstance(answer, dict):
            self.covers = answer["covers"]

    def _answer(self, worker: Worker, task: Answer) -> Answer | Exception:
        try:
            return worker.do(task, lambda _: None)
        except WorkerEnded as error:
            return error

    def add_damage(self, problem: str) -> None:
        """Report damage of the checkpoint."""
        self.damage.append(Corruption(self._path, None, problem))

    def is_read(self, answer: Answer | Exception) -> bool:
        """Whether the process could read the checkpoint. Raises Unavailable if it failed for another reason than
        damage."""
        if isinstance(answer, WorkerEnded):
            if -answer.status not in CRASHES:
                raise self._not_checked(str(answer))
            self.add_damage(f"LMDB crashes on it ({signal.strsignal(-answer.status)}); rebuild it from the log")
        elif isinstance(answer, Exception):
            raise answer
        elif "failed" in answer:
            raise self._not_checked(answer["failed"])
        elif "broken" in answer:
            self.add_damage(answer["broken"])
        return not self.damage

    def compare(self, restored: Coordinator, decided: Decided, first: bytes | None) -> None:
        """Compare the checkpoint with the log. `first`: the first key that differs from the log."""
        expected = decided.coordinator
        is_right = restored.ledger.equals(expected.ledger)
        if first is not None and is_right:
            self.add_damage(f"key {shown(first)} is not what the log says (and perhaps others after it); rebuild it")
            return
        for name in ("floor", "pins", "decided_through", "compacted_at"):
            if getattr(restored, name) != getattr(expected, name):
                found, right = getattr(restored, name), getattr(expected, name)
                self.add_damage(f"its {name} is {found}, the log says {right}; rebuild it")
        if _deletions(restored) != _deletions(expected):
            self.add_damage("its deleted ranges are not what the log says; rebuild it")
        if not is_right:
            self.add_damage("its index of transactions is not what the log says; rebuild it")

    def _not_checked(self, reason: str) -> Unavailable:
        return Unavailable(
            f"the checkpoint in {self._path} could not be checked, which says nothing about it: {reason}"
        )
