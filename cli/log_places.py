"""The log of the commands of `logdb log`: in a directory of its own, that of a database, or that of a cluster.

    LOG      the identity: format version and the id of the log, as TOML
    LOCK     held (flock) by who appends or trims
    log/     the segments

The log of a database is only read here: only the database can write valid records to it.
"""

from __future__ import annotations

import fcntl
import os
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from logdb.api.opening import cluster_needed
from logdb.embedded.directory import IDENTITY, Directory
from logdb.errors import Corruption, NotADatabase, Unavailable, UnsupportedFormat
from logdb.log import LocalLog, Log
from logdb.store import records
from logdb.system.directories import is_locked

from .failing import FAILED, BadInput, Failure

if TYPE_CHECKING:
    from logdb.clients.log_client import RemoteLog

LOG_IDENTITY: Final = "LOG"
FORMAT: Final = 1
CONNECT_S: Final = 5.0
KINDS: Final = {
    getattr(records, name): name.lower() for name in ("COMMIT", "VALUE", "DECISION", "RELOCATION", "COMPACTION", "PIN")
}


@dataclass(frozen=True)
class InDirectory:
    """A log in a directory, or the log of the database in that directory."""

    path: Path

    @contextmanager
    def reading(self) -> Iterator[tuple[LocalLog, Mapping[int, str]]]:
        """The log, to be read; and the names of its tags."""
        path = self.path
        if path.name == "log" and (path.parent / IDENTITY).exists():
            path = path.parent
        if (path / IDENTITY).exists():
            directory = Directory.open(path, writable=False)
            log_path, log_id, kinds, is_written = (
                directory.log_path,
                directory.log_id,
                KINDS,
                directory.is_written(),
            )
        else:
            log_path, log_id, kinds, is_written = path / "log", _identity(path), {}, is_locked(path)
        opened = LocalLog(log_path, log_id, writable=False, follow=is_written)
        try:
            opened.refresh()
            yield opened, kinds
        finally:
            opened.close()

    @contextmanager
    def writing(self, *, create: bool) -> Iterator[LocalLog]:
        """The log, which is of its own. Raises BadInput for a database's."""
        path = self.path
        if (path / IDENTITY).exists() or (path.absolute().parent / IDENTITY).exists():
            raise _of_database(path)
        if create and not (path / LOG_IDENTITY).exists():
            strangers = sorted(entry.name for entry in path.iterdir() if entry.name != "LOCK") if path.exists() else []
            if strangers:
                raise NotADatabase(
                    f"{path} is not a log and not empty (it holds {strangers[0]!r}); give a new directory"
                )
            path.mkdir(parents=True, exist_ok=True)
        elif not (path / LOG_IDENTITY).exists():
            raise NotADatabase(f"{path} is not the directory of a log (it has no file {LOG_IDENTITY})")
        with _locked(path):
            if not (path / LOG_IDENTITY).exists():
                _make_identity(path)
            opened = LocalLog(path / "log", _identity(path), writable=True)
            try:
                yield opened
            finally:
                opened.close()


@dataclass(frozen=True)
class OfCluster:
    """The log of a cluster. `credentials`: the arguments of `logdb.log.connect` for authentication."""

    endpoints: str
    credentials: Mapping[str, Any] = field(repr=False)

    @contextmanager
    def reading(self) -> Iterator[tuple[Log, Mapping[int, str]]]:
        """The log, to be read; and the names of its tags."""
        with closing(self._connected()) as log:
            yield log, KINDS if log.is_of_database else {}

    @contextmanager
    def writing(self, *, create: bool) -> Iterator[Log]:
        """The log, which is of its own. Raises BadInput for a database's."""
        with closing(self._connected()) as log:
            if log.is_of_database:
                raise _of_database(f"the log at {self.endpoints}")
            yield log

    def _connected(self) -> RemoteLog:
        try:
            with cluster_needed():
                from logdb.clients.background_loop import in_shared_loop
                from logdb.clients.log_client import TIMEOUT_S, Connection, RemoteLog
                from logdb.security.credentials import credentials
            opening = Connection.open(self.endpoints, CONNECT_S, credentials(**self.credentials))
            return RemoteLog(in_shared_loop(opening), TIMEOUT_S)
        except ValueError as error:
            raise BadInput(str(error)) from error
        except ModuleNotFoundError as error:
            raise Failure(str(error), FAILED) from error


def _of_database(place: object) -> BadInput:
    return BadInput(f"{place} belongs to a database: its log takes records only by put, txn and the like")


# ---- directories


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"{path} is being written by another process; try again") from None
        yield
    finally:
        os.close(fd)


def _make_identity(path: Path) -> None:
    staging = path / f"{LOG_IDENTITY}.tmp"
    with staging.open("w") as file:
        file.write(f'# A shared log of LogDB. Do not edit.\nformat = {FORMAT}\nid = "{uuid.uuid4()}"\n')
        file.flush()
        os.fsync(file.fileno())
    staging.replace(path / LOG_IDENTITY)


def _identity(path: Path) -> bytes:
    file = path / LOG_IDENTITY
    try:
        fields = tomllib.loads(file.read_text())
        version, log_id = int(fields["format"]), uuid.UUID(fields["id"]).bytes
    except FileNotFoundError:
        raise NotADatabase(f"{path} is neither the directory of a log nor that of a database") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corruption(file, None, f"it does not say what it should ({error})") from error
    if version > FORMAT:
        raise UnsupportedFormat(file, version, FORMAT)
    return log_id
