"""`logdb certificates` and `logdb token`: what it takes to let others in."""

from __future__ import annotations

from pathlib import Path

import click

from .failing import FAILED, BadInput, Failure

CERTIFICATE_DAYS = 365
MISSING = "is not installed: pip install 'logdb[cluster]'"


@click.command()
@click.option(
    "--to",
    "directory",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the files go; a CA that is there signs the rest.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A cluster's configuration: ROLE-NAME.pem for each of its servers.",
)
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="server.pem for `logdb serve --db`, at this host.")
@click.option("--client", "clients", multiple=True, metavar="NAME", help="NAME.pem for a client.")
@click.option(
    "--days", type=click.IntRange(1, 3_650), default=CERTIFICATE_DAYS, show_default=True, help="They are valid so long."
)
def certificates(
    directory: Path, config: Path | None, hosts: tuple[str, ...], clients: tuple[str, ...], days: int
) -> None:
    """Make certificates for servers and clients, and the CA that signs them, for development.

    What is there is kept; to renew a certificate, remove its .pem and run this again. Whoever can read ca.key can
    make certificates for everybody: for production use an authority of your own.
    """
    try:
        from logdb.node.config import ClusterFile, Misconfigured
        from logdb.security.certificates import Authority, hosts_of
        from logdb.security.node_identity import Identity
    except ImportError as error:
        raise Failure(f"{error.name} {MISSING}", FAILED) from error
    try:
        servers = [] if config is None else list(ClusterFile(config).servers.values())
        authority = Authority(directory)
        made = [directory / "ca.pem"]
        for server in servers:
            identity = Identity(server.cluster, server.role, server.name)
            made.append(authority.server(hosts_of((server.address, server.listen)), identity, days))
        if hosts:
            made.append(authority.server(hosts, days=days))
        made += [authority.client(name, days) for name in clients]
    except (Misconfigured, ValueError) as error:
        raise BadInput(str(error)) from error
    for path in made:
        click.echo(path)


@click.command()
@click.argument("name")
@click.option("--right", required=True, type=click.Choice(("read", "write", "admin")), help="What it allows.")
@click.option(
    "--tokens",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The tokens file of the servers, which is made if there is none.",
)
def token(name: str, right: str, path: Path) -> None:
    """Make a token, add NAME to the tokens file, and print the token: nobody can read it there.

    write includes read, admin includes both. Servers notice a change of the file within a second. To withdraw a
    token, remove its table from the file.
    """
    try:
        from logdb.security.access import add, right_of
    except ImportError as error:
        raise Failure(f"{error.name} {MISSING}", FAILED) from error
    try:
        click.echo(add(path, name, right_of(right, "--right")))
    except ValueError as error:
        raise BadInput(str(error)) from error
