"""Named logs of a database: append, read, follow, truncate, delete and list; their consumers."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from typing import Final

import click

from logdb.named_logs import ConsumerState, Entry, LogStats, Position, Retention

from . import rendering
from .encoding import Notation
from .failing import INTERRUPTED, Failure
from .interrupts import Interrupts
from .quantities import DURATION, SIZE
from .session import Session, as_json, database, moment_time, notation

COLUMNS: Final = ("position", "txn_id", "value")


def _position(ctx: click.Context, param: click.Parameter, value: str | None) -> Position | None:
    try:
        return None if value is None else Position.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


after = click.option("--after", callback=_position, metavar="POSITION", help="Only entries behind POSITION.")


@click.group("named-log", context_settings={"help_option_names": ["-h", "--help"]})
def named_log() -> None:
    """Named logs in a database: entries in the order of its log, each with a position (VERSION.INDEX)."""


def _row(entry: Entry) -> tuple[str, int | None, bytes]:
    return str(entry.position), entry.txn_id, entry.value


@named_log.command("list")
@as_json
@database
@click.pass_obj
def list_(session: Session, as_json: bool) -> None:
    """Print the names of the logs that have entries or were created."""
    with session.open(read_only=True) as db:
        rendering.rows(("name",), ((name,) for name in db.logs()), as_json=as_json)


@named_log.command()
@click.argument("name")
@click.argument("values", nargs=-1, required=True, metavar="VALUE...")
@click.option("--txn-id", type=click.IntRange(min=0), metavar="N", help="A number that never decreases along the log.")
@click.option("--key", metavar="KEY", help="A partition key, for groups of consumers.")
@notation
@as_json
@database
@click.pass_obj
def append(
    session: Session,
    name: str,
    values: Sequence[str],
    txn_id: int | None,
    key: str | None,
    notation: Notation,
    as_json: bool,
) -> None:
    """Append entries to the log NAME in one transaction, and print their positions."""
    with session.open(read_only=False, create=True) as db:
        partition_key = None if key is None else notation.read_value(key)
        positions = db.log(name).extend(map(notation.read_value, values), txn_id=txn_id, key=partition_key)
    rendering.rows(("position",), ((str(position),) for position in positions), as_json=as_json)


@named_log.command()
@click.argument("name")
@after
@click.option("--since", callback=moment_time, metavar="TIME", help="Only entries committed after TIME (ISO 8601).")
@click.option("--from-txn-id", type=click.IntRange(min=0), metavar="N", help="From the first transaction id N or more.")
@click.option("--reverse", is_flag=True, help="From the last entry to the first.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Print at most N entries.")
@notation
@as_json
@database
@click.pass_obj
def read(
    session: Session,
    name: str,
    after: Position | None,
    since: dt.datetime | None,
    from_txn_id: int | None,
    reverse: bool,
    limit: int | None,
    notation: Notation,
    as_json: bool,
) -> None:
    """Print the entries of the log NAME: position, transaction id and value."""
    with session.open(read_only=True) as db:
        entries = db.log(name).read(after, since=since, from_txn_id=from_txn_id, reverse=reverse, limit=limit)
        rendering.rows(COLUMNS, map(_row, entries), as_json=as_json, notation=notation)


@named_log.command()
@click.argument("name")
@after
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="End after S seconds without an entry.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N entries.")
@notation
@as_json
@database
@click.pass_obj
def follow(
    session: Session,
    name: str,
    after: Position | None,
    timeout: float | None,
    limit: int | None,
    notation: Notation,
    as_json: bool,
) -> None:
    """Print the entries of the log NAME as they are appended, from the first one on, without gaps.

    Ctrl-C ends it and prints the position to continue from with --after.
    """
    seen = after
    with session.open(read_only=True) as db:
        entries = db.log(name).subscribe(after, timeout=timeout)
        try:
            with Interrupts() as interrupts:
                for entry in itertools.islice(entries, limit):
                    with interrupts.delayed():
                        rendering.rows(COLUMNS, [_row(entry)], as_json=as_json, notation=notation, tables=False)
                        seen = entry.position
        except KeyboardInterrupt:
            how = "" if seen is None else f"; continue with --after {seen}"
            raise Failure(f"interrupted{how}", INTERRUPTED) from None


@named_log.command()
@click.argument("name")
@as_json
@database
@click.pass_obj
def stats(session: Session, name: str, as_json: bool) -> None:
    """Print the number of entries of the log NAME, the size of their values in bytes, the first and the last position,
    and the last transaction id. Reads all entries."""
    with session.open(read_only=True) as db:
        found = db.log(name).stats()
    ends = [None if at is None else str(at) for at in (found.first, found.last)]
    row = (found.entries, found.size_bytes, *ends, found.last_txn_id)
    rendering.rows(LogStats._fields, [row], as_json=as_json)


@named_log.command()
@click.argument("name")
@click.argument("before", callback=_position, metavar="POSITION")
@as_json
@database
@click.pass_obj
def truncate(session: Session, name: str, before: Position, as_json: bool) -> None:
    """Delete the entries of the log NAME before POSITION. Prints the version."""
    with session.open(read_only=False) as db:
        version = db.log(name).truncate(before)
    rendering.answer(as_json, {"version": version}, f"version {version}")


@named_log.command()
@click.argument("name")
@as_json
@database
@click.pass_obj
def delete(session: Session, name: str, as_json: bool) -> None:
    """Delete the log NAME with all its entries. Prints the version."""
    with session.open(read_only=False) as db:
        version = db.log(name).delete()
    rendering.answer(as_json, {"version": version}, f"version {version}")


@named_log.command()
@click.argument("name")
@click.option("--age", type=DURATION, metavar="TIME", help="Keep entries for TIME, such as 12h or 7d.")
@click.option("--size", type=SIZE, metavar="BYTES", help="Keep the newest BYTES of entries, such as 500MB or 10GiB.")
@click.option("--none", "removes", is_flag=True, help="Keep entries until they are truncated.")
@as_json
@database
@click.pass_obj
def retention(session: Session, name: str, age: float | None, size: int | None, removes: bool, as_json: bool) -> None:
    """Print how long the log NAME keeps its entries, in seconds and in bytes; with options, change it first. Sweeps
    delete the others: see `logdb sweep`."""
    if removes and (age, size) != (None, None):
        raise click.UsageError("give --none, or --age and --size, but not both")
    changes = removes or (age, size) != (None, None)
    with session.open(read_only=not changes, create=changes) as db:
        log = db.log(name)
        if changes:
            log.set_retention(None if removes else Retention(age, size))
        kept = log.retention
    row = (None, None) if kept is None else (kept.age_s, kept.size_bytes)
    rendering.rows(("age_s", "size_bytes"), [row], as_json=as_json)


@named_log.group(context_settings={"help_option_names": ["-h", "--help"]})
def consumer() -> None:
    """Consumers of a named log: cursors that move in the transactions of their effects."""


@consumer.command("list")
@click.argument("name")
@as_json
@database
@click.pass_obj
def list_consumers(session: Session, name: str, as_json: bool) -> None:
    """Print the consumers of the log NAME: partition, position, lag and owner. A group has a row for each partition."""
    with session.open(read_only=True) as db:
        states = db.log(name).consumers()
    positions = [None if state.position is None else str(state.position) for state in states]
    rows = [(each.name, each.partition, at, each.lag, each.owner) for each, at in zip(states, positions, strict=True)]
    rendering.rows(ConsumerState._fields, rows, as_json=as_json)


@consumer.command("reset")
@click.argument("name")
@click.argument("consumer")
@click.option("--after", callback=_position, metavar="POSITION", help="Continue behind POSITION.")
@click.option("--since", callback=moment_time, metavar="TIME", help="With the entries committed after TIME (ISO 8601).")
@click.option("--to-end", is_flag=True, help="Continue with the next entry that is appended.")
@as_json
@database
@click.pass_obj
def reset_consumer(
    session: Session,
    name: str,
    consumer: str,
    after: Position | None,
    since: dt.datetime | None,
    to_end: bool,
    as_json: bool,
) -> None:
    """Move the cursor of CONSUMER of the log NAME, by default to the first entry. Prints the version."""
    with session.open(read_only=False) as db:
        version = db.log(name).consumer(consumer).reset(after, since=since, to_end=to_end)
    rendering.answer(as_json, {"version": version}, f"version {version}")


@consumer.command("delete")
@click.argument("name")
@click.argument("consumer")
@as_json
@database
@click.pass_obj
def delete_consumer(session: Session, name: str, consumer: str, as_json: bool) -> None:
    """Delete CONSUMER of the log NAME with its cursor. Prints the version."""
    with session.open(read_only=False) as db:
        version = db.log(name).consumer(consumer).delete()
    rendering.answer(as_json, {"version": version}, f"version {version}")
