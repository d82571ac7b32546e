"""Checking every byte of a database directory: the log by its checksums, the checkpoint against the log.

The checkpoint is checked in a process of its own, since LMDB may crash on damaged pages.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from logdb.embedded.aside import replayed_aside
from logdb.embedded.directory import Directory
from logdb.errors import Corruption, LogDBError, Unavailable, shown
from logdb.log import LocalLog
from logdb.log.segments.disk import described
from logdb.store.checkpoint import GONE, LARGE, LIVE, Checkpoint, Row, check_tables
from logdb.store.records import (
    COMMIT,
    COMPACTION,
    DECISION,
    PIN,
    RELOCATION,
    VALUE,
    MalformedRecord,
    Value,
    decode_commit,
    decode_compaction,
    decode_decision,
    decode_pin,
    decode_relocation,
)
from logdb.txn.coordinator import Coordinator

MOST_DAMAGE = 100
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
"""How a process ends that has read damaged pages; of any other signal they are not the cause."""
_DECODERS: dict[int, Callable[[bytes], object]] = {
    COMMIT: decode_commit,
    VALUE: len,
    DECISION: decode_decision,
    RELOCATION: decode_relocation,
    COMPACTION: decode_compaction,
    PIN: decode_pin,
}


def verify_files(
    path: Path, progress: Callable[[int, int], None] | None
) -> tuple[int, int, int, list[Corruption]]:
    """(bytes checked, records, keys in the checkpoint, damage). Raises NotADatabase, UnsupportedFormat, Unavailable."""
    damage: list[Corruption] = []
    try:
        directory = Directory.open(path, writable=False)
    except Corruption as error:
        return 0, 0, 0, [error]
    log_bytes = sum(file.stat().st_size for file in directory.log_path.glob("*") if file.is_file())
    map_bytes = sum(file.stat().st_size for file in directory.map_path.glob("data.mdb"))
    checked = records = keys = 0
    try:
        log = LocalLog(directory.log_path, directory.log_id, writable=False, follow=directory.is_written())
    except Corruption as error:
        return 0, 0, 0, [error]
    try:
        log.refresh()
        for size, found in log.store.check():
            checked += size
            records += 1
            if found is not None and len(damage) < MOST_DAMAGE:
                damage.append(found)
            if progress is not None:
                progress(min(checked, log_bytes), log_bytes + map_bytes)
        if not damage:
            damage.extend(_malformed(log))
    finally:
        log.close()
    if not damage and directory.map_path.exists():
        try:
            if not directory.is_written():
                check_tables(directory.map_path, all_of_it=True)
            keys, damage = _checkpoint_aside(path, directory.map_path)
        except Corruption as found:
            damage = [found]
    if progress is not None:
        progress(log_bytes + map_bytes, log_bytes + map_bytes)
    return checked + map_bytes, records, keys, damage


def _malformed(log: LocalLog) -> Iterator[Corruption]:
    """Records whose checksum is right and whose payload makes no sense."""
    for record in log.scan(log.left_by_trim(log.oldest()), log.durable + 1):
        try:
            _DECODERS[record.tag](record.payload)
        except (KeyError, MalformedRecord) as error:
            what = f"record {record.lsn} of kind {record.tag} cannot be decoded ({error})"
            ((file, _, _),) = log.store.files(record.lsn, record.lsn + 1)
            yield Corruption(file, None, what)


def _checkpoint_aside(path: Path, map_path: Path) -> tuple[int, list[Corruption]]:
    """(keys, damage) of the checkpoint. Raises Unavailable if it could not be looked at.

    The process imports this very LogDB, and nothing from the current directory (-P).
    """
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
    command = [sys.executable, "-P", "-m", __name__, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    except OSError as error:
        raise _not_checked(map_path, f"no process could be started for it: {described(error)}") from error
    if -done.returncode in CRASHES:
        crash = signal.strsignal(-done.returncode)
        return 0, [Corruption(map_path, None, f"LMDB crashes on it ({crash}); rebuild it from the log")]
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().splitlines()[-1:] or [f"its process ended with status {done.returncode}"]
        raise _not_checked(map_path, last[0]) from None
    if answer["failed"]:
        raise _not_checked(map_path, answer["failed"])
    return answer["keys"], [Corruption(map_path, None, what) for what in answer["damage"]]


def _not_checked(map_path: Path, why: str) -> Unavailable:
    return Unavailable(f"the checkpoint in {map_path} could not be checked, which says nothing about it: {why}")


def check_checkpoint(path: Path) -> tuple[int, list[str]]:
    """(keys, what differs) between the checkpoint and a replay of the log up to what it covers."""
    directory = Directory.open(path, writable=False)
    log = LocalLog(directory.log_path, directory.log_id, writable=False, follow=directory.is_written())
    try:
        log.refresh()
        checkpoint = Checkpoint(directory.map_path, directory.log_id, follow=True)
        try:
            if checkpoint.covers > log.refresh():
                return 0, [f"it covers record {checkpoint.covers}, the log ends at {log.durable}; rebuild it"]
            with replayed_aside(log, directory.log_id, checkpoint.covers) as expected:
                return _compare(checkpoint, expected)
        finally:
            checkpoint.close()
    finally:
        log.close()


def _compare(checkpoint: Checkpoint, expected: Coordinator) -> tuple[int, list[str]]:
    assert expected.map.checkpoint is not None
    covers, floor = checkpoint.covers, expected.floor
    keys, damage = 0, []
    pairs = zip_longest(
        _readable(checkpoint, covers, floor), _readable(expected.map.checkpoint, covers, floor), fillvalue=None
    )
    for found, wanted in pairs:
        keys += 1
        if not _alike(found, wanted):
            key = min(side[0] for side in (found, wanted) if side is not None)
            # No further: the two walks above still hold the readers that anything else would need.
            return keys, [f"key {shown(key)} is not what the log says (and perhaps others after it); rebuild it"]
    restored = Coordinator(expected.map)
    restored.restore(covers, checkpoint.state)
    for name in ("floor", "pins", "decided_through", "compacted_at"):
        if getattr(restored, name) != getattr(expected, name):
            found, wanted = getattr(restored, name), getattr(expected, name)
            damage.append(f"its {name} is {found}, the log says {wanted}; rebuild it")
    if not restored.ledger.equals(expected.ledger):
        damage.append("its index of transactions is not what the log says; rebuild it")
    return keys, damage


Versions = tuple[bytes, list[tuple[int, int, Value]]]
"""A key, and of each version: itself, its kind, and its value where the row holds it."""


def _alike(found: Versions | None, wanted: Versions | None) -> bool:
    """A live value that only one side holds (a slice under way has put a newer row before it) is the log's to check."""
    if found is None or wanted is None or found[0] != wanted[0] or len(found[1]) != len(wanted[1]):
        return False
    return all(
        a[:2] == b[:2] and (a[2] == b[2] or (a[1] == LIVE and None in (a[2], b[2])))
        for a, b in zip(found[1], wanted[1], strict=True)
    )


def _readable(checkpoint: Checkpoint, covers: int, floor: int) -> Iterator[Versions]:
    """(key, its versions that a read from `floor` to `covers` can see): slices under way and unpruned rows left out."""
    for key, rows in checkpoint.everything():
        seen: list[tuple[int, int, Value]] = []
        for position, row in enumerate(rows):
            if row.version > covers:
                continue
            if row.version <= floor and row.kind == GONE:
                break
            seen.append((row.version, row.kind, _comparable(row) if position == 0 or row.kind == LARGE else None))
            if row.version <= floor:
                break
        if seen:
            yield key, seen


def _comparable(row: Row) -> Value:
    return row.value._replace(gsn=0) if isinstance(row.value, tuple) else row.value


if __name__ == "__main__":
    found_damage: list[str] = []
    found_keys, failed = 0, ""
    try:
        found_keys, found_damage = check_checkpoint(Path(sys.argv[1]))
    except Unavailable as error:
        failed = str(error)
    except (OSError, MemoryError) as error:
        failed = described(error) if isinstance(error, OSError) else "there is not enough memory"
    except Exception as error:  # whatever bytes that make no sense lead to
        found_damage = [str(error) if isinstance(error, LogDBError) else f"{error!r}; rebuild it"]
    print(json.dumps({"keys": found_keys, "damage": found_damage, "failed": failed}))
