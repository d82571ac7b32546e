"""Reading and writing keys: put, get, delete, add, min, max, multi-get, multi-put, scan, history, watch, outcome."""

from __future__ import annotations

import datetime as dt
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

import logdb
from logdb import Change, Condition, VersionTrimmed
from logdb.api import timestamps
from logdb.store.conditions import NAMES

from . import rendering
from .encoding import Notation, escaped
from .failing import INTERRUPTED, BadInput, Failure, Negative
from .interrupts import Interrupts
from .quantities import DURATION
from .rendering import counted
from .session import Session, as_json, database, iso, label, moment, moment_of, notation, read_pairs, snapshot


@click.command()
@click.argument("key")
@click.argument("value")
@click.option("--ttl", type=DURATION, metavar="TIME", help="Let the key expire after TIME, such as 30m or 7d.")
@label
@notation
@as_json
@database
@click.pass_obj
def put(
    session: Session, key: str, value: str, ttl: float | None, label: str, notation: Notation, as_json: bool
) -> None:
    """Write VALUE under KEY. Prints the version.

    A VALUE `-` is read from the standard input and `@PATH` from a file, byte by byte; `@@text` is the value
    `@text`.
    """
    write(session, {notation.read(key): notation.read_value(value)}, label, as_json, ttl)


@click.command()
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--prefix", metavar="P", help="Delete the keys that begin with P instead; '' deletes all keys.")
@click.option("--start", metavar="KEY", help="Delete the keys from KEY on instead.")
@click.option("--end", metavar="KEY", help="Delete the keys before KEY instead.")
@label
@notation
@as_json
@database
@click.pass_obj
def delete(
    session: Session,
    keys: Sequence[str],
    prefix: str | None,
    start: str | None,
    end: str | None,
    label: str,
    notation: Notation,
    as_json: bool,
) -> None:
    """Delete keys, all at once; they need not exist. Prints the version.

    A prefix or a range is one small record in the log, whatever it holds.
    """
    low, high, begin = (None if text is None else notation.read(text) for text in (start, end, prefix))
    has_range = low is not None or high is not None
    if bool(keys) + has_range + (begin is not None) != 1:
        raise click.UsageError("give keys, or --prefix, or --start and --end")
    if keys:
        write(session, dict.fromkeys(map(notation.read, keys)), label, as_json, create=False)
        return
    if session.transaction is not None:
        if begin is None:
            session.transaction.delete_range(low, high)
        else:
            session.transaction.delete_prefix(begin)
        return
    with session.open(read_only=False, create=False) as db:
        version = db.delete_range(low, high, label=label) if begin is None else db.delete_prefix(begin, label=label)
    rendering.answer(as_json, {"version": version}, f"version {version}")


def write(
    session: Session,
    items: dict[bytes, bytes | None],
    label: str,
    as_json: bool,
    ttl: float | None = None,
    *,
    create: bool = True,
) -> None:
    """Write all of `items`; in a transaction that is under way, which has its version only when it commits."""
    if session.transaction is not None:
        session.transaction.multi_put(items, ttl=ttl)
        return
    with session.open(read_only=False, create=create) as db:
        version = db.multi_put(items, label=label, ttl=ttl)
    rendering.answer(as_json, {"version": version}, f"version {version}")


def _with_number(verb: Callable[..., None]) -> click.Command:
    """A command that changes the number under KEY by N. N may be negative, so `-5` is not taken for an option."""
    for decorator in (
        click.pass_obj,
        database,
        as_json,
        notation,
        label,
        click.argument("n", type=int),
        click.argument("key"),
    ):
        verb = decorator(verb)
    name = verb.__name__.rstrip("_")
    return click.command(name, context_settings={"ignore_unknown_options": True})(verb)


@_with_number
def add(session: Session, key: str, n: int, label: str, notation: Notation, as_json: bool) -> None:
    """Add N to the number under KEY; a key that does not exist counts as 0. Prints the version.

    The value is a decimal number as text. Additions to one key do not conflict, wherever they come from.
    """
    _change_number(session, "add", notation.read(key), n, label, as_json)


@_with_number
def min_(session: Session, key: str, n: int, label: str, notation: Notation, as_json: bool) -> None:
    """Set the number under KEY to N, unless it is smaller already. Prints the version."""
    _change_number(session, "min", notation.read(key), n, label, as_json)


@_with_number
def max_(session: Session, key: str, n: int, label: str, notation: Notation, as_json: bool) -> None:
    """Set the number under KEY to N, unless it is larger already. Prints the version."""
    _change_number(session, "max", notation.read(key), n, label, as_json)


def _change_number(session: Session, verb: str, key: bytes, n: int, label: str, as_json: bool) -> None:
    if session.transaction is not None:
        getattr(session.transaction, verb)(key, n)
        return
    with session.open(read_only=False, create=True) as db:
        version = getattr(db, verb)(key, n, label=label)
    rendering.answer(as_json, {"version": version}, f"version {version}")


@click.command()
@click.argument("key")
@click.option("--raw", is_flag=True, help="Print the bytes of the value, without escapes and without a newline.")
@moment
@notation
@as_json
@database
@click.pass_obj
def get(
    session: Session,
    key: str,
    raw: bool,
    at: int | None,
    at_time: dt.datetime | None,
    notation: Notation,
    as_json: bool,
) -> None:
    """Print the value of KEY. Exit code 1 if the key does not exist."""
    name = notation.read(key)
    with session.reading(moment_of(at, at_time)) as db:
        value = db.get(name)
    if value is None:
        raise Negative(f"no key {notation.show(name)!r}")
    if as_json:
        rendering.emit({"key": notation.json(name), "value": notation.json(value)})
    elif raw:
        sys.stdout.buffer.write(value)
    else:
        click.echo(notation.show(value) if notation.is_hex else escaped(value, keep="\n\t"))


@click.command("multi-get")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@moment
@notation
@as_json
@database
@click.pass_obj
def multi_get(
    session: Session,
    keys: Sequence[str],
    at: int | None,
    at_time: dt.datetime | None,
    notation: Notation,
    as_json: bool,
) -> None:
    """Print the values of several keys, all of one snapshot. Exit code 1 if one is missing.

    A single KEY `-` reads the keys from the standard input, one a line.
    """
    texts = [line.rstrip("\r\n") for line in sys.stdin] if list(keys) == ["-"] else keys
    names = [notation.read(text) for text in texts]
    with session.reading(moment_of(at, at_time)) as db:
        found = db.multi_get(names)
    rendering.rows(("key", "value"), ((name, found.get(name)) for name in names), as_json=as_json, notation=notation)
    missing = [name for name in names if name not in found]
    if missing:
        some = f"{len(missing)} of {counted(len(names), 'key')} not found"
        raise Negative(f"{some}, the first is {notation.show(missing[0])!r}")


def _conditions(command: Any) -> Any:
    for name, count, metavar, meaning in (
        ("version-greater", 2, "KEY N", "KEY exists and its newest version is after N."),
        ("version-less", 2, "KEY N", "KEY's newest version is before N, or it does not exist."),
        ("version", 2, "KEY N", "KEY's newest version is N (0: it does not exist)."),
        ("exists", 1, "KEY", "KEY exists."),
        ("absent", 1, "KEY", "KEY does not exist."),
        ("equals", 2, "KEY VALUE", "KEY holds VALUE."),
    ):
        command = click.option(
            f"--if-{name}", nargs=count, multiple=True, metavar=metavar, help=f"Only write if {meaning}"
        )(command)
    return command


@click.command("multi-put")
@click.argument("pairs", nargs=-1, metavar="[KEY VALUE]...")
@click.option(
    "--delete",
    "deleted",
    multiple=True,
    metavar="KEY",
    help="Delete KEY in the same transaction (repeatable).",
)
@_conditions
@label
@notation
@as_json
@database
@click.pass_obj
def multi_put(
    session: Session,
    pairs: Sequence[str],
    deleted: Sequence[str],
    label: str,
    notation: Notation,
    as_json: bool,
    if_equals: Sequence[tuple[str, str]],
    if_absent: Sequence[str],
    if_exists: Sequence[str],
    if_version: Sequence[tuple[str, str]],
    if_version_less: Sequence[tuple[str, str]],
    if_version_greater: Sequence[tuple[str, str]],
) -> None:
    """Write several keys, all or nothing; with conditions only if all of them hold (test-and-multi-put).

    Exit code 1 if a condition failed, and nothing was written then.
    """
    read = notation.read
    conditions = [
        *(logdb.equals(read(key), notation.read_value(value)) for key, value in if_equals),
        *(logdb.absent(read(key)) for key in if_absent),
        *(logdb.exists(read(key)) for key in if_exists),
        *(logdb.version_equals(read(key), _version(number)) for key, number in if_version),
        *(logdb.version_less(read(key), _version(number)) for key, number in if_version_less),
        *(logdb.version_greater(read(key), _version(number)) for key, number in if_version_greater),
    ]
    items = read_pairs(pairs, notation) | dict.fromkeys(map(read, deleted))
    if not items and not conditions:
        raise click.UsageError("nothing to write: give KEY VALUE pairs, --delete KEY, or conditions to test")
    if not conditions:
        write(session, items, label, as_json)
        return
    if session.transaction is not None:
        raise BadInput("conditions are a transaction of their own: commit or abort the one under way first")
    with session.open(read_only=False, create=True) as db:
        tested = db.test_and_multi_put(conditions, items, label=label)
    failed = [_condition_json(condition, notation) for condition in tested.failed]
    if as_json:
        rendering.emit({"committed": tested.committed, "version": tested.version, "failed": failed})
    elif tested.committed:
        click.echo(f"version {tested.version}")
    if not tested.committed:
        which = "; ".join(_condition_text(condition, notation) for condition in tested.failed)
        raise Negative(f"nothing was written, this does not hold: {which}")


def _version(text: str) -> int:
    if not text.isdecimal():
        raise BadInput(f"a version is a whole number, not {text!r}")
    return int(text)


def _condition_json(condition: Condition, notation: Notation) -> dict[str, Any]:
    operand = condition.operand
    return {
        "condition": NAMES[condition.operator],
        "key": notation.json(condition.key),
        "operand": operand
        if isinstance(operand, int)
        else notation.json(operand)
        if isinstance(operand, bytes)
        else None,
    }


def _condition_text(condition: Condition, notation: Notation) -> str:
    operand = condition.operand
    what = NAMES[condition.operator].replace("_", " ").replace("absent", "is absent")
    detail = f" {operand}" if isinstance(operand, int) else ""
    if isinstance(operand, bytes):
        detail = f" {notation.show(operand)!r}"
    return f"{notation.show(condition.key)!r} {what}{detail}"


@click.command()
@click.option("--prefix", metavar="P", help="Only keys that begin with P.")
@click.option("--start", metavar="KEY", help="The first key of the range.")
@click.option("--end", metavar="KEY", help="The end of the range; this key is not included.")
@click.option("--reverse", is_flag=True, help="From the last key to the first.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N keys.")
@click.option("--keys-only", is_flag=True, help="Print keys without values.")
@moment
@notation
@as_json
@database
@click.pass_obj
def scan(
    session: Session,
    prefix: str | None,
    start: str | None,
    end: str | None,
    reverse: bool,
    limit: int | None,
    keys_only: bool,
    at: int | None,
    at_time: dt.datetime | None,
    notation: Notation,
    as_json: bool,
) -> None:
    """List keys and values in key order, all of one snapshot."""
    low, high, begin = (None if text is None else notation.read(text) for text in (start, end, prefix))
    with session.reading(moment_of(at, at_time)) as db:
        found: Iterator[tuple[bytes, ...]] = db.scan(low, high, prefix=begin, reverse=reverse, limit=limit)
        columns: tuple[str, ...] = ("key", "value")
        if keys_only:
            columns, found = ("key",), (row[:1] for row in found)
        rendering.rows(columns, found, as_json=as_json, notation=notation)


@click.command()
@click.argument("key")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Only the newest N versions.")
@moment
@notation
@as_json
@database
@click.pass_obj
def history(
    session: Session,
    key: str,
    limit: int | None,
    at: int | None,
    at_time: dt.datetime | None,
    notation: Notation,
    as_json: bool,
) -> None:
    """List the versions of KEY that are retained, newest first; a version without a value deleted the key.

    Exit code 1 if there is none.
    """
    name = notation.read(key)
    with session.open(read_only=True) as db:
        entries = snapshot(db, moment_of(at, at_time)).history(name)
        first = next(entries, None)
        if first is None:
            raise Negative(f"no version of {notation.show(name)!r}")

        def time_of(version: int) -> str | None:
            try:
                return iso(db.time_of(version))
            except VersionTrimmed:
                return None

        table = (
            (entry.version, time_of(entry.version), entry.value)
            for entry in itertools.islice(itertools.chain([first], entries), limit)
        )
        rendering.rows(("version", "time", "value"), table, as_json=as_json, notation=notation)


@click.command()
@click.option("--prefix", metavar="P", help="Only changes of keys that begin with P.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Only changes of this key (repeatable).")
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="Commits after VERSION (default: from now on).",
)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="S", help="End after S seconds without a commit.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N commits.")
@notation
@as_json
@database
@click.pass_obj
def watch(
    session: Session,
    prefix: str | None,
    keys: Sequence[str],
    since: int | None,
    timeout: float | None,
    limit: int | None,
    notation: Notation,
    as_json: bool,
) -> None:
    """Print commits as they happen, without gaps: version, time, label and changes (KEY=VALUE, -KEY for a deletion, or
    -[START, END) for the deletion of a range).

    Ctrl-C ends it and prints the version to continue from with --since.
    """
    seen = since
    with session.open(read_only=True) as db:
        seen = db.version if seen is None else seen
        changes = db.watch(
            None if prefix is None else notation.read(prefix),
            keys=[notation.read(key) for key in keys] or None,
            since=seen,
            timeout=timeout,
        )
        try:
            with Interrupts() as interrupts:
                for change in itertools.islice(changes, limit):
                    with interrupts.delayed():
                        click.echo(_change_json(change, notation) if as_json else _change_line(change, notation))
                        seen = change.version
        except KeyboardInterrupt:
            raise Failure(f"interrupted; continue with --since {seen}", INTERRUPTED) from None


def _time(change: Change) -> str | None:
    return iso(timestamps.moment(change.time))


def _change_json(change: Change, notation: Notation) -> str:
    changes = [{"key": notation.json(key), "value": notation.json(value)} for key, value in change.changes.items()]
    line = {"version": change.version, "time": _time(change), "label": change.label, "changes": changes}
    if change.deleted:
        line["deleted"] = [
            {"start": notation.json(start), "end": None if end is None else notation.json(end)}
            for start, end in change.deleted
        ]
    return rendering.line(line)


def _change_line(change: Change, notation: Notation) -> str:
    parts = [
        f"-[{notation.show(start)}, {'...' if end is None else notation.show(end)})" for start, end in change.deleted
    ]
    parts += [
        f"-{notation.show(key)}" if value is None else f"{notation.show(key)}={notation.show(value)}"
        for key, value in change.changes.items()
    ]
    head = f"{click.style(str(change.version), fg='cyan')}\t{_time(change)}\t{escaped(change.label.encode())}"
    return "\t".join([head, *parts])


@click.command()
@click.argument("txn_id")
@click.option("--settle", is_flag=True, help="If it is not found, abort it for good, in case it still arrives.")
@as_json
@database
@click.pass_obj
def outcome(session: Session, txn_id: str, settle: bool, as_json: bool) -> None:
    """Print how the transaction TXN_ID ended: committed, aborted, not found or forgotten (compacted away).

    Exit code 1 unless it committed.
    """
    with session.open(read_only=not settle) as db:
        ended = db.outcome(txn_id, settle=settle)
    sentence = ended.status.value + (f" at version {ended.version}" if ended.committed else "")
    rendering.answer(as_json, {"status": ended.status.value, "version": ended.version}, sentence)
    if not ended.committed:
        raise click.exceptions.Exit(1)
