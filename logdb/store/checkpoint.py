"""The part of the map that is on disk: sorted runs that cover a prefix of the log, a log-structured merge tree.

Each checkpoint adds a run (`runs.py`) of the changes since the last one; a merge replaces several runs with one. Runs
are never changed, and a reader takes all of them at once (`Snapshot`), so readers never wait. The manifest names the
runs in use. Its replacement commits a checkpoint or a merge; a crash at any other moment leaves only files that it does
not name.

Invariants:

MAP-5  The manifest names only runs that are complete and durable, and they cover adjacent ranges of versions, from 0 to
       `covers`.
MAP-6  A run that has a version of a key also has all newer versions of the key that older runs have. So the newest run
       with a version not after `at` has the newest such version of the key.
"""

from __future__ import annotations

import errno
import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import lmdb
from google_crc32c import extend

from logdb.errors import Corruption, LogDBError, Unavailable
from logdb.log.contract import Record
from logdb.store import map_verifier
from logdb.store.files import MapFiles
from logdb.store.manifest import MalformedManifest, Manifest, RunInfo, decode_manifest
from logdb.store.map_verifier import RESIDUE
from logdb.store.merging import DISJOINT_RATIO, RATIO, groups_due, merge_rows, runs_due
from logdb.store.overlay import Overlay
from logdb.store.range_deletions import NOTHING, RangeIndex
from logdb.store.relocating import Relocator
from logdb.store.row_checksums import CHECKSUM, FEW_ROWS, RawRow, check_row, check_rows, damaged
from logdb.store.runs import (
    DAMAGE,
    FENCE_BYTES,
    HEAD,
    KIND,
    KIND_AT,
    LARGE,
    LIVE,
    LIVE_END,
    LIVE_VALUE,
    PLAIN,
    ROOT_BYTES,
    ROW_KEY,
    TOMBSTONE,
    Group,
    Reader,
    Row,
    Run,
    RunReader,
    RunWriter,
    aligned,
    decode,
    grouped,
    merged_state,
    newest_rows,
    row_of,
    version_of,
    versions,
)
from logdb.system.disk import Disk, described
from logdb.system.forking import keep_for_ever, own

__all__ = ["LARGE", "LIVE", "TOMBSTONE", "Checkpoint", "Row", "check_tables"]

SLICE_ROWS: Final = 2_000
ROWS_AT_ONCE: Final = 200
MIN_RUN_BYTES: Final = 1 << 20
"""Minimum size of a run after which a checkpoint may begin another one."""
MORE_ROWS: Final = 16
"""Number of rows that a scan reads of a run beyond the run's expected share."""
VERSION: Final = itemgetter(0)
NO_RUN: Final = (*DAMAGE, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.IncompatibleError, lmdb.NotFoundError)
"""Errors of LMDB that mean a damaged run. All others come from the system: no memory, no descriptors."""
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Snapshot:
    """The runs that a manifest names, open for reading, and a pool of readers."""

    def __init__(self, manifest: Manifest, runs: Sequence[Run]) -> None:
        self.manifest, self.runs, self.groups = manifest, tuple(runs), grouped(runs)
        self.readers: list[Reader] = []

    def reader(self) -> Reader:
        """A reader from the pool, for one thread at a time; the caller appends it to `readers` afterwards."""
        try:
            return self.readers.pop()
        except IndexError:
            return tuple([group.reader() for group in reversed(self.groups)])


class ClosedSnapshot(Snapshot):
    """The snapshot of a closed checkpoint: it has no runs, and raises Unavailable when it is read."""

    def __init__(self, path: str, manifest: Manifest) -> None:
        super().__init__(manifest, ())
        self._path = path

    def reader(self) -> Reader:
        raise Unavailable(f"the checkpoint in {self._path} is closed")


class Checkpoint:
    """The runs in a directory, for any number of reading threads, one that writes checkpoints and one that merges.

    `follow`: another process, or another Checkpoint in this process, writes. `inline`: older versions keep their
    values. `disk`: that of the log.
    """

    def __init__(
        self, path: Path, log_id: bytes, *, follow: bool = False, inline: bool = False, disk: Disk | None = None
    ) -> None:
        self._path, self._log_id, self._follow, self._inline = os.path.realpath(path), log_id, follow, inline
        self._files = MapFiles(self._path, disk)
        self._writing, self._merging, self._committing = threading.Lock(), threading.Lock(), threading.Lock()
        self._pending: list[RunWriter] = []
        self._merge: Merge | None = None
        self._target = self._written = 0
        self._is_closed = False
        self._snapshot: Snapshot = ClosedSnapshot(self._path, Manifest(log_id))  # for `disown`, if opening fails
        own(self)
        try:
            if not follow:
                self._files.make_directory()
            self.switch(self.newest())
            if not follow:
                self._clean()
        except OSError as error:
            raise _cannot_be("opened", self._path, error) from error

    def newest(self) -> Snapshot:
        """A snapshot of the manifest on disk, which another process may have replaced; `switch` makes it the current
        one.

        Raises Corruption: the runs must be rebuilt; Unavailable: they cannot be read.
        """
        missing: str | None = None
        while True:
            try:
                manifest = _sound_manifest(self._files) or Manifest(self._log_id)
                if manifest.log_id != self._log_id:
                    raise MalformedManifest("it is that of another log")
                return Snapshot(manifest, [Run(self._files, info) for info in manifest.runs])
            except MalformedManifest as error:
                raise self.damaged(str(error)) from error
            except FileNotFoundError as error:  # a merge has removed it since the manifest was read, or it is lost
                if error.filename == missing:
                    raise self.damaged(f"{missing} is missing") from error
                missing = error.filename
            except (lmdb.Error, OSError) as error:
                raise _cannot_be("opened", self._path, error) from error

    def switch(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the current one. Readers of the one before continue there."""
        manifest = snapshot.manifest
        # Set before a row of the snapshot can be read: a reader that reads the ceiling after a row sees one that covers
        # it.
        self.covers, self.ceiling, self.pruned = manifest.covers, manifest.ceiling, manifest.pruned
        self._snapshot = snapshot

    @property
    def snapshot(self) -> Snapshot:
        """The current runs."""
        return self._snapshot

    def size(self) -> int:
        """The size of its files in bytes."""
        return sum([info.bytes for info in self._snapshot.manifest.runs])

    @property
    def live_bytes(self) -> int:
        """Estimated size in bytes of the live versions in a compacted log. An upper estimate: versions that newer runs
        have superseded count until they are merged."""
        return sum([info.live_bytes for info in self._snapshot.manifest.runs])

    def covered_by(self, snapshot: Snapshot) -> int:
        """The GSN up to which a snapshot covers the log."""
        return snapshot.manifest.covers

    def damaged(self, reason: str) -> Corruption:
        """The error for damaged runs."""
        return damaged(self._path, reason)

    def close(self) -> None:
        """Release the runs after the current step of a checkpoint or merge. Later reads raise Unavailable."""
        with self._writing, self._merging, self._committing:
            self._is_closed, self._merge = True, None
            self._drop_pending()
            self._snapshot = ClosedSnapshot(self._path, self._snapshot.manifest)

    def disown(self, parent: int) -> None:
        """In a child of fork(): be closed, and leave unfinished runs to the parent."""
        keep_for_ever((self._snapshot, self._pending))
        self._pending, self._merge, self._is_closed = [], None, True
        self._snapshot = ClosedSnapshot(self._path, self._snapshot.manifest)
        self._writing, self._merging, self._committing = threading.Lock(), threading.Lock(), threading.Lock()

    def _clean(self) -> None:
        """Remove the files that a crash, or an earlier version of LogDB, has left."""
        named = {info.number for info in self._snapshot.manifest.runs}
        for number in self._files.numbers():
            if number not in named:
                self._files.remove(number)
        self._files.remove_old_format()
        self._numbers = count(max(named, default=0) + 1)

    # ---- reading

    def row(self, key: bytes, at: int) -> Row | None:
        """The newest version of the key not after `at`; None if there is none.

        The value of an older version that is live and not large is None: the record at `place` has it.
        """
        readers = self._snapshot.readers
        try:
            reader = readers.pop()
        except IndexError:
            readers, reader = self._borrowed()
        try:
            for group in reader:
                run = group.run_of(key)
                raw = run.find(key)
                if raw is not None:
                    row, first, older_ones = decode(raw)
                    if row.version <= at:
                        return row
                    older = run.older_at(first, older_ones, at)
                    if older is not None:
                        return older
            return None
        except lmdb.Error as error:
            raise _cannot_be("read", self._path, error) from error
        finally:
            readers.append(reader)

    def live_value(self, key: bytes) -> bytes | None:
        """The key's newest value if it is small; None if it must be read by `row`.

        Its version is not newer than `ceiling`, if the caller reads that after this call.
        """
        if len(key) >= ROOT_BYTES:
            return None
        readers = self._snapshot.readers
        try:
            reader = readers.pop()
        except IndexError:
            readers, reader = self._borrowed()
        try:
            for group in reader:
                raw = group.get(key)
                if raw is not None:
                    break
            else:
                return None
        except lmdb.Error as error:
            raise _cannot_be("read", self._path, error) from error
        finally:
            readers.append(reader)
        if extend(RESIDUE, key + raw) != RESIDUE:
            check_row(key, raw, self._path)
        if raw[KIND_AT] == LIVE:
            return raw[:LIVE_END]
        cut = PLAIN.get(raw[KIND_AT])
        return None if cut is None else raw[:-cut]

    def _borrowed(self) -> tuple[list[Reader], Reader]:
        """(the pool to return it to, a reader)."""
        snapshot = self._snapshot
        try:
            return snapshot.readers, snapshot.reader()
        except lmdb.Error as error:
            raise _cannot_be("read", self._path, error) from error

    def live_chunk(
        self, start: bytes | None, end: bytes | None, reverse: bool, max_rows: int, deleted: int = 0
    ) -> tuple[list[tuple[bytes, bytes]], list[bytes], bytes | None]:
        """(key, newest value) in [start, end) in order, the keys among them whose value is large, and the last key
        looked at, None at the end of the range.

        From the first, or from the last when `reverse`; about `max_rows` keys, deleted ones included. No version among
        them is newer than `ceiling`, if the caller reads that after this call. Keys whose newest version is before
        `deleted` are left out.
        """
        readers = self._snapshot.readers
        try:
            reader = readers.pop()
        except IndexError:
            readers, reader = self._borrowed()
        try:
            if len(reader) == 1 and not reader[0].has_long_keys:
                rows = reader[0].unchecked(start, end, reverse, max_rows)
                stop, is_checked = rows[-1][0] if len(rows) == max_rows else None, False
            else:
                rows, stop, is_checked = _newest_rows(reader, start, end, reverse, max_rows)
            if not is_checked and (deleted or len(rows) > FEW_ROWS):
                check_rows(rows, self._path)
                is_checked = True
        except lmdb.Error as error:
            raise _cannot_be("read", self._path, error) from error
        finally:
            readers.append(reader)
        if deleted:
            rows = [row for row in rows if version_of(row[1]) >= deleted]
        live: list[tuple[bytes, bytes]] = []
        others = []
        for key, raw in rows:
            if not is_checked and extend(RESIDUE, key + raw) != RESIDUE:
                check_row(key, raw, self._path)
            kind = raw[KIND_AT]
            if kind == LIVE:
                live.append((key, raw[LIVE_VALUE]))
            elif kind in PLAIN:
                live.append((key, raw[: -PLAIN[kind]]))
            elif kind & KIND != TOMBSTONE:
                others.append(key)
        return live, others, stop

    def chunk(self, start: bytes | None, end: bytes | None, reverse: bool, max_rows: int) -> list[tuple[bytes, int]]:
        """The first `max_rows` (key, newest version) of [start, end), deletions included, in order as in
        `live_chunk`."""
        return [(key, version_of(raw)) for key, raw in self._chunk(start, end, reverse, max_rows)]

    def rows(self, start: bytes, max_rows: int) -> list[tuple[bytes, Row]]:
        """The newest versions of up to `max_rows` keys from `start` on, deletions included, in order."""
        return [(key, decode(raw)[0]) for key, raw in self._chunk(start, None, False, max_rows)]

    def _chunk(self, start: bytes | None, end: bytes | None, reverse: bool, max_rows: int) -> list[RawRow]:
        readers, reader = self._borrowed()
        try:
            newest: dict[bytes, bytes] = {}
            for group in reversed(reader):
                newest.update(group.chunk(start, end, reverse, max_rows))
        except lmdb.Error as error:
            raise _cannot_be("read", self._path, error) from error
        finally:
            readers.append(reader)
        # The first keys of all are among the first of each group, and so are the rows of newer runs for them.
        return sorted(newest.items(), key=ROW_KEY, reverse=reverse)[:max_rows]

    def state(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The rows of state whose keys begin with `prefix`, in order, without it."""
        readers, reader = self._borrowed()
        try:
            rows = merged_state([group.state(prefix) for group in reader])
            return [(key[len(prefix) :], value) for key, value in rows if value is not None]
        except lmdb.Error as error:
            raise _cannot_be("read", self._path, error) from error
        finally:
            readers.append(reader)

    def everything(self) -> Iterator[tuple[bytes, Iterator[Row]]]:
        """(key, all its versions, newest first) of every key in order, from the current snapshot.

        The versions of a key are read lazily: consume them before the next key.
        """
        readers, reader = self._borrowed()
        try:
            for parts in aligned(reader):
                found = [dict(rows) for _, rows in parts]
                newest, shared = newest_rows(found)
                for key, raw in newest:
                    if raw[KIND_AT] == LIVE and key not in shared:
                        version = version_of(raw)
                        yield key, iter((Row(version, LIVE, version, raw[:LIVE_END]),))
                    else:
                        of_key = [(run, rows[key]) for (run, _), rows in zip(parts, found, strict=True) if key in rows]
                        yield key, self._versions(of_key)
        except lmdb.Error as error:
            raise _cannot_be("read", self._path, error) from error
        finally:
            readers.append(reader)

    def _versions(self, of_key: list[tuple[RunReader, bytes]]) -> Iterator[Row]:
        try:
            yield from versions(of_key)
        except lmdb.Error as error:
            raise _cannot_be("read", self._path, error) from error

    def check_invariants(self) -> None:
        """MAP-6; for tests."""
        newer: dict[bytes, set[int]] = {}
        for run in reversed(self._snapshot.runs):
            for reader, rows in run.reader().chunks():
                for key, raw in rows:
                    assert run.first <= key <= run.last, f"{key!r} is outside its run"
                    here = {row.version for row in versions([(reader, raw)])}
                    above = newer.setdefault(key, here)
                    assert not {version for version in here - above if version > min(above)}, f"MAP-6: {key!r}"
                    above |= here

    # ---- writing a checkpoint

    def begin(self, target: int) -> None:
        """Begin a checkpoint with no row newer than version `target`. Drops an unfinished one."""
        with self._writing:
            self._drop_pending()
            self._target = target

    def write(self, overlay: Overlay) -> Iterator[int]:
        """Write an overlay's entries into a new run, slice by slice; yields the number of keys after each.

        Where older runs have many bytes between two keys, another run is begun: one with keys on both sides would
        overlap them. Readers see the runs after `finish`. Raises Unavailable, on a full disk for example; Corruption.
        """
        with self._checkpointing():
            large = [part for run in self._snapshot.runs if run.info.bytes >= FENCE_BYTES for part in run.parts]
            self._pending = [self._new_run(overlay.size)]
        last = None
        for part in overlay.sorted_keys(SLICE_ROWS):
            with self._checkpointing():
                begin = 0
                for place in _gaps(last, part, large):
                    self._put_all(part[begin:place], overlay)
                    begin = place
                    if self._pending[-1].live_bytes >= MIN_RUN_BYTES:
                        self._pending[-1].finish()
                        self._pending.append(self._new_run(overlay.size))
                self._put_all(part[begin:], overlay)
            last = part[-1]
            yield len(part)

    def finish(self, covers: int, state: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Commit the checkpoint. `covers`: the GSN that the runs cover from now on. `state`: rows of state, None to
        remove one. Raises as `write`."""
        with self._checkpointing():
            if not self._pending:
                self._pending = [self._new_run(0)]
            self._pending[-1].put_state(sorted(dict(state).items()))
            self._pending[-1].finish()
            first, *others = [writer.info for writer in self._pending]
            infos = [first._replace(after=self.covers, through=covers)]
            infos += [info._replace(after=covers, through=covers) for info in others]
            runs = [Run(self._files, info) for info in infos]
            with self._committing:
                manifest = self._snapshot.manifest._replace(covers=covers, ceiling=max(self.ceiling, self._target))
                self._commit(manifest, [*self._snapshot.runs, *runs])
            self._pending = []
            self._written += sum([info.bytes for info in infos])

    def _put_all(self, keys: list[bytes], overlay: Overlay) -> None:
        writer, newest, moved = self._pending[-1], overlay.newest, overlay.moved
        for first in range(0, len(keys), ROWS_AT_ONCE):
            rows: list[RawRow] = []
            for key in keys[first : first + ROWS_AT_ONCE]:
                entry = newest.get(key)
                if (
                    entry is not None
                    and entry[1].__class__ is bytes
                    and entry[2] is None
                    and len(key) < ROOT_BYTES
                    and key not in moved
                ):
                    row = entry[1] + HEAD.pack(entry[0], LIVE)
                    rows.append((key, row + CHECKSUM.pack(extend(RESIDUE, key + row))))
                else:
                    writer.add(rows)
                    rows = []
                    self._put(writer, key, overlay)
            writer.add(rows)

    def _put(self, writer: RunWriter, key: bytes, overlay: Overlay) -> None:
        entry, moved = overlay.newest.get(key), overlay.moved.get(key)
        if moved is None:
            assert entry is not None
            version, value, entry = entry
            older = []
            while entry is not None:
                older.append(row_of(entry[0], entry[0], entry[1]))
                entry = entry[2]
            writer.put(key, row_of(version, version, value), older)
            return
        rows: dict[int, Row] = {}
        while entry is not None:
            rows[entry[0]] = row_of(entry[0], entry[0], entry[1])
            entry = entry[2]
        for version, (place, value) in moved.items():
            rows[version] = row_of(version, place, value)
        for row in self._newer(key, min(moved)):  # MAP-6
            rows.setdefault(row.version, row)
        ordered = sorted(rows.values(), key=VERSION, reverse=True)
        writer.put(key, ordered[0], ordered[1:])

    def _newer(self, key: bytes, than: int) -> Iterator[Row]:
        """The versions of the key in the runs that are newer than version `than`, newest first."""
        at = self.ceiling
        while (row := self.row(key, at)) is not None and row.version > than:
            yield row
            at = row.version - 1

    @contextmanager
    def _checkpointing(self) -> Iterator[None]:
        """A step of a checkpoint. The unfinished runs are dropped when it fails."""
        with self._writing, self._explained():
            if self._is_closed:
                raise Unavailable(f"the checkpoint in {self._path} is closed")
            try:
                yield
            except BaseException:
                self._drop_pending()
                raise

    def _drop_pending(self) -> None:
        writers, self._pending = self._pending, []
        for writer in writers:
            self._abandon(writer)

    # ---- merging

    def merge(self, *, closing: bool = False) -> Iterator[int]:
        """Merge the runs that are due, step by step; yields the number of keys read. Does nothing if none are due, or a
        merge is in progress. `closing`: leave one run if the map is small. Raises as `write`."""
        with self._committing:
            runs = self._snapshot.runs
            due = runs_due(_sizes(self._snapshot.groups), closing=closing)
            if not due or self._merge is not None:
                return
            merge = self._merge = Merge(runs[-due:], self.pruned)
        yield from self._carry_out(merge, merge_rows)

    def prune(self, floor: int, deleted: RangeIndex = NOTHING) -> Iterator[int]:
        """Merge all runs into one, without versions that only a read before `floor` could see; yields the number of
        keys read. `deleted`: the range deletes up to `floor`.

        Cancels a merge in progress. The runs must cover the record that has moved the floor there (MAP-4).
        """
        assert floor <= self.covers, f"MAP-4: it covers {self.covers}, and is pruned to {floor}"
        with self._committing:
            if not self._snapshot.runs:
                return
            merge = self._merge = Merge(self._snapshot.runs, floor)
        yield from self._carry_out(merge, partial(merge_rows, deleted=deleted))

    def relocate(self, relocator: Relocator) -> Generator[list[Record] | None, int, None]:
        """Write all runs as one, without versions that only a read before the floor could see; its rows hold the places
        of the copies that `relocator` makes.

        Yields lists of records to append, which may be empty, and must be sent the GSN of the first; then None, and
        must be sent the GSN of the record that has moved the floor, which the runs cover by then (MAP-4). Closing the
        generator before that discards the new run. Cancels a merge in progress. Raises as `write`.
        """

        def rows(
            readers: Reader, writer: RunWriter, floor: int, *, is_oldest: bool
        ) -> Generator[list[Record] | None, int, None]:
            yield from relocator.rows(readers, writer)
            moved_at = yield None
            assert moved_at <= self.covers, f"MAP-4: it covers {self.covers}, and is pruned by record {moved_at}"

        with self._committing:
            merge = self._merge = Merge(self._snapshot.runs, relocator.floor)
        relocator.read += sum([run.info.bytes for run in merge.runs])
        run = yield from self._carry_out(merge, rows)
        if run is None:
            raise Unavailable(f"the checkpoint in {self._path} is closed")
        relocator.written += run.bytes

    def _carry_out(self, merge: Merge, write: Rewrite[T]) -> Generator[T, int, RunInfo | None]:
        """Run the steps of `write` and yield their results. Returns the run, None if another merge cancelled this
        one."""
        writer: RunWriter | None = None
        runs = merge.runs
        sent: Any = None
        try:
            with self._merging, self._explained():
                is_oldest = runs[0] is self._snapshot.runs[0]
                writer = self._new_run(sum(run.info.bytes for run in runs))
                readers = tuple([group.reader() for group in reversed(grouped(runs))])
                steps = write(readers, writer, merge.floor, is_oldest=is_oldest)
            while True:
                with self._merging, self._explained():
                    if self._merge is not merge:
                        return None
                    try:
                        step = steps.send(sent)
                    except StopIteration:
                        break
                sent = yield step
            with self._merging, self._explained():
                run = self._replace(merge, writer)
                writer = None
            return run
        finally:
            if self._merge is merge:
                self._merge = None
            if writer is not None:
                self._abandon(writer)

    def _replace(self, merge: Merge, writer: RunWriter) -> RunInfo | None:
        """Replace the merged runs by the new one in the manifest. Returns None if the merge was cancelled."""
        runs = merge.runs
        writer.finish()
        info = writer.info._replace(after=runs[0].info.after, through=runs[-1].info.through)
        run = Run(self._files, info)
        with self._committing:
            if self._merge is not merge:
                self._abandon(writer)
                return None
            now = self._snapshot.runs
            at = now.index(runs[0])
            assert now[at : at + len(runs)] == runs, "MAP-5"
            manifest = self._snapshot.manifest._replace(pruned=max(self.pruned, merge.floor))
            self._commit(manifest, [*now[:at], run, *now[at + len(runs) :]])
        self._written += info.bytes
        for old in runs:
            self._files.remove(old.info.number)
        return info

    @property
    def backlog(self) -> float:
        """How far merging is behind: 0.0 if no run waits for it; 1.0 if enough runs wait, beside those in the current
        merge, to make the next merge due."""
        snapshot, merge = self._snapshot, self._merge
        if merge is None or merge.runs[-1] not in snapshot.runs:
            return max(groups_due(_sizes(snapshot.groups)) - RATIO, 0) / RATIO
        newer = snapshot.runs[snapshot.runs.index(merge.runs[-1]) + 1 :]
        return max(len(grouped(newer)) / RATIO, len(newer) / DISJOINT_RATIO)

    @property
    def written(self) -> int:
        """Bytes of the runs written since this was opened."""
        return self._written

    def _new_run(self, bytes_expected: int) -> RunWriter:
        return RunWriter(self._files, next(self._numbers), bytes_expected, inline=self._inline)

    def _commit(self, manifest: Manifest, runs: Sequence[Run]) -> None:
        manifest = manifest._replace(runs=tuple(run.info for run in runs))
        self._files.replace_manifest(manifest.encode())
        self.switch(Snapshot(manifest, runs))
        map_verifier.note(Path(self._path), manifest.files)

    def _abandon(self, writer: RunWriter) -> None:
        """Remove an unfinished run, unless the manifest on disk names it already."""
        with suppress(OSError, MalformedManifest):
            content = self._files.read_manifest()
            if content is None or writer.number not in [info.number for info in decode_manifest(content).runs]:
                writer.abandon()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DAMAGE as error:
            raise self.damaged(str(error)) from error
        except (lmdb.Error, OSError) as error:
            reason = described(error) if isinstance(error, OSError) else error
            raise Unavailable(
                f"the checkpoint in {self._path} could not be written ({reason}); nothing is lost, the log has it all"
            ) from error


def _gaps(last: bytes | None, keys: list[bytes], ranges: list[tuple[bytes, bytes]]) -> list[int]:
    """The indexes of the keys directly after one of the ranges. `last`: the key before the first one."""
    found = set()
    for first, end in ranges:
        place = bisect_left(keys, first)
        before = keys[place - 1] if place else last
        if before is not None and before < first and place < len(keys) and keys[place] > end:
            found.add(place)
    return sorted(found)


def _sizes(groups: Sequence[Group]) -> list[list[int]]:
    return [[run.info.bytes for run in group.runs] for group in groups]


class Rewrite(Protocol[T_co]):
    """Writes the rows of several runs, the newest first, into one, step by step."""

    def __call__(
        self, readers: Reader, writer: RunWriter, floor: int, *, is_oldest: bool
    ) -> Generator[T_co, int, None]: ...


class Merge(NamedTuple):
    """A merge in progress of adjacent runs, the oldest first. Versions that only a read before `floor` could see are
    dropped."""

    runs: tuple[Run, ...]
    floor: int


def _newest_rows(
    reader: Reader, start: bytes | None, end: bytes | None, reverse: bool, max_rows: int
) -> tuple[list[RawRow], bytes | None, bool]:
    """(key, row of its newest version) of [start, end) in order; the last key looked at, None at the end of the range;
    and whether the rows were checked. Each group is read up to its expected share of `max_rows`."""
    is_checked = any(group.has_long_keys for group in reader)
    largest = max([1, *[group.count for group in reader]])
    newest: dict[bytes, bytes] = {}
    stops = []
    for group in reversed(reader):
        share = min(max_rows, max_rows * group.count // largest + MORE_ROWS)
        rows = (group.chunk if is_checked else group.unchecked)(start, end, reverse, share)
        if len(rows) == share:
            stops.append(rows[-1][0])
        newest.update(rows)
    stop = None
    if stops:
        stop = max(stops) if reverse else min(stops)
    rows = sorted(newest.items(), key=ROW_KEY, reverse=reverse)
    if stop is not None and rows[-1][0] != stop:
        ordered = [key for key, _ in rows]
        if reverse:
            ordered.reverse()
            del rows[len(rows) - bisect_left(ordered, stop) :]
        else:
            del rows[bisect_right(ordered, stop) :]
    return rows, stop, is_checked


def check_tables(path: Path, *, ignore_note: bool = False) -> None:
    """Check the runs in `path`, if there are any, as opening them does (`map_verifier.py`).

    `ignore_note`: read every file. Raises Corruption: they must be rebuilt; Unavailable: they cannot be read.
    """
    place, missing = os.path.realpath(path), None
    while True:
        try:
            _sound_manifest(MapFiles(place), ignore_note=ignore_note)
        except MalformedManifest as error:
            raise damaged(place, str(error)) from error
        except FileNotFoundError as error:
            if error.filename == missing:
                raise damaged(place, f"{missing} is missing") from error
            missing = error.filename
        except OSError as error:
            raise Unavailable(f"the checkpoint in {path} cannot be read: {described(error)}") from error
        else:
            return


def _sound_manifest(files: MapFiles, *, ignore_note: bool = False) -> Manifest | None:
    """The manifest after a check of its runs; None if there is none. Raises MalformedManifest, OSError."""
    content = files.read_manifest()
    if content is None:
        if files.has_old_format():
            raise MalformedManifest("it was written by an earlier version of LogDB")
        return None
    manifest = decode_manifest(content)
    damage = map_verifier.find_damage(Path(files.path), manifest.files, ignore_note=ignore_note)
    if damage is not None:
        raise MalformedManifest(damage)
    return manifest


def _cannot_be(participle: str, path: str, error: lmdb.Error | OSError) -> LogDBError:
    """The error for runs that cannot be opened or read. Corruption only for errors that mean damage; a rebuild would
    not help against others, and would remove the runs."""
    if isinstance(error, NO_RUN):
        return damaged(path, f"it cannot be {participle} ({error})")
    reason = described(error) if isinstance(error, OSError) else str(error).rpartition(": ")[2]
    advice = "nothing is damaged: try again, or close the database and open it again"
    if os.strerror(errno.EMFILE) in reason:
        advice = "allow this process more open files (ulimit -n); nothing is damaged"
    elif isinstance(error, lmdb.MemoryError) or os.strerror(errno.ENOMEM) in reason:
        advice = "LMDB needs as much address space as its files are large (ulimit -v); nothing is damaged"
    return Unavailable(f"the checkpoint in {path} cannot be {participle} ({reason}): {advice}")
