"""The group of all commands."""

from __future__ import annotations

import functools
import os
import sys
from importlib import metadata

import click

from . import backups, bench, clusters, data, logs, named_logs, scripts, security, serving, shell, transfer, upkeep
from .failing import EXIT_CODES, OneLineGroup
from .session import Session, database


def show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """The option `--version`."""
    if value:
        click.echo(f"logdb {metadata.version('logdb')} (Python {sys.version.split()[0]})")
        ctx.exit()


@click.group(cls=OneLineGroup, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@functools.partial(database, environment=True)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=show_version, help="Print the version."
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """LogDB: a transactional key-value database on a totally ordered log.

    The database is a directory: `logdb --db DIR COMMAND`, `logdb COMMAND --db DIR`, or LOGDB_DB in the
    environment. Commands that only read also run while another process writes. For a database behind servers use
    --endpoints HOST:PORT, or LOGDB_ENDPOINTS, with the token in LOGDB_TOKEN if the servers require one. Keys and values
    are UTF-8 text, or hexadecimal with --hex; the value `-` is read from standard input, `@PATH` from a file.
    """
    session = ctx.ensure_object(Session)
    if os.environ.get("LOGDB_TOKEN"):
        session.credentials.setdefault("token", os.environ["LOGDB_TOKEN"])


@click.command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def show_help(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a COMMAND, such as `logdb help cluster status`; without one, the list of commands."""
    at = ctx.find_root()
    for word in words:
        group = at.command
        found = group.get_command(at, word) if isinstance(group, click.Group) else None
        if found is None:
            raise click.UsageError(f"no command {' '.join(words)!r}; `logdb help` lists them")
        at = click.Context(found, at, word)
    click.echo(at.get_help())


for command in (
    data.put,
    data.get,
    data.delete,
    data.add,
    data.min_,
    data.max_,
    data.multi_get,
    data.multi_put,
    data.scan,
    data.history,
    data.watch,
    scripts.txn,
    data.outcome,
    shell.shell,
    transfer.import_,
    transfer.export,
    upkeep.info,
    upkeep.stats,
    upkeep.compact,
    upkeep.pin,
    upkeep.unpin,
    upkeep.sweep,
    upkeep.checkpoint,
    upkeep.verify,
    upkeep.audit,
    backups.backup,
    backups.restore,
    bench.bench,
    named_logs.named_log,
    logs.log,
    serving.serve,
    security.certificates,
    security.token,
    clusters.cluster,
    show_help,
):
    cli.add_command(command)
