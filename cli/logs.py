"""The shared log by itself: append, read, subscribe, trim and tail on a log in a directory of its own.

    LOG      the identity: format version and the id of the log, as TOML
    LOCK     held (flock) by who appends or trims
    log/     the segments

The log of a database can be read too. Nothing but the database itself may write there, so append and trim
refuse.
"""

from __future__ import annotations

import fcntl
import os
import sys
import tomllib
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from logdb import moments
from logdb.embedded.directory import IDENTITY, Directory
from logdb.errors import Corruption, FutureVersion, NotADatabase, Unavailable, UnsupportedFormat
from logdb.log import LocalLog
from logdb.log.contract import LogRecord
from logdb.store import records

from . import rendering
from .encoding import Notation
from .failing import INTERRUPTED, BadInput, Failure
from .interrupts import Interrupts
from .session import as_json, iso, notation

LOG_IDENTITY: Final = "LOG"
FORMAT: Final = 1
KINDS: Final = {
    getattr(records, name): name.lower()
    for name in ("COMMIT", "VALUE", "DECISION", "RELOCATION", "COMPACTION", "PIN")
}
COLUMNS: Final = ("gsn", "time", "tag", "payload")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def log() -> None:
    """The shared log itself: numbered records in a directory of their own, or (only to be read) the log of
    a database.
    """


def _directory(command: Any) -> Any:
    return click.option(
        "--dir",
        "path",
        required=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The directory of the log, or of a database whose log is to be read.",
    )(command)


# ---- opening


@contextmanager
def _opened(path: Path) -> Iterator[tuple[LocalLog, dict[int, str]]]:
    """The log in a directory, to be read; and the names of its tags."""
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
        log_path, log_id, kinds, is_written = path / "log", _identity(path), {}, _is_locked(path)
    opened = LocalLog(log_path, log_id, writable=False, follow=is_written)
    try:
        opened.refresh()
        yield opened, kinds
    finally:
        opened.close()


@contextmanager
def _opened_for_writing(path: Path, *, create: bool) -> Iterator[LocalLog]:
    """The log in a directory of its own. Raises BadInput for a database's."""
    if (path / IDENTITY).exists() or (path.absolute().parent / IDENTITY).exists():
        raise BadInput(f"{path} belongs to a database: its log takes records only by put, txn and the like")
    if create and not (path / LOG_IDENTITY).exists():
        strangers = (
            sorted(entry.name for entry in path.iterdir() if entry.name != "LOCK") if path.exists() else []
        )
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


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path / "LOCK", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
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


# ---- the verbs


@log.command()
@click.argument("payloads", nargs=-1, required=True, metavar="RECORD...")
@click.option(
    "--tag", type=click.IntRange(1, 255), default=1, show_default=True, help="The kind of the records."
)
@_directory
@notation
@as_json
def append(payloads: Sequence[str], tag: int, path: Path, notation: Notation, as_json: bool) -> None:
    """Append records, durably and in this order; prints their numbers (GSNs). Makes the log if the
    directory is new.

    A RECORD `-` is read from the standard input, `@PATH` from a file. The log of a database is refused.
    """
    batch = [(tag, notation.read_value(text)) for text in payloads]
    with _opened_for_writing(path, create=True) as opened:
        numbers = list(opened.append(batch))
    rendering.answer(as_json, {"gsns": numbers}, " ".join(map(str, numbers)))


@log.command()
@click.argument("gsn", type=click.IntRange(min=1))
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Read so many, or up to the tail.",
)
@_directory
@notation
@as_json
def read(gsn: int, count: int, path: Path, notation: Notation, as_json: bool) -> None:
    """Print the record with number GSN: number, time, tag, payload."""
    with _opened(path) as (opened, kinds):
        tail = opened.tail()
        if gsn > tail:
            raise FutureVersion(gsn, tail)
        found = opened.scan(gsn, min(gsn + count, tail + 1))
        rendering.rows(COLUMNS, (_row(record, kinds) for record in found), as_json=as_json, notation=notation)


@log.command()
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=1),
    metavar="GSN",
    help="From this record on (default: the oldest).",
)
@click.option(
    "--tag", "tags", type=click.IntRange(1, 255), multiple=True, help="Only this kind (repeatable)."
)
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="S", help="End when nothing has come for S seconds."
)
@_directory
@notation
@as_json
def subscribe(
    first: int | None,
    tags: Sequence[int],
    timeout: float | None,
    path: Path,
    notation: Notation,
    as_json: bool,
) -> None:
    """Print the records in order, and those to come as they are appended. Ctrl-C ends it and says where to
    go on.
    """
    with _opened(path) as (opened, kinds):
        position = first if first is not None else opened.oldest()
        subscription = opened.subscribe(position, tags or None)
        try:
            with Interrupts() as interrupts:
                while (batch := subscription.poll(timeout)) is not None:
                    with interrupts.held():
                        table = (_row(record, kinds) for record in batch.records)
                        rendering.rows(COLUMNS, table, as_json=as_json, notation=notation, tables=False)
                        sys.stdout.flush()
                        position = batch.end
        except KeyboardInterrupt:
            raise Failure(f"interrupted; go on with --from {position}", INTERRUPTED) from None


@log.command()
@click.argument("gsn", type=click.IntRange(min=1))
@_directory
@as_json
def trim(gsn: int, path: Path, as_json: bool) -> None:
    """Let the records before GSN go. Whole segment files are removed, so older ones may stay for a while.

    The log of a database is refused: that is what `logdb compact` is for.
    """
    with _opened_for_writing(path, create=False) as opened:
        opened.trim(gsn)
        oldest = opened.left_by_trim(gsn)
    rendering.answer(as_json, {"oldest": oldest}, f"the oldest record left is {oldest}")


@log.command()
@_directory
@as_json
def tail(path: Path, as_json: bool) -> None:
    """Print the number of the last durable record, 0 for an empty log."""
    with _opened(path) as (opened, _):
        last = opened.tail()
    rendering.answer(as_json, {"tail": last}, str(last))


def _row(record: LogRecord, kinds: dict[int, str]) -> tuple[int, str | None, str | int, bytes]:
    time = iso(moments.moment(record.time))
    return record.lsn, time, kinds.get(record.tag, record.tag), record.payload
