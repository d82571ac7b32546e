"""The database of a command, and how it is opened: the options that commands share.

A command that runs alone opens and closes the database itself. A command that is a line in the shell uses the shell's
open database, and its transaction if one has begun.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import click
from click.core import ParameterSource

import logdb
from logdb import Database, Snapshot, Transaction
from logdb.api import timestamps

from .encoding import HEX, TEXT, Notation
from .failing import FAILED, BadInput, Failure
from .rendering import progress

F = TypeVar("F", bound=Callable[..., Any])

CLUSTER_FILE: Final = "cluster.toml"
"""In the directory of a cluster."""


class Moment(NamedTuple):
    """The version or time of `--at` and `--at-time`; now without them."""

    version: int | None
    time: dt.datetime | None

    @property
    def is_now(self) -> bool:
        return self.version is None and self.time is None


class Reads(Protocol):
    """The reads that a database, a snapshot and a transaction offer."""

    def get(self, key: bytes) -> bytes | None: ...
    def multi_get(self, keys: list[bytes]) -> dict[bytes, bytes]: ...
    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]: ...


@dataclass
class Session:
    """The database of a command. `path`, `endpoints`: from `--db` or `--endpoints`, at most one of them; `is_explicit`:
    from an option, which overrides the environment. `credentials`: the arguments of `logdb.connect` for authentication.
    `shell_db`: the open database of a shell, `transaction`: begun in it.
    """

    path: Path | None = None
    endpoints: str | None = None
    is_explicit: bool = False
    credentials: dict[str, Any] = field(default_factory=dict)
    shell_db: Database | None = None
    transaction: Transaction | None = None

    @property
    def directory(self) -> Path:
        if self.endpoints is not None:
            raise click.UsageError("this command needs the directory itself: use --db DIR, not --endpoints")
        if self.path is None:
            raise click.UsageError("no database is named: use --db DIR or set LOGDB_DB")
        if (self.path / CLUSTER_FILE).is_file():
            servers = f"--endpoints $(logdb cluster endpoints --dir {self.path})"
            raise BadInput(f"{self.path} is the directory of a cluster, not of a database: use {servers}")
        return self.path

    def choose(self, *, path: Path | None = None, endpoints: str | None = None, is_explicit: bool) -> None:
        """Use one of the two. Raises UsageError if the other one was set in the same way."""
        other = self.endpoints if endpoints is None else self.path
        if other is not None and is_explicit == self.is_explicit:
            if is_explicit:
                raise click.UsageError("use --db or --endpoints, but not both")
            raise click.UsageError("LOGDB_DB and LOGDB_ENDPOINTS are both set: unset one, or use an option")
        if is_explicit or not self.is_explicit:
            self.path, self.endpoints, self.is_explicit = path, endpoints, is_explicit

    @contextmanager
    def open(self, *, read_only: bool, create: bool = False) -> Iterator[Database]:
        """The database, closed again at the end unless it is the shell's."""
        if self.shell_db is not None:
            yield self.shell_db
            return
        if self.endpoints is not None:
            try:
                db = logdb.connect(self.endpoints, **self.credentials)
            except ValueError as error:
                raise BadInput(str(error)) from error
            except ModuleNotFoundError as error:
                raise Failure(str(error), FAILED) from error
            with db:
                yield db
            return
        with progress("replaying the log", "records") as tick:
            db = logdb.open(self.directory, read_only=read_only, create=create, progress=tick)
        with db:
            yield db

    @contextmanager
    def reading(self, moment: Moment) -> Iterator[Reads]:
        """The current transaction, or the database at that moment."""
        if self.transaction is not None and moment.is_now:
            yield self.transaction
            return
        with self.open(read_only=True) as db:
            yield snapshot(db, moment)


def snapshot(db: Database, moment: Moment) -> Snapshot:
    """The database at that moment."""
    return db.at(moment.version, time=moment.time)


class _Directory(click.Path):
    """A path, which is not empty: the value of a variable of the shell that is not set names no directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty", param, ctx)
        return super().convert(value, param, ctx)


DIRECTORY: Final = _Directory(path_type=Path)
OF_DATABASE: Final = "The servers of the database, instead of --db"
_CHOICES = {"db": "path", "endpoints": "endpoints"}


def _set_database(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    session = ctx.ensure_object(Session)
    if value is None:
        return
    if session.shell_db is not None:
        raise click.UsageError("the shell has its database open already: --db and --endpoints belong to `logdb shell`")
    is_explicit = ctx.get_parameter_source(str(param.name)) is not ParameterSource.ENVIRONMENT
    session.choose(**{_CHOICES[str(param.name)]: value}, is_explicit=is_explicit)


def moment_time(ctx: click.Context, param: click.Parameter, value: str | None) -> dt.datetime | None:
    if value is None:
        return None
    try:
        return timestamps.parsed(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


CREDENTIALS: Final = {
    "ca": "Connect with TLS to servers whose certificate this CA (PEM) has signed",
    "certificate": "Present this certificate (PEM) to servers that require one",
    "certificate_key": "The key of --certificate, if it is in another file",
    "token_file": "A file with the token that the servers require",
}
"""The credentials for servers. Every command accepts these options; only the group's help lists them."""


def _show(ctx: click.Context, param: click.Parameter, value: Path | None) -> None:
    session = ctx.ensure_object(Session)
    if value is None:
        return
    if param.name != "token_file":
        session.credentials[str(param.name)] = value
        return
    try:
        session.credentials["token"] = value.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{value} cannot be read: {getattr(error, 'strerror', 'it is not text')}") from error


def showing(command: F, environment: bool = False) -> F:
    """The options with credentials for servers; `environment`: also from environment variables."""
    for name, what in reversed(CREDENTIALS.items()):
        variable = "LOGDB_" + name.upper()
        option = click.option(
            "--" + name.replace("_", "-"),
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            envvar=variable if environment else None,
            callback=_show,
            expose_value=False,
            hidden=not environment,
            help=f"{what} (or the environment variable {variable}).",
        )
        command = option(command)
    return command


def endpoints(command: F, *, environment: bool = False, shows: bool = True, what: str = OF_DATABASE) -> F:
    """The option `--endpoints`, and with `shows` those of `showing`. Only the group reads the environment, so that it
    does not override an option of the group.
    """
    if shows:
        command = showing(command, environment)
    return click.option(
        "--endpoints",
        metavar="HOST:PORT,...",
        envvar="LOGDB_ENDPOINTS" if environment else None,
        callback=_set_database,
        expose_value=False,
        help=f"{what} (or the environment variable LOGDB_ENDPOINTS).",
    )(command)


def database(command: F, *, environment: bool = False, shows: bool = True) -> F:
    """The options `--db` and `--endpoints`."""
    return click.option(
        "--db",
        type=DIRECTORY,
        metavar="DIR",
        envvar="LOGDB_DB" if environment else None,
        callback=_set_database,
        expose_value=False,
        help="The database directory (or the environment variable LOGDB_DB).",
    )(endpoints(command, environment=environment, shows=shows))


def as_json(command: F) -> F:
    """The option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")(command)


def notation(command: F) -> F:
    """The option `--hex`."""
    return click.option(
        "--hex",
        "notation",
        is_flag=True,
        callback=lambda ctx, param, value: HEX if value else TEXT,
        help="Keys and values are hexadecimal, in arguments and in output (default: UTF-8 text).",
    )(command)


def label(command: F) -> F:
    """The option `--label`."""
    return click.option("--label", default="", help="A name for the transaction, shown to watchers and in conflicts.")(
        command
    )


def moment(command: F) -> F:
    """The options `--at` and `--at-time`; the command takes `at` and `at_time`, and makes a Moment of them."""
    for option in (
        click.option(
            "--at-time",
            callback=moment_time,
            metavar="TIME",
            help="Read as of a time: 2024-05-01T12:30 (local, unless it names its zone) or seconds since the epoch.",
        ),
        click.option("--at", type=click.IntRange(min=0), metavar="VERSION", help="Read as of a version."),
    ):
        command = option(command)
    return command


def moment_of(at: int | None, at_time: dt.datetime | None) -> Moment:
    """Raises UsageError when both are given."""
    if at is not None and at_time is not None:
        raise click.UsageError("give --at or --at-time, but not both")
    return Moment(at, at_time)


def read_pairs(texts: Iterable[str], notation: Notation) -> dict[bytes, bytes | None]:
    """KEY VALUE KEY VALUE ... Raises BadInput."""
    words = list(texts)
    if len(words) % 2:
        raise BadInput(f"keys and values come in pairs; the key {words[-1]!r} has no value")
    if words[1::2].count("-") > 1:
        raise BadInput("only one value can come from the standard input")
    items: dict[bytes, bytes | None] = {}
    for key, value in zip(words[::2], words[1::2], strict=True):
        items[notation.read(key)] = notation.read_value(value)
    return items


def iso(time: dt.datetime | None) -> str | None:
    """A time for output."""
    return None if time is None else time.isoformat(timespec="milliseconds")
