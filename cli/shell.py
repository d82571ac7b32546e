"""The interactive shell: every command on one open database, and transactions that span several lines."""

from __future__ import annotations

import cmd
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from logdb import Transaction

from . import scripts
from .failing import INTERRUPTED, NEGATIVE, USAGE, BadInput, Failure, code_of, complain, explained
from .session import Session, database

HISTORY_FILE: Final = ".logdb_history"
OWN_VERBS: Final = {
    "begin": "begin [--read-only] [LABEL]: begin a transaction; reads and writes belong to it from now on",
    "commit": "commit: write what the transaction has put and deleted, or explain the conflict",
    "abort": "abort: forget the transaction",
    "check": "check KEY equals VALUE | absent | exists: fail, and abort the transaction, unless that holds",
    "help": "help [COMMAND]: this list, or a command's own help",
    "exit": "exit: leave (also Ctrl-D); a transaction under way is aborted",
}


class Abandoned(Exception):
    """Thrown into a transaction to abort it."""


class Shell(cmd.Cmd):
    """`code`: the greatest exit code of a line so far. Piped input ends at the first line that fails with 2
    or more.
    """

    def __init__(self, ctx: click.Context, session: Session, *, interactive: bool) -> None:
        super().__init__()
        assert ctx.parent is not None
        self._ctx, self._session, self._interactive = ctx.parent, session, interactive
        root = ctx.find_root().command
        assert isinstance(root, click.Group)
        self._commands = {name: command for name, command in root.commands.items() if name != "shell"}
        self._open_transaction = contextlib.ExitStack()
        self.code = 0
        self._set_prompt()

    # ---- lines

    def onecmd(self, line: str) -> bool:
        """Run a line; true ends the shell."""
        if line == "EOF" and self._interactive:  # from `cmd`, for Ctrl-D
            click.echo()
            return True
        try:
            words = scripts.split(line)
            if not words:
                return False
            if words[0] in ("exit", "quit"):
                return True
            self._run(words[0], words[1:])
        except click.ClickException as error:
            complain(error)
            self.code = max(self.code, code_of(error))
            return not self._interactive and code_of(error) >= USAGE
        finally:
            sys.stdout.flush()
            self._set_prompt()
        return False

    def emptyline(self) -> bool:
        """No effect; `cmd` would repeat the last line."""
        return False

    def _run(self, verb: str, args: Sequence[str]) -> None:
        if verb in ("begin", "commit", "abort"):
            with explained():
                {"begin": self._begin, "commit": self._commit, "abort": self._abort}[verb](args)
        elif verb == "help":
            self._help(args)
        elif verb == "check":
            self._transaction_needed()
            try:
                scripts.run(self._ctx, scripts.check, verb, args)
            except Failure:
                self._abort(())
                raise
        elif verb in self._commands:
            scripts.run(self._ctx, self._commands[verb], verb, args)
        else:
            raise BadInput(f"no command {verb!r}; `help` lists them")

    # ---- transactions

    def _begin(self, args: Sequence[str]) -> None:
        if self._session.transaction is not None:
            raise BadInput("a transaction is under way already: commit or abort it first")
        assert self._session.shell_db is not None
        read_only = "--read-only" in args
        label = " ".join(arg for arg in args if arg != "--read-only")
        begun = self._session.shell_db.transaction(read_only=read_only, label=label)
        self._session.transaction = self._open_transaction.enter_context(begun)
        snapshot = self._session.transaction.snapshot
        click.echo(f"reading version {snapshot}" if snapshot else "reading the version of the first read")

    def _commit(self, args: Sequence[str]) -> None:
        transaction = self._transaction_needed()
        try:
            self._open_transaction.close()
        finally:
            self._session.transaction = None
        what = f"committed at version {transaction.version}"
        click.echo("nothing was to be written" if transaction.writes_nothing else what)

    def _abort(self, args: Sequence[str]) -> None:
        self._transaction_needed()
        self._session.transaction = None
        with contextlib.suppress(Abandoned), self._open_transaction:
            raise Abandoned
        self._open_transaction = contextlib.ExitStack()
        click.echo("aborted")

    def _transaction_needed(self) -> Transaction:
        if self._session.transaction is None:
            raise BadInput("no transaction is under way: `begin` one first")
        return self._session.transaction

    def leave(self) -> None:
        """A transaction that was not committed is aborted, and a script that ends so has failed."""
        if self._session.transaction is not None:
            self._abort(())
            if not self._interactive and self.code < USAGE:
                complain(Failure("the input ended before the transaction's commit", NEGATIVE))
                self.code = max(self.code, NEGATIVE)

    # ---- help and completion

    def _help(self, args: Sequence[str]) -> None:
        if not args:
            for name, command in sorted(self._commands.items()):
                click.echo(f"  {name:12} {command.get_short_help_str(90)}")
            for text in OWN_VERBS.values():
                click.echo(f"  {text}")
        elif args[0] in OWN_VERBS:
            click.echo(OWN_VERBS[args[0]])
        else:
            self._run(args[0], ["--help"])

    def completenames(self, text: str, *ignored: object) -> list[str]:
        """The verbs that begin with this text."""
        return [f"{name} " for name in sorted({*self._commands, *OWN_VERBS}) if name.startswith(text)]

    def completedefault(self, text: str, line: str, *ignored: object) -> list[str]:
        """The options of the line's command that begin with this text."""
        command = self._commands.get(line.split(maxsplit=1)[0])
        options = [] if command is None else [name for param in command.params for name in param.opts]
        return [f"{name} " for name in options if name.startswith("--") and name.startswith(text)]

    def _set_prompt(self) -> None:
        mark = "" if self._session.transaction is None else "*"
        self.prompt = f"logdb{mark}> " if self._interactive else ""

    def loop(self) -> None:
        """Read lines until the end. Ctrl-C at the prompt begins a new line."""
        while True:
            try:
                if self._interactive:
                    self.cmdloop()
                else:
                    any(self.onecmd(line.rstrip("\r\n")) for line in sys.stdin)  # up to one that ends the shell
                return
            except KeyboardInterrupt:
                if not self._interactive:
                    raise Failure("interrupted", INTERRUPTED) from None
                click.echo()


@click.command()
@click.option("--read-only", is_flag=True, help="Only read: works while another process writes.")
@database
@click.pass_context
def shell(ctx: click.Context, read_only: bool) -> None:
    """Run commands on one open database, line by line; begin, commit and abort make transactions of several
    lines.

    Lines from a pipe work too: the shell ends at the first line that fails with exit code 2 or higher, and its
    own exit code is the greatest of all lines.
    """
    session: Session = ctx.obj
    if read_only and session.endpoints is not None:
        raise click.UsageError("--read-only goes with --db: a server writes itself, and lets anybody else do so too")
    interactive = sys.stdin.isatty()
    with session.open(read_only=read_only, create=True) as db:
        session.shell_db = db
        try:
            lines = Shell(ctx, session, interactive=interactive)
            if interactive:
                click.echo(f"{db.path}, version {db.version}; `help` lists the commands, Ctrl-D leaves")
                with _line_editing():
                    lines.loop()
            else:
                lines.loop()
            lines.leave()
        finally:
            session.shell_db = None
    if lines.code and not interactive:
        raise click.exceptions.Exit(lines.code)


@contextlib.contextmanager
def _line_editing() -> Iterator[None]:
    """Completion of words with dashes, and the lines of earlier shells."""
    import readline

    path = Path.home() / HISTORY_FILE
    readline.set_completer_delims(" \t\n")
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        readline.set_history_length(1000)
        with contextlib.suppress(OSError):
            readline.write_history_file(path)
