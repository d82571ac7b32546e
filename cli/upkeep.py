"""Maintenance of a database: info, stats, compact, pin, unpin, sweep, checkpoint, verify, audit."""

from __future__ import annotations

import click

import logdb
from logdb.api import inspection, timestamps
from logdb.tables import IndexesVerified

from . import rendering
from .failing import Negative
from .rendering import counted
from .session import Session, as_json, database, iso


@click.command()
@click.option(
    "--before",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="The oldest version to keep (default: the newest).",
)
@as_json
@database
@click.pass_obj
def compact(session: Session, before: int | None, as_json: bool) -> None:
    """Remove data that only reads of older versions need, and free its disk space. Pinned versions stay readable."""
    with session.open(read_only=False) as db, rendering.counting("compacting", "entries") as add:
        done = db.compact(before, progress=add)
    rendering.answer(
        as_json,
        done._asdict(),
        f"the oldest version left is {done.floor}; {counted(done.relocated, 'live value')} moved, the log begins"
        f" at record {done.oldest_after} (before: {done.oldest_before}); {done.read_bytes / 1e6:,.1f} MB were read, "
        f"{done.written_bytes / 1e6:,.1f} MB written and {done.freed_bytes / 1e6:,.1f} MB freed",
    )


@click.command()
@click.argument("name", required=False)
@click.option("--at", type=click.IntRange(min=0), metavar="VERSION", help="The version to pin (default: the newest).")
@as_json
@database
@click.pass_obj
def pin(session: Session, name: str | None, at: int | None, as_json: bool) -> None:
    """Keep a version readable through compactions, under NAME, until `unpin NAME`. Without NAME: list the
    pins.
    """
    if name is None:
        if at is not None:
            raise click.UsageError("a pin needs a NAME")
        with session.open(read_only=True) as db:
            rendering.rows(("name", "version"), sorted(db.pins.items()), as_json=as_json)
        return
    with session.open(read_only=False) as db:
        version = db.pin(name, at)
    rendering.answer(as_json, {"name": name, "version": version}, f"version {version} is pinned as {name}")


@click.command()
@click.argument("name")
@database
@click.pass_obj
def unpin(session: Session, name: str) -> None:
    """Remove the pin NAME. Exit code 1 if there is none."""
    with session.open(read_only=False) as db:
        if name not in db.pins:
            raise Negative(f"no pin {name!r}")
        db.unpin(name)


@click.command()
@as_json
@database
@click.pass_obj
def sweep(session: Session, as_json: bool) -> None:
    """Delete what has expired: keys with a ttl, and entries that the retention of their named log does not keep.

    Programs that have opened a database, servers and clusters do so in the background. The age of what was written
    since the last sweep counts from this one on.
    """
    keys = logs = 0
    with session.open(read_only=False) as db:
        is_complete = False
        while not is_complete:
            expired, truncated, is_complete = db.sweep()
            keys, logs = keys + expired, logs + truncated
    document = {"expired_keys": keys, "truncated_logs": logs}
    sentence = f"{counted(keys, 'expired key')} deleted, {counted(logs, 'named log')} truncated"
    rendering.answer(as_json, document, sentence)


@click.command()
@as_json
@database
@click.pass_obj
def checkpoint(session: Session, as_json: bool) -> None:
    """Write a checkpoint of the key map, so that the next opening of the database replays nothing."""
    with session.open(read_only=False) as db, rendering.counting("writing the checkpoint", "keys") as add:
        version = db.checkpoint(progress=add)
    rendering.answer(as_json, {"covers": version}, f"the checkpoint covers version {version}")


@click.command()
@click.option("--count", is_flag=True, help="Count the keys, too: this reads all of them.")
@as_json
@database
@click.pass_obj
def info(session: Session, count: bool, as_json: bool) -> None:
    """Show what a database has: its versions and pins, and of a directory the sizes of its log and its checkpoint, and
    how much of the log is garbage.

    Of a cluster, `logdb cluster status` shows the servers.
    """
    with session.open(read_only=True) as db:
        found = inspection.info(db)
        keys = sum(1 for _ in db.at(found.version).scan()) if count else None
    time = None if found.time_ns is None else iso(timestamps.moment(found.time_ns))
    document = {**found._asdict(), "time": time, "keys": keys}
    del document["time_ns"]
    if as_json:
        rendering.emit(document)
        return
    lines = [("database", found.path), ("newest version", f"{found.version}" + (f" of {time}" if time else ""))]
    lines += [("oldest version", str(found.oldest_version))]
    lines += [(f"pin {name}", f"version {version}") for name, version in sorted(found.pins.items())]
    lines += [("keys", f"{keys:,}")] if keys is not None else []
    if found.garbage is not None:
        lines += [
            ("log", f"{found.log_bytes:,} bytes, of which {found.garbage:.0%} are garbage at least"),
            ("checkpoint", f"{found.map_bytes:,} bytes"),
            ("in memory", f"{found.memory_bytes:,} bytes of the map"),
        ]
    width = max(len(name) for name, _ in lines)
    for name, what in lines:
        click.echo(f"{name:{width}}  {what}")


@click.command()
@as_json
@database
@click.pass_obj
def stats(session: Session, as_json: bool) -> None:
    """Show numbers about a running database: sizes, garbage, memory, commits, aborts and latencies.

    With --endpoints they are those of the server, or of the mapping server of a cluster that answers.
    `logdb cluster status` shows all servers.
    """
    with session.open(read_only=True) as db:
        found = db.stats()
    if as_json:
        rendering.emit(found._asdict())
        return
    lines = [
        ("database", found.path),
        ("versions", f"{found.oldest_version} to {found.version}, {found.pins} pinned"),
        ("keys", f"at most {found.max_keys:,}"),
        ("log", f"{found.log_bytes:,} bytes, of which {found.garbage:.0%} are garbage at least"),
        ("live data", f"about {found.live_bytes:,} bytes"),
        ("checkpoint", f"{found.map_bytes:,} bytes in {counted(found.map_runs, 'run')}"),
        ("in memory", f"{found.memory_bytes:,} bytes of the map, {found.cache_bytes:,} bytes of cached records"),
    ]
    if found.process_bytes is not None and found.leased_snapshots is not None:
        snapshots = counted(found.leased_snapshots, "snapshot")
        lines += [("process", f"{found.process_bytes:,} bytes of memory, {snapshots} in use")]
    lines += [("commits", f"{found.commits:,} applied since the process started")]
    if found.compacting_to:
        lines += [("compaction", f"under way; it leaves the versions from {found.compacting_to} on")]
    if found.exports:
        lines += [("exports", f"{found.exports} exports or backups read the directory")]
    if found.expired_keys is not None and found.truncated_logs is not None:
        truncated = counted(found.truncated_logs, "time")
        lines += [("retention", f"{counted(found.expired_keys, 'key')} expired, named logs truncated {truncated}")]
    if found.hedged_reads:
        lines += [("late reads", f"{found.hedged_reads:,} were sent to a second server, too")]
    for reason, label, number in found.aborts:
        lines += [("aborts", f"{number:,} for {reason}" + (f" of {label!r}" if label else ""))]
    lines += [("round trip", f"{1e3 * found.read_s:.2f} ms")]
    lines += [("sync", f"about {1e3 * found.sync_s:.2f} ms")] if found.sync_s is not None else []
    width = max(len(name) for name, _ in lines)
    for name, what in lines:
        click.echo(f"{name:{width}}  {what}")


@click.command()
@click.option("--rebuild", is_flag=True, help="First rebuild the checkpoint from the log.")
@as_json
@database
@click.pass_obj
def verify(session: Session, rebuild: bool, as_json: bool) -> None:
    """Check every byte on disk: the log by its checksums, the checkpoint against the log. Then check the indexes
    of all tables against their rows. Exit code 1 if there is damage.

    Repair damage in the log by restoring a backup (`logdb restore`), damage in the checkpoint (map/) with --rebuild,
    and an index by dropping it and creating it again.
    """
    path = session.directory
    if rebuild:
        with rendering.progress("rebuilding the checkpoint", "records") as tick:
            logdb.rebuild(path, progress=tick)
    with rendering.progress("verifying", is_bytes=True) as tick:
        found = inspection.verify(path, progress=tick)
    indexes = inspection.verify_indexes(path) if not found.damage else IndexesVerified(0, 0, 0, [])
    if as_json:
        damage = [{"path": one.path, "offset": one.offset, "what": one.what} for one in found.damage]
        damaged = [
            {"table": one.table_name, "index": one.index_name, "key": repr(one.key), "what": one.what}
            for one in indexes.damage
        ]
        checked = {"tables": indexes.tables, "indexes": indexes.indexes, "entries": indexes.entries}
        rendering.emit(found._asdict() | {"damage": damage} | checked | {"damaged_indexes": damaged})
    else:
        for one in found.damage:
            click.echo(str(one))
        click.echo(
            f"{found.bytes_checked:,} bytes, {counted(found.records, 'record')}, {counted(found.keys, 'key')} in the"
            " checkpoint checked: " + (f"{len(found.damage)} damaged" if found.damage else "no damage")
        )
        for wrong in indexes.damage:
            click.echo(f"table {wrong.table_name!r}, index {wrong.index_name!r}, row {wrong.key!r}: {wrong.what}")
        if indexes.indexes:
            click.echo(
                f"{counted(indexes.indexes, 'index', 'indexes')} of {counted(indexes.tables, 'table')} with"
                f" {counted(indexes.entries, 'entry', 'entries')} checked: "
                + (counted(len(indexes.damage), "difference") if indexes.damage else "no difference")
            )
    if found.damage:
        raise Negative(f"{path} is damaged, first in {found.damage[0].path}")
    if indexes.damage:
        raise Negative(f"indexes in {path} differ from their rows: drop them and create them again")


@click.command()
@as_json
@database
@click.pass_obj
def audit(session: Session, as_json: bool) -> None:
    """Decide every commit in the log again, and report the first whose decision differs. Exit code 1 if there is
    one.
    """
    with rendering.progress("auditing", "records") as tick:
        found = inspection.audit(session.directory, progress=tick)
    rendering.answer(
        as_json,
        found._asdict(),
        f"{counted(found.commits, 'commit')} up to version {found.through} decided again,"
        f" {found.aborted:,} of them aborted"
        + (f", {found.trusted:,} from before a compaction trusted" if found.trusted else "")
        + (": no decision differs" if found.difference is None else ""),
    )
    if found.difference is not None:
        raise Negative(found.difference)
