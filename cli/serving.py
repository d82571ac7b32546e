"""`logdb serve`: a server for one database directory; with a role, one server of a cluster."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import click

from logdb.api.opening import SWEEP_INTERVAL_S
from logdb.system.logging_setup import log_to_stderr

from .dashboards import DEFAULT, server_pages
from .failing import FAILED, BadInput, Failure
from .rendering import progress
from .servers import RoleCommands
from .session import Session, database

LEVELS: Final = ("debug", "info", "warning", "error")
FILE: Final = click.Path(path_type=Path, dir_okay=False)


@click.group(cls=RoleCommands, invoke_without_command=True)
@click.option(
    "--listen",
    default="127.0.0.1:7400",
    show_default=True,
    metavar="HOST:PORT",
    help="The address for clients; port 0 takes any free port.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="warning",
    show_default=True,
    help="Log messages of this level and above on stderr.",
)
@click.option(
    "--compact-above",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Compact the log when more than this share of it is garbage (0 to 1; default: never).",
)
@click.option(
    "--sweep-interval",
    type=click.FloatRange(0.001),
    default=SWEEP_INTERVAL_S,
    show_default=True,
    metavar="S",
    help="Delete what has expired (keys with a ttl, entries of named logs) every S seconds.",
)
@click.option(
    "--cold",
    metavar="URL",
    help="Copy the log's segments to this directory or store (s3://...) before compactions remove them.",
)
@click.option("--certificate", type=FILE, metavar="FILE", help="The server's certificate (PEM); enables TLS.")
@click.option("--certificate-key", "key", type=FILE, metavar="FILE", help="Its key, if it is in another file.")
@click.option("--ca", type=FILE, metavar="FILE", help="Require a client certificate that this CA has signed.")
@click.option("--tokens", type=FILE, metavar="FILE", help="The rights of clients: the file that `logdb token` writes.")
@click.option(
    "--dashboard",
    is_flag=False,
    flag_value=DEFAULT,
    metavar="[HOST:PORT]",
    help=f"Also serve pages for browsers there (default: {DEFAULT}), behind the same certificate and tokens.",
)
@functools.partial(database, shows=False)
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    listen: str,
    log_level: str,
    compact_above: float | None,
    sweep_interval: float,
    cold: str | None,
    dashboard: str | None,
    **files: Path | None,
) -> None:
    """Serve the database in a directory to `logdb.connect` and to commands with --endpoints.

    Prints one line when it is ready. SIGTERM or Ctrl-C stop it: it answers the requests that it has accepted, and
    closes the database; a second signal ends it at once. To listen at an address that other machines can reach,
    it needs a certificate, and tokens or the CA of its clients' certificates.
    """
    if ctx.invoked_subcommand is not None:
        return
    session = ctx.ensure_object(Session)
    path = session.directory
    try:
        from logdb.security.authenticator import Authenticator, Security
        from logdb.server.process import serve as serve_directory
    except ImportError as error:
        missing = f"a server needs more than is installed ({error.name}): pip install 'logdb[cluster]'"
        raise Failure(missing, FAILED) from error
    security = Security(**files)
    try:
        authenticator = Authenticator(security, listen)
        if dashboard is not None:
            security.check(dashboard)
    except ValueError as error:
        raise BadInput(str(error)) from error

    log_to_stderr(path.name, log_level.upper())
    with progress("replaying the log", "records") as tick:
        serve_directory(
            path,
            listen,
            authenticator,
            ready=lambda address: click.echo(f"ready: {path} at {address}"),
            compact_above=compact_above,
            sweep_interval=sweep_interval,
            cold=cold,
            progress=tick,
            beside=nullcontext if dashboard is None else server_pages(authenticator, dashboard, security),
        )
