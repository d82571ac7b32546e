"""The plan of a snapshot for readers without an open database: the parts of the log that have it, kept from trimming.

`pin` opens the directory read-only beside its writer, which needs no notice, and makes a folder
(`external_leases.py`): hard links to each store file that the snapshot needs and its index, the aborted commits of
each, and `plan.json`. Compaction unlinks files and never changes durable bytes, so a reader of the links sees the
version as it was planned until the plan is closed. A plan whose owner has ended is swept by the next one.

A reader folds the parts: COMMIT records up to `version` that are not in `read_aborted`, and all RELOCATION records,
since a compaction copies versions to the log's end without changing them. Of several copies of a version the last one
counts: its large value has not been trimmed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any, Final, NamedTuple

from google_crc32c import value

from logdb.embedded.aborted import aborted_in
from logdb.embedded.backend import EmbeddedBackend
from logdb.embedded.cold.tier import ColdSegment, ColdTier, segment_name
from logdb.embedded.external_leases import LeaseOwner, make_folder, process_owner, remove_folder, sweep
from logdb.errors import Corruption, NotADatabase, Unavailable
from logdb.log.contract import LogRecord, Trimmed
from logdb.log.local.local_log import LocalLog
from logdb.log.segments.segment import INDEX_SUFFIX
from logdb.store.records import COMMIT, RELOCATION, decode_commit, decode_relocation

PLAN: Final = "plan.json"
FORMAT: Final = 2
CRC: Final = Struct("<I")
"""The CRC32C that ends each file of a plan."""
SAMPLES: Final = 2_000
SAMPLES_OF_A_RECORD: Final = 8
SAMPLED_BYTES: Final = 64 << 20
ATTEMPTS: Final = 20


class SegmentPart(NamedTuple):
    """Records `first` to `end` - 1, all those of one store file that the snapshot needs.

    `link`: the file's name in the plan's folder. `origin`: where the database has, or had, it. `size`: its bytes.
    """

    link: str
    origin: str
    first: int
    end: int
    size: int


class DirectoryPlan(NamedTuple):
    """The snapshot `version` of the database in `path`.

    `since`: the commits after this version are in the plan too, each of them (None: only what is live at `version`).
    `time`: when that version was written, ns since the epoch (None: unknown, it was compacted or is 0). `floor`: the
    oldest version that could be read when it was planned. `sample`: some of its keys, in order, to split it by.
    `process`: the process that has made or loaded it, which alone removes its files.
    """

    path: str
    folder: str
    log_id: bytes
    version: int
    since: int | None
    time: int | None
    floor: int
    parts: tuple[SegmentPart, ...]
    sample: tuple[bytes, ...]
    process: int

    def close(self) -> None:
        """Remove the files. Has no effect the second time, and in a child of fork() that has inherited the plan."""
        if os.getpid() == self.process:
            remove_folder(Path(self.folder))

    def __enter__(self) -> DirectoryPlan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def pin(
    path: Path,
    *,
    version: int | None = None,
    time_ns: int | None = None,
    since: int | None = None,
    owner: LeaseOwner | None = None,
) -> DirectoryPlan:
    """Plan the snapshot at a version or a point in time (default: the newest), and keep its files until it is closed.

    `since`: plan the changes after that version too. `owner`: the process whose end ends the plan (default: this
    process). Raises VersionTrimmed, FutureVersion, NotADatabase, Corruption, Unavailable (the folder cannot be
    made), ValueError (`since` comes after the version).
    """
    path = path.absolute()
    sweep(path)
    for attempt in range(ATTEMPTS):
        try:
            with contextlib.closing(EmbeddedBackend.open(path, read_only=True, create=False)) as host:
                return pin_at(host, version=version, time_ns=time_ns, since=since, owner=owner)
        except (FileNotFoundError, Trimmed):  # a compaction trimmed the log meanwhile: plan again
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def pin_at(
    host: EmbeddedBackend,
    *,
    version: int | None = None,
    time_ns: int | None = None,
    since: int | None = None,
    owner: LeaseOwner | None = None,
) -> DirectoryPlan:
    """As `pin`, of a database that is open. Raises FileNotFoundError and Trimmed, too: open it again, the log has been
    trimmed."""
    if host.directory is not None:
        host.directory.check()

    def plan(at: int) -> DirectoryPlan:
        if since is not None and host.at(since) > at:
            raise ValueError(f"there are no changes after version {since} up to version {at}")
        return _make(host, at, since, owner or process_owner(os.getpid()))

    if version is None and time_ns is None:
        return host.snapshots.at_newest(plan)
    return plan(_resolved(host, version, time_ns))


def read_aborted(folder: Path, part: SegmentPart) -> frozenset[int]:
    """The GSNs of the commit records in a part that were not applied, from the plan's folder. Raises Corruption."""
    return frozenset(array("Q", _checked(folder / f"{part.link}.aborted")))


def load(folder: Path) -> DirectoryPlan:
    """The plan in a folder that `pin` has made. Raises NotADatabase, Corruption."""
    try:
        fields = json.loads(_checked(folder / PLAN))
    except (FileNotFoundError, NotADirectoryError):
        raise NotADatabase(f"{folder} is not a pinned snapshot (it has no file {PLAN}); it may have ended") from None
    except ValueError as error:
        raise Corruption(folder / PLAN, None, f"it is not JSON ({error})") from error
    try:
        parts = tuple(SegmentPart(*part) for part in fields["parts"])
        if not all(part.link == Path(part.link).name for part in parts):
            raise ValueError("a file is not beside it")
        return DirectoryPlan(
            fields["path"],
            str(folder),
            bytes.fromhex(fields["log"]),
            fields["version"],
            fields["since"],
            fields["time"],
            fields["floor"],
            parts,
            tuple(map(bytes.fromhex, fields["sample"])),
            os.getpid(),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Corruption(folder / PLAN, None, f"its fields are wrong ({error})") from error


def _resolved(host: EmbeddedBackend, version: int | None, time_ns: int | None) -> int:
    if time_ns is None:
        assert version is not None
        return host.at(version)
    if version is not None:
        raise ValueError("give a version or a time, but not both")
    return host.at_time(time_ns)


def _make(host: EmbeddedBackend, version: int, since: int | None, owner: LeaseOwner) -> DirectoryPlan:
    floor = host.machine.coordinator.floor
    first, end = span(host, version, since)
    folder = make_folder(Path(host.path), owner)
    try:
        not_applied = aborted(host, first, version + 1)
        parts = []
        for file in files(host, first, end):
            link = folder / file.name
            file.put(link)
            mine = array("Q", (gsn for gsn in not_applied if file.first <= gsn < file.end))
            _write_checked(folder / f"{file.name}.aborted", mine.tobytes())
            parts.append(SegmentPart(file.name, file.origin, file.first, file.end, link.stat().st_size))
        when = host.time_of(version) if version else None
        sample = sampled(host, first, end)
        process = os.getpid()
        plan = DirectoryPlan(
            host.path, str(folder), host.log_id, version, since, when, floor, tuple(parts), sample, process
        )
        _save(plan, folder)
        return plan
    except FileNotFoundError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise Unavailable(f"the snapshot's files cannot be kept in {folder}: {error.strerror}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def span(host: EmbeddedBackend, version: int, since: int | None = None) -> tuple[int, int]:
    """(first, end) of the records that a snapshot is made of, with those of the changes after `since`."""
    first, end = _span(host, version)
    return (first if since is None else min(first, _span(host, since)[0])), end


def _span(host: EmbeddedBackend, version: int) -> tuple[int, int]:
    log, cold = host.log, host.cold
    if cold is not None and cold.has(version):
        era, _ = cold.log.manifest().era_of(version)
        return era.first, max(version, era.compacted_at) + 1
    # A finished compaction may have trimmed versions that only its copies, written later, still hold.
    return log.oldest_after_trim(log.oldest()), max(version, host.machine.coordinator.compacted_at) + 1


class PlannedFile(NamedTuple):
    """A store file of a plan, with records `first` to `end` - 1. `origin`: its path, or its address in the cold tier.
    `size`: its bytes. `put`: makes a file with its content; raises FileNotFoundError if it was trimmed meanwhile."""

    name: str
    origin: str
    first: int
    end: int
    size: int
    put: Callable[[Path], object]


def files(host: EmbeddedBackend, first: int, end: int) -> list[PlannedFile]:
    """The files with records `first` to `end` - 1. Raises FileNotFoundError, Trimmed, Unavailable, Corruption."""
    cold, log = host.cold, host.log
    assert isinstance(log, LocalLog)
    local = first if cold is None else max(first, log.oldest())
    found = []
    if cold is not None:
        for segment, part_first, part_end in cold.log.segments(first, min(end, local)):
            part, write = segment.part, functools.partial(_write_cold, cold.tier, segment)
            origin = cold.tier.place.location(part.name)
            found.append(PlannedFile(segment_name(part.first), origin, part_first, part_end, part.size, write))
    for path, part_first, part_end in log.store.files(local, end):
        link = functools.partial(_link, path)
        found.append(PlannedFile(path.name, str(path), part_first, part_end, path.stat().st_size, link))
    return found


def _link(path: Path, link: Path) -> None:
    os.link(path, link)
    with contextlib.suppress(FileNotFoundError):  # it has none until it is full
        os.link(path.with_suffix(INDEX_SUFFIX), link.with_suffix(INDEX_SUFFIX))


def _write_cold(tier: ColdTier, segment: ColdSegment, target: Path) -> None:
    target.write_bytes(tier.read(segment))


def aborted(host: EmbeddedBackend, first: int, end: int) -> list[int]:
    """The commit records from `first` to before `end` that were not applied. Raises Corruption, Trimmed,
    Unavailable."""
    return aborted_in(host.machine, first, end) if host.cold is None else host.cold.log.aborted(first, end)


def _save(plan: DirectoryPlan, folder: Path) -> None:
    fields: dict[str, Any] = {
        "format": FORMAT,
        "path": plan.path,
        "log": plan.log_id.hex(),
        "version": plan.version,
        "since": plan.since,
        "time": plan.time,
        "floor": plan.floor,
        "parts": plan.parts,
        "sample": [key.hex() for key in plan.sample],
    }
    _write_checked(folder / PLAN, json.dumps(fields).encode())


def _write_checked(file: Path, content: bytes) -> None:
    file.write_bytes(content + CRC.pack(value(content)))


def _checked(file: Path) -> bytes:
    """The content as written by `_write_checked`. Raises Corruption, FileNotFoundError."""
    content = file.read_bytes()
    if len(content) < CRC.size or CRC.pack(value(content[: -CRC.size])) != content[-CRC.size :]:
        raise Corruption(file, None, "it does not match its checksum; restart the export or load that uses it")
    return content[: -CRC.size]


def sampled(host: EmbeddedBackend, first: int, end: int) -> tuple[bytes, ...]:
    """Keys of some records, in order."""
    found: set[bytes] = set()
    size = 0
    chosen = Random(first).sample(range(first, end), min(SAMPLES, end - first))
    if first < host.log.oldest():
        chosen.sort()  # each segment of the cold tier is fetched once
    for gsn in chosen:
        record = host.records.read_record(gsn, 0)
        keys = list(_keys_of(record))
        found.update(keys[:: max(1, len(keys) // SAMPLES_OF_A_RECORD)])
        size += len(record.payload)
        if size > SAMPLED_BYTES:
            break
    return tuple(sorted(found))


def _keys_of(record: LogRecord) -> Iterator[bytes]:
    if record.tag == COMMIT:
        yield from decode_commit(record.payload, record.gsn).writes
    elif record.tag == RELOCATION:
        yield from (entry.key for entry in decode_relocation(record.payload))
