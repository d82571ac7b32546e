"""The shared log without a database: append, read, subscribe, trim and tail, in a directory or on a cluster."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from logdb.api import timestamps
from logdb.errors import FutureVersion, Unavailable
from logdb.log import Batch, Log, OrderedLog, Subscription
from logdb.log.contract import AppendId, LogRecord, TraceableLog

from . import rendering
from .encoding import Notation
from .failing import INTERRUPTED, Failure
from .interrupts import Interrupts
from .log_places import InDirectory, OfCluster
from .session import DIRECTORY, Session, as_json, endpoints, iso, notation

Place = InDirectory | OfCluster
TIMEOUT_S: Final = 30.0
COLUMNS: Final = ("gsn", "time", "tag", "payload")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def log() -> None:
    """The shared log itself: numbered records in a directory of their own, or on the servers of a cluster that
    is a log and no database. The log of a database can be read too.
    """


def _place(command: Callable[..., None]) -> Callable[..., None]:
    """The options `--dir` and `--endpoints`; the command is given a `place`."""

    def placed(ctx: click.Context, /, path: Path | None, **arguments: Any) -> None:
        session = ctx.ensure_object(Session)
        if path is not None and session.endpoints is not None and session.is_explicit:
            raise click.UsageError("give --dir or --endpoints, but not both")
        if path is not None:
            command(place=InDirectory(path), **arguments)
        elif session.endpoints is not None:
            command(place=OfCluster(session.endpoints, session.credentials), **arguments)
        else:
            raise click.UsageError("which log? give --dir DIR, --endpoints HOST:PORT or set LOGDB_ENDPOINTS")

    functools.update_wrapper(placed, command)
    return click.option(
        "--dir",
        "path",
        type=DIRECTORY,
        metavar="DIR",
        help="The directory of a log, or of a database to read its log.",
    )(endpoints(click.pass_context(placed), what="The servers of a cluster, instead of --dir"))


# ---- the verbs


@log.command()
@click.argument("payloads", nargs=-1, required=True, metavar="RECORD...")
@click.option("--tag", type=click.IntRange(1, 255), default=1, show_default=True, help="The kind of the records.")
@_place
@notation
@as_json
def append(payloads: Sequence[str], tag: int, place: Place, notation: Notation, as_json: bool) -> None:
    """Append records, durably and in this order; prints their numbers (GSNs). Makes the log if the
    directory is new.

    A RECORD `-` is read from the standard input, `@PATH` from a file. The log of a database is refused.
    """
    batch = [(tag, notation.read_value(text)) for text in payloads]
    with place.writing(create=True) as opened:
        numbers = list(opened.append(batch))
    rendering.answer(as_json, {"gsns": numbers}, " ".join(map(str, numbers)))


@log.command()
@click.argument("gsn", type=click.IntRange(min=1))
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Maximum number of records, up to the tail.",
)
@_place
@notation
@as_json
def read(gsn: int, count: int, place: Place, notation: Notation, as_json: bool) -> None:
    """Print the record with number GSN: number, time, tag, payload."""
    with place.reading() as (opened, kinds):
        tail = opened.tail()
        if gsn > tail:
            raise FutureVersion(gsn, tail)
        found = _between(opened, gsn, min(gsn + count, tail + 1))
        rendering.rows(COLUMNS, (_row(record, kinds) for record in found), as_json=as_json, notation=notation)


@log.command()
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=1),
    metavar="GSN",
    help="The first record (default: the oldest).",
)
@click.option("--tag", "tags", type=click.IntRange(1, 255), multiple=True, help="Only this kind (repeatable).")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="End after S seconds without a record.")
@_place
@notation
@as_json
def subscribe(
    first: int | None,
    tags: Sequence[int],
    timeout: float | None,
    place: Place,
    notation: Notation,
    as_json: bool,
) -> None:
    """Print the records in order, and those to come as they are appended. Ctrl-C ends it and says where to
    go on.
    """
    with place.reading() as (opened, kinds):
        position = first if first is not None else opened.oldest()
        tail, subscription = opened.tail(), opened.subscribe(position, tags or None)
        try:
            with Interrupts() as interrupts:
                while (batch := _next(subscription, position, tail, timeout)) is not None:
                    with interrupts.delayed():
                        table = (_row(record, kinds) for record in batch.records)
                        rendering.rows(COLUMNS, table, as_json=as_json, notation=notation, tables=False)
                        sys.stdout.flush()
                        position = batch.end
        except KeyboardInterrupt:
            raise Failure(f"interrupted; go on with --from {position}", INTERRUPTED) from None


@log.command()
@click.argument("append_id", metavar="ID")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Search at most S seconds.",
)
@_place
@as_json
def outcome(append_id: str, timeout: float, place: Place, as_json: bool) -> None:
    """Print where the records of an append are of which the outcome was unknown: of each its number (GSN). ID is
    what the error has said. Ends with 3 if they are not found: the client may yet append them, unless it has
    ended for long.
    """
    if isinstance(place, InDirectory):
        raise click.UsageError("only appends to a cluster have ids: read the log to see what is there")
    wanted = AppendId.parse(append_id)
    with place.writing(create=False) as opened:
        assert isinstance(opened, TraceableLog)
        numbers = opened.outcome(wanted, timeout)
    words = " ".join("never" if number is None else str(number) for number in numbers)
    rendering.answer(as_json, {"gsns": list(numbers)}, words)


@log.command()
@click.argument("gsn", type=click.IntRange(min=1))
@_place
@as_json
def trim(gsn: int, place: Place, as_json: bool) -> None:
    """Remove the records before GSN. Only whole segment files are removed, so older records may stay for a while.

    The log of a database is refused: that is what `logdb compact` is for.
    """
    with place.writing(create=False) as opened:
        opened.trim(gsn)
        oldest = opened.oldest_after_trim(gsn) if isinstance(opened, OrderedLog) else opened.oldest()
    rendering.answer(as_json, {"oldest": oldest}, f"the oldest record left is {oldest}")


@log.command()
@_place
@as_json
def tail(place: Place, as_json: bool) -> None:
    """Print the number of the last durable record, 0 for an empty log."""
    with place.reading() as (opened, _):
        last = opened.tail()
    rendering.answer(as_json, {"tail": last}, str(last))


def _between(log: Log, first: int, end: int) -> Iterator[LogRecord]:
    """The records `first` to `end` - 1, which are there."""
    if isinstance(log, OrderedLog):
        yield from log.scan(first, end)
        return
    subscription = log.subscribe(first)
    while first < end:
        batch = _next(subscription, first, end - 1, TIMEOUT_S)
        assert batch is not None
        yield from (record for record in batch.records if record.gsn < end)
        first = batch.end
    subscription.close()


def _next(subscription: Subscription, position: int, tail: int, timeout: float | None) -> Batch | None:
    """The next batch; None if nothing has come in time after the `tail`. Up to there it must come: servers that are far
    away need some time even if none is given to them.
    """
    if timeout is None or position > tail:
        return subscription.poll(timeout)
    batch = subscription.poll(max(timeout, TIMEOUT_S))
    if batch is None:
        raise Unavailable(f"record {position} is in the log, and no server that has it answers: see `cluster status`")
    return batch


def _row(record: LogRecord, kinds: Mapping[int, str]) -> tuple[int, str | None, str | int, bytes]:
    time = iso(timestamps.moment(record.time))
    return record.gsn, time, kinds.get(record.tag, record.tag), record.payload
