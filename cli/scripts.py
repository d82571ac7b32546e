"""Lines of commands: `logdb txn` runs a script of them as one transaction, and the shell runs them as they
come.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TextIO

import click

from . import data, rendering
from .encoding import Notation
from .failing import NEGATIVE, BadInput, Failure, Negative, code_of, complain, explained
from .session import Session, as_json, database, label, notation


@click.command()
@click.argument("key")
@click.argument("relation", type=click.Choice(["equals", "absent", "exists"]))
@click.argument("value", required=False)
@notation
@click.pass_obj
def check(session: Session, key: str, relation: str, value: str | None, notation: Notation) -> None:
    """Abort the transaction unless KEY equals VALUE, is absent, or exists."""
    assert session.transaction is not None
    if (relation == "equals") != (value is not None):
        raise click.UsageError("check KEY equals VALUE, check KEY absent, or check KEY exists")
    name = notation.read(key)
    found = session.transaction.get(name)
    wanted = None if value is None else notation.read_value(value)
    if (found is None) if relation == "absent" else (found is not None and wanted in (None, found)):
        return
    holds = "does not exist" if found is None else f"is {notation.show(found)!r}"
    raise Negative(f"the check failed and nothing was written: {notation.show(name)!r} {holds}")


READING: Final[Mapping[str, click.Command]] = {
    "get": data.get,
    "multi-get": data.multi_get,
    "scan": data.scan,
    "check": check,
}
WRITING: Final[Mapping[str, click.Command]] = {
    "put": data.put,
    "delete": data.delete,
    "multi-put": data.multi_put,
    "add": data.add,
    "min": data.min_,
    "max": data.max_,
}


class Line(NamedTuple):
    """A line of a script."""

    number: int
    name: str
    args: list[str]


def split(text: str) -> list[str]:
    """The words of a line, quoted as in a shell; none for a blank line or a comment. Raises BadInput."""
    if text.lstrip().startswith("#"):
        return []
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(f"{text.strip()!r} cannot be split into words: {error}") from error


def run(ctx: click.Context, command: click.Command, name: str, args: Sequence[str]) -> None:
    """Run one command of a line. Raises Failure, UsageError."""
    with contextlib.suppress(click.exceptions.Exit), explained():
        with command.make_context(name, list(args), parent=ctx) as inner:
            command.invoke(inner)


@click.command()
@click.argument("script", type=click.File(), default="-")
@click.option("--guard-writes", is_flag=True, help="Also conflict when a written key that was not read has changed.")
@label
@notation
@as_json
@database
@click.pass_context
def txn(ctx: click.Context, script: TextIO, guard_writes: bool, label: str, notation: Notation, as_json: bool) -> None:
    """Run a SCRIPT (a file, or `-`: the standard input) as one transaction. Prints what it reads and its
    version.

    \b
    One operation a line, words quoted as in a shell, `#` begins a comment line:
      get KEY
      multi-get KEY...
      scan [--prefix P] [--start KEY] [--end KEY] [--reverse] [--limit N]
      put KEY VALUE
      multi-put KEY VALUE [KEY VALUE]... [--delete KEY]
      delete KEY... | delete --prefix P | delete [--start KEY] [--end KEY]
      add KEY N | min KEY N | max KEY N
      check KEY equals VALUE | check KEY absent | check KEY exists
    The reads see one snapshot and the writes made before them. All writes become visible at once at the
    end, or none: a check that fails, a mistake in a line and a conflict with another transaction abort it
    (exit codes 1, 2 and 1).
    """
    session: Session = ctx.obj
    if session.transaction is not None:
        raise BadInput("a transaction is under way already: commit or abort it first")
    lines = list(_lines(script))
    read_only = all(line.name in READING for line in lines)
    flags = (["--json"] if as_json else []) + (["--hex"] if notation.is_hex else [])
    with session.open(read_only=read_only, create=not read_only) as db:
        outer, session.shell_db = session.shell_db, db
        try:
            with db.transaction(read_only=read_only, label=label, guard_writes=guard_writes) as transaction:
                session.transaction = transaction
                identity = transaction.id
                for line in lines:
                    _run_in_transaction(ctx, line, flags)
        finally:
            session.shell_db, session.transaction = outer, None
    if not transaction.writes_nothing:
        document = {"committed": True, "version": transaction.version, "id": identity}
        rendering.answer(as_json, document, f"committed at version {transaction.version}")
    else:
        rendering.answer(
            as_json,
            {"read": True, "version": transaction.snapshot},
            f"read at version {transaction.snapshot}",
        )


def _lines(script: TextIO) -> Iterator[Line]:
    """The lines of the script, all known to be operations before any is run."""
    for number, text in enumerate(script, 1):
        words = split(text)
        if not words:
            continue
        name, *args = words
        if name not in READING and name not in WRITING:
            known = ", ".join([*READING, *WRITING])
            raise BadInput(f"{script.name}, line {number}: no operation {name!r} in a transaction (there are {known})")
        yield Line(number, name, args)


def _run_in_transaction(ctx: click.Context, line: Line, flags: Sequence[str]) -> None:
    command = READING.get(line.name) or WRITING[line.name]
    accepted = {name for option in command.params for name in option.opts}
    try:
        run(ctx, command, line.name, [*(flag for flag in flags if flag in accepted), *line.args])
    except click.ClickException as error:
        where = f"line {line.number}: {error.format_message()}"
        if code_of(error) == NEGATIVE and command is not check:
            complain(Negative(where))
        else:
            raise Failure(where, code_of(error)) from error
