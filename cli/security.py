"""`logdb certificates` and `logdb token`: credentials for servers and clients."""

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
    help="The directory for the files; a CA that is already there signs the new certificates.",
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
    "--days", type=click.IntRange(1, 3_650), default=CERTIFICATE_DAYS, show_default=True, help="Days until they expire."
)
def certificates(
    directory: Path, config: Path | None, hosts: tuple[str, ...], clients: tuple[str, ...], days: int
) -> None:
    """Make certificates for servers and clients, and the CA that signs them, for development.

    Existing files are kept; to renew a certificate, remove its .pem and run the command again. Anyone who can read
    ca.key can issue any certificate: in production use a certificate authority of your own.
    """
    try:
        from logdb.node.config import ClusterFile, Misconfigured
        from logdb.security.certificates import Authority, hosts_of
        from logdb.security.node_identity import Identity
    except ImportError as error:
        raise Failure(f"{error.name} {MISSING}", FAILED) from error
    try:
        servers = [] if config is None else list(ClusterFile(config).nodes.values())
        authority = Authority(directory)
        made = [directory / "ca.pem"]
        for server in servers:
            identity = Identity(server.first.cluster, server.role, server.name)
            made.append(authority.server(hosts_of((server.address, server.first.listen)), identity, days))
        if hosts:
            made.append(authority.server(hosts, days=days))
        made += [authority.client(name, days) for name in clients]
    except (Misconfigured, ValueError) as error:
        raise BadInput(str(error)) from error
    for path in made:
        click.echo(path)


@click.command()
@click.argument("name")
@click.option("--right", required=True, type=click.Choice(("read", "write", "admin")), help="The right to grant.")
@click.option(
    "--tokens",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The tokens file of the servers; created if it does not exist.",
)
def token(name: str, right: str, path: Path) -> None:
    """Create a token, add its hash to the tokens file under NAME, and print the token, which is stored nowhere.

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
