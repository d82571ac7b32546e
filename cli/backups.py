"""Backups and the way back: backup, restore."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import Any

import click

import logdb
from logdb import Backup
from logdb.api.timestamps import moment as date_of

from . import rendering
from .failing import FAILED, INTERRUPTED, Failure, Negative
from .rendering import counted
from .session import Session, as_json, database, iso, moment, moment_of

COLUMNS = ("backup", "full", "from", "to", "time", "records", "bytes")


@click.command()
@click.argument("to")
@click.option("--full", is_flag=True, help="Make a full backup, which needs none of those before it.")
@click.option("--list", "lists", is_flag=True, help="List the backups in TO instead.")
@click.option("--verify", "verifies", is_flag=True, help="Read and check every byte of the backups in TO instead.")
@as_json
@database
@click.pass_obj
def backup(session: Session, to: str, full: bool, lists: bool, verifies: bool, as_json: bool) -> None:
    """Back up the database to TO, a directory or a URL such as s3://bucket/folder, while it is used.

    The first backup there is full. Each further one adds what was written since the last, or is full if a compaction
    has removed that: pin a version (`logdb pin`) to prevent it. An interrupted backup counts for nothing, and the next
    run continues it.

    With --db, a backup has the log itself: `logdb restore` makes a directory with the same versions. It can run beside
    a server of that directory. With --endpoints it has the keys and values that a client can read, also of a cluster.

    A URL needs `pip install 'logdb[backup]'` and the package of its store: s3fs, gcsfs, adlfs.
    """
    if lists + verifies + full > 1:
        raise click.UsageError("use one of --full, --list and --verify")
    if lists:
        table = [_row(one) for one in _extra(lambda: logdb.list_backups(to))]
        rendering.rows(COLUMNS, table, as_json=as_json)
    elif verifies:
        _verify(to, as_json)
    else:
        begun = time.time_ns()
        try:
            with session.open(read_only=True) as db, rendering.progress("backing up", "records") as tick:
                done = _extra(lambda: logdb.backup(db, to, full=full, progress=tick))
        except KeyboardInterrupt:
            raise Failure("interrupted; run the same command again to continue this backup", INTERRUPTED) from None
        kind = "full" if done.is_full else f"after version {done.since}"
        rendering.answer(
            as_json,
            _document(done),
            ("nothing is new; " if done.taken < begun else "")
            + f"backup {done.number} ({kind}) of version {done.version} is in {to}: {counted(done.records, 'record')},"
            f" {done.size_bytes:,} bytes",
        )


def _verify(to: str, as_json: bool) -> None:
    with rendering.progress("verifying", is_bytes=True) as tick:
        found = _extra(lambda: logdb.verify_backup(to, progress=tick))
    damage = [{"path": one.path, "offset": one.offset, "what": one.what} for one in found.damage]
    if not as_json:
        for one in found.damage:
            click.echo(str(one))
    rendering.answer(
        as_json,
        found._asdict() | {"damage": damage},
        f"{counted(found.backups, 'backup')} with {counted(found.records, 'record')} and {found.bytes_checked:,} bytes"
        " checked: " + (f"{len(damage)} damaged" if damage else "no damage"),
    )
    if damage:
        raise Negative(f"{to} is damaged, first in {damage[0]['path']}; make a full backup with --full")


def _row(one: Backup) -> tuple[rendering.Cell, ...]:
    time = None if one.time is None else iso(date_of(one.time))
    since = one.oldest if one.is_full else one.since
    return one.number, "full" if one.is_full else "", since, one.version, time, one.records, one.size_bytes


def _document(one: Backup) -> dict[str, Any]:
    return dict(zip(COLUMNS, _row(one), strict=True)) | {"full": one.is_full}


def _extra(function: Callable[[], Any]) -> Any:
    """The result of `function`. Raises Failure with the package to install."""
    try:
        return function()
    except ModuleNotFoundError as error:
        if error.name != "fsspec":
            raise
        raise Failure(str(error), FAILED) from error


@click.command()
@click.argument("location", metavar="FROM")
@moment
@as_json
@database
@click.pass_obj
def restore(session: Session, location: str, at: int | None, at_time: dt.datetime | None, as_json: bool) -> None:
    """Restore the backups in FROM into a new directory (--db), or into an empty cluster or server (--endpoints).

    It restores the newest version of the backups, or that of --at or --at-time; `logdb backup FROM --list` shows which
    versions there are. The directory must be missing or empty, and a database behind --endpoints must have no keys.

    Backups of a directory restore into a directory with the same versions, history and pins. In all other cases the
    keys and values are written anew, with new versions. A directory is a database only when all is restored: after an
    interruption run the command again.
    """
    when, logs = moment_of(at, at_time), list[str]()
    try:
        with rendering.progress("restoring", "records") as tick:
            if session.endpoints is None:
                done = _extra(
                    lambda: logdb.restore(
                        location, session.directory, version=when.version, time=when.time, progress=tick
                    )
                )
            else:
                with session.open(read_only=False) as db:
                    done = _extra(
                        lambda: logdb.restore(location, db, version=when.version, time=when.time, progress=tick)
                    )
                    logs = db.logs() if done.new_version < done.version else []
    except KeyboardInterrupt:
        again = "run the same command again"
        if session.endpoints is not None:
            again = "delete what was written (`logdb delete --prefix ''`), and run the same command again"
        raise Failure(f"interrupted; the database is not restored: {again}", INTERRUPTED) from None
    versions = "" if done.new_version == done.version else f"; its versions are new, up to {done.new_version}"
    if logs:
        versions += f"; below version {done.version}, new entries of the log {logs[0]!r} come before the restored ones"
    rendering.answer(as_json, done._asdict(), f"version {done.version} is restored{versions}")
