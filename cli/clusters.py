"""`logdb cluster`: a cluster as processes of this machine, and changes of a cluster on any machines."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from logdb.log.engine import ENGINE_OF_NODES, ENGINES

from . import rendering
from .dashboards import DEFAULT as DASHBOARD
from .dashboards import cluster_pages
from .failing import FAILED, INTERRUPTED, BadInput, Failure
from .session import DIRECTORY, Session, as_json, showing

if TYPE_CHECKING:
    from logdb.admin.changes import Operator
    from logdb.admin.layout import Layout
    from logdb.admin.status import ClusterStatus, ServerStatus, ShardStatus
    from logdb.security.credentials import Credentials

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT: Final = "cluster"
FILE: Final = click.Path(path_type=Path, dir_okay=False)
SERVERS: Final = ("server", "role", "address", "process", "shard", "state")
SHARDS: Final = ("shard", "state", "servers")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """Run a cluster as processes of this machine, inspect a cluster, or change one.

    A cluster that runs on this machine has a directory (--dir) with its configuration, data and logs. For other
    clusters --endpoints names some of the servers; the others are found through them.
    """
    try:
        import grpc
        import grpc_health  # noqa: F401 - both are what must be there
    except ImportError as error:
        raise Failure(f"{error.name} is not installed: pip install 'logdb[cluster]'", FAILED) from error
    del grpc


def _directory(command: F) -> F:
    return click.option(
        "--dir",
        "path",
        type=DIRECTORY,
        default=DEFAULT,
        show_default=True,
        envvar="LOGDB_CLUSTER",
        metavar="DIR",
        help="The directory of a cluster on this machine (or the environment variable LOGDB_CLUSTER).",
    )(command)


def _anywhere(command: F) -> F:
    return showing(_directory(
        click.option(
            "--endpoints", metavar="HOST:PORT,...", help="Servers of a cluster, wherever it runs, instead of --dir."
        )(command)
    ))  # fmt: skip


def _operator(ctx: click.Context, path: Path, endpoints: str | None) -> Operator:
    """Raises Failure."""
    from logdb.admin.changes import Operator
    from logdb.system.addresses import endpoints_of

    session = ctx.ensure_object(Session)
    if endpoints is None and session.is_explicit:
        endpoints = session.endpoints
    if endpoints is None:
        return Operator((), _layout(path), rendering.progress, _credentials(session))
    try:
        return Operator(endpoints_of(endpoints), None, rendering.progress, _credentials(session))
    except ValueError as error:
        raise BadInput(str(error)) from error


def _credentials(session: Session) -> Credentials:
    """Raises Failure."""
    from logdb.security.credentials import credentials

    try:
        return credentials(**session.credentials)
    except ValueError as error:
        raise BadInput(str(error)) from error


def _layout(path: Path) -> Layout:
    """Raises Failure."""
    from logdb.admin.layout import Layout, NotACluster
    from logdb.node.config import Misconfigured

    try:
        return Layout(path)
    except (NotACluster, Misconfigured) as error:
        raise BadInput(str(error)) from error


# ---- up and down


@cluster.command()
@click.option("--shards", type=click.IntRange(1, 100), default=2, show_default=True, help="Number of shards to add.")
@click.option("--replicas", type=click.IntRange(1, 21), default=2, show_default=True, help="Servers per shard.")
@click.option(
    "--ordering",
    type=click.Choice(("1", "3", "5")),
    default="3",
    show_default=True,
    help="Ordering replicas.",
)
@click.option("--mapping", type=click.IntRange(0, 20), default=2, show_default=True, help="Number of mapping servers.")
@click.option("--aggregators", type=click.IntRange(0, 50), default=0, show_default=True, help="Number of aggregators.")
@click.option("--spares", type=click.IntRange(0, 50), default=0, show_default=True, help="Spare storage servers.")
@click.option(
    "--policy",
    default="",
    metavar="POLICY",
    help="How a failed storage server is handled (default: the first policy of the engine).",
)
@click.option(
    "--nodes",
    type=click.Choice(("1", "3", "5")),
    help="Run this number of equal nodes, each with a server of every role, instead of a process for each server.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    help=f"The engine of the shared log (default: {ENGINE_OF_NODES} with --nodes, otherwise {ENGINES[0]}).",
)
@click.option(
    "--port", type=click.IntRange(1024, 60_000), default=7401, show_default=True, help="The first port to use."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="A further key of [cluster] in the file (repeatable)."
)
@_directory
@showing
@as_json
@click.pass_context
def up(ctx: click.Context, /, path: Path, as_json: bool, **asked: Any) -> None:
    """Start a cluster on this machine, or those servers of the cluster in DIR that do not run.

    A new DIR gets a configuration (cluster.toml), the servers' data and their logs. If `up` fails, it stops the
    servers that it has started, and can be run again.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from logdb.admin.changes import Operator
        from logdb.admin.layout import changing

        with changing(path):
            layout = _laid_out(ctx, path, asked)
            started = Operator((), layout, rendering.progress, _credentials(ctx.ensure_object(Session))).bring_up()
        _print_how_to_connect(path, layout, started, as_json)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise Failure(f"interrupted; {_what_runs(path)}", INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _what_runs(path: Path) -> str:
    """The state of a cluster whose `up` was interrupted, and the next command."""
    from logdb.admin import processes
    from logdb.admin.layout import FILE

    if not (path / FILE).exists():
        return f"there is no cluster in {path} yet: `logdb cluster up --dir {path}` creates it"
    layout = _layout(path)
    count = len(processes.running(layout))
    if not count:
        return f"no server of {path} runs: `logdb cluster up --dir {path}` starts them"
    some = f"{count} of {len(layout.file.nodes)} servers of {path} run"
    return f"{some}: `logdb cluster up --dir {path}` starts the others, `logdb cluster down --dir {path}` stops them"


def _laid_out(ctx: click.Context, path: Path, asked: dict[str, Any]) -> Layout:
    from logdb.admin.layout import FILE, Layout, NotACluster
    from logdb.log.engine import engine_of

    first_port, settings = asked.pop("port"), _settings(asked.pop("settings"))
    given = click.core.ParameterSource.COMMANDLINE
    asked["ordering"], asked["nodes"] = int(asked["ordering"]), int(asked["nodes"] or 0)
    explicit = {name for name in asked if ctx.get_parameter_source(name) is given}
    asked["engine"] = asked["engine"] or (ENGINE_OF_NODES if asked["nodes"] else ENGINES[0])
    usual = engine_of(asked["engine"]).operations.default_shape
    if asked["nodes"]:
        counts = sorted(explicit & {"shards", "replicas", "ordering", "mapping", "aggregators", "spares"})
        if counts:
            raise click.UsageError(f"--nodes and --{counts[0]} exclude each other: nodes have one server of each role")
        usual = usual.on_nodes(asked["nodes"])
    shape = replace(usual, **{name: asked[name] for name in explicit})
    if (path / FILE).exists():
        layout = _layout(path)
        differs = layout.differs(shape, explicit)
        if differs or settings:
            raise BadInput(f"the cluster in {path} has {differs or 'its settings already, in ' + FILE}; "
                           "use another --dir for another cluster")  # fmt: skip
        return layout
    try:
        return Layout.make(path, shape, settings, first_port)
    except (ValueError, NotACluster) as error:
        raise BadInput(str(error)) from error


def _settings(texts: Sequence[str]) -> dict[str, float | str]:
    settings: dict[str, float | str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals or '"' in text or "\\" in text:
            raise BadInput(f"--set takes KEY=VALUE, not {text!r}")
        if re.fullmatch("-?[0-9]+", value):
            settings[key] = int(value)
        else:
            settings[key] = float(value) if re.fullmatch(r"-?[0-9]+\.[0-9]+", value) else value
    return settings


def _print_how_to_connect(path: Path, layout: Layout, started: Sequence[str], as_json: bool) -> None:
    servers = layout.file.servers
    where, processes = layout.endpoints, len(layout.file.nodes)
    count = f"{len(servers)} servers"
    if processes < len(servers):
        count += f" in {processes} process{'es' if processes != 1 else ''}"
    document = {"cluster": layout.file.name, "dir": str(path), "endpoints": where, "started": list(started)}
    face = "logdb" if any(role == "mapping" for role, _ in servers) else "logdb.log"
    rendering.answer(as_json, document, f"""\
ready: cluster {layout.file.name} with {count}, {len(started)} of them started now
  python      {face}.connect("{where}")
  shell       export LOGDB_ENDPOINTS=$(logdb cluster endpoints --dir {path})
  status      logdb cluster status --dir {path}
  stop        logdb cluster down --dir {path}""")  # fmt: skip


@cluster.command()
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=20,
    show_default=True,
    metavar="S",
    help="Wait up to S seconds.",
)
@click.option("--kill", is_flag=True, help="Then kill (SIGKILL) the servers that still run.")
@_directory
@as_json
def down(path: Path, timeout: float, kill: bool, as_json: bool) -> None:
    """Stop the servers that run on this machine (SIGTERM) and wait for them; their data stays."""
    from logdb.admin import processes
    from logdb.admin.layout import changing

    layout = _layout(path)
    with changing(path), rendering.progress("stopping servers") as tick:
        count = len(processes.running(layout))
        left = processes.end(layout, tick, timeout_s=timeout, kill=kill)
    if left:
        raise Failure(f"still running: {', '.join(left)}; `logdb cluster down --kill` kills them", FAILED)
    document = {"stopped": count, "data": str(path)}
    stopped = f"stopped {count} process{'es' if count != 1 else ''}; the data stays in {path}"
    sentence = f"{stopped} (`logdb cluster up --dir {path}` starts the cluster again)"
    rendering.answer(as_json, document, sentence)


# ---- looking


@cluster.command()
@click.argument("role")
@click.option("--name", required=True, metavar="NAME", help="The server's name: its table is [ROLE.NAME].")
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The cluster's configuration (TOML); the probe presents the server's own certificate, if it has one.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0,
    metavar="S",
    help="Wait up to S seconds until it is ready.",
)
def health(role: str, name: str, path: Path, wait: float) -> None:
    """Check whether one server accepts requests, for probes of Kubernetes and units of systemd: exit code 0 if it
    does, else 3.
    """
    from logdb.admin import server_query
    from logdb.clients.background_loop import in_shared_loop
    from logdb.node.config import ClusterFile, Misconfigured
    from logdb.security.credentials import NONE, credentials

    try:
        server = ClusterFile(path).node(role, name)
        tls = server.first.security
        shown = NONE if tls is None else credentials(ca=tls.ca, certificate=tls.certificate, certificate_key=tls.key)
    except (Misconfigured, ValueError) as error:
        raise BadInput(str(error)) from error
    deadline = time.monotonic() + wait
    while why := in_shared_loop(server_query.health(server.address, shown)):
        if time.monotonic() >= deadline:
            raise Failure(f"{role} {name} at {server.address} does not serve: {why}", FAILED)
        time.sleep(0.2)
    click.echo(f"{role} {name} serves")


@cluster.command()
@_directory
def endpoints(path: Path) -> None:
    """Print the addresses for clients: the value for LOGDB_ENDPOINTS, --endpoints and logdb.connect."""
    click.echo(_layout(path).endpoints)


@cluster.command()
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds between two measurements, over which the rates are computed.",
)
@_anywhere
@as_json
@click.pass_context
def status(ctx: click.Context, path: Path, endpoints: str | None, watch: bool, interval: float, as_json: bool) -> None:
    """Show the shards and their servers, the leader, the tail of the log, cuts and records per second, and
    how far each mapping server lags behind.

    Exit code 3 if there is no leader.
    """
    operator = _operator(ctx, path, endpoints)
    before = operator.status()
    while True:
        if before.leader:
            time.sleep(interval)
        now = operator.status()
        if as_json:
            rendering.emit(now.document(before))
        else:
            if watch and sys.stdout.isatty():
                click.clear()
            _show(now, before)
        sys.stdout.flush()
        if not watch:
            break
        if not before.leader:
            time.sleep(interval)
        before = now
    if not any(server.alive for server in now.servers):
        advice = f": `logdb cluster up --dir {path}` starts them" if operator.is_local else ""
        raise Failure(f"no server of cluster {now.cluster} answers{advice}", FAILED)
    if not now.leader:
        raise Failure(f"cluster {now.cluster} has no leader of its ordering layer: nothing can be appended", FAILED)


@cluster.command()
@click.option(
    "--listen",
    default=DASHBOARD,
    show_default=True,
    metavar="HOST:PORT",
    help="The address for browsers; port 0 takes any free port.",
)
@click.option("--https-certificate", type=FILE, metavar="FILE", help="The certificate of the pages (PEM), for HTTPS.")
@click.option("--https-key", type=FILE, metavar="FILE", help="Its key, if it is in another file.")
@click.option("--https-ca", type=FILE, metavar="FILE", help="Require a client certificate that this CA has signed.")
@_anywhere
@click.pass_context
def dashboard(
    ctx: click.Context,
    path: Path,
    endpoints: str | None,
    listen: str,
    https_certificate: Path | None,
    https_key: Path | None,
    https_ca: Path | None,
) -> None:
    """Serve pages for browsers: the servers and how far each is behind, rates, sizes, conflicts by label, and the keys
    at every version.

    Each visitor enters a token and has its right; a token of this command is not used. With --certificate the pages
    show what that certificate may read, and --https-ca must identify the visitors. To listen at an address that other
    machines can reach, the pages need HTTPS, and a cluster with tokens, or --https-ca.
    """
    cluster_pages(*_cluster_at(ctx, path, endpoints), listen, ca=https_ca, certificate=https_certificate, key=https_key)


def _cluster_at(
    ctx: click.Context, path: Path, endpoints: str | None
) -> tuple[str, Path | None, dict[str, Path | None]]:
    """(endpoints, the directory of a cluster on this machine, files of the credentials)."""
    session = ctx.ensure_object(Session)
    files = {name: session.credentials.get(name) for name in ("ca", "certificate", "certificate_key")}
    if endpoints is None and session.is_explicit:
        endpoints = session.endpoints
    return (_layout(path).endpoints, path, files) if endpoints is None else (endpoints, None, files)


def _show(now: ClusterStatus, before: ClusterStatus) -> None:
    """For people."""
    titles = {server.address: server.title for server in now.servers}
    leader = f"{titles[now.leader]} leads" if now.leader in titles else "no leader"
    cuts, records = now.rates(before)
    known = [
        text.format(number)
        for text, number in (
            ("the tail is {:,}", now.tail),
            ("the oldest record {:,}", now.oldest),
            ("{:,} cuts/s", cuts),
            ("{:,} records/s", records),
            ("at least {:,} ms between cuts", now.cut_interval_ms),
        )
        if number is not None
    ]
    click.echo(f"cluster {now.cluster}: {', '.join([leader, *known])}")
    there = {server.address: server for server in now.servers}
    rendering.rows(SHARDS, [shard_row(shard, there) for shard in now.shards])
    rendering.rows(SERVERS, [_server_row(server) for server in now.servers])


def shard_row(shard: ShardStatus, there: dict[str, ServerStatus]) -> tuple[int, str, str]:
    words = []
    for number, address in zip(shard.servers, shard.addresses, strict=True):
        server = there[address]
        gone = "" if server.number == number else "gone"
        note = gone or ("silent" if not server.alive else "joining" if number in shard.joining else "")
        words.append(f"{number}={server.title}" + (f" ({note})" if note else ""))
    numbered = {server.number: server.title for server in there.values()}
    words += [f"{number}={numbered[number]} (replaced)" for number in shard.replaced if number in numbered]
    return shard.shard, shard.state, ", ".join(words)


def _server_row(server: ServerStatus) -> tuple[str, str, str, int | None, str | int, str]:
    shard = "" if server.shard is None else server.shard or "spare"
    state = server.state if server.lag is None else f"{server.state}, applied {server.applied}, lag {server.lag}"
    return server.title, server.role, server.address, server.process, shard, state


# ---- changes


@contextmanager
def _changing(ctx: click.Context, path: Path, endpoints: str | None) -> Iterator[Operator]:
    """The operator for a change of the cluster, whose directory is locked if it is on this machine."""
    from logdb.admin.layout import changing

    operator = _operator(ctx, path, endpoints)
    with changing(path) if operator.is_local else nullcontext():
        yield operator


@cluster.command()
@click.option(
    "--servers",
    default="",
    metavar="SERVER,...",
    help="Of these spare servers, by number, name or address: so that they are on machines that fail apart.",
)
@_anywhere
@as_json
@click.pass_context
def add_shard(ctx: click.Context, path: Path, endpoints: str | None, servers: str, as_json: bool) -> None:
    """Add a shard of spare servers. If the cluster runs on this machine, missing spares are started first."""
    with _changing(ctx, path, endpoints) as operator:
        shard = operator.add_shard([server.strip() for server in servers.split(",") if server.strip()])
    rendering.answer(as_json, {"shard": shard}, f"shard {shard} accepts appends")


@cluster.command()
@click.argument("shard", type=click.IntRange(min=1))
@click.option(
    "--grace", type=click.IntRange(min=0), default=0, show_default=True, help="Number of cuts to wait for first."
)
@_anywhere
@as_json
@click.pass_context
def finalize_shard(
    ctx: click.Context, path: Path, endpoints: str | None, shard: int, grace: int, as_json: bool
) -> None:
    """Stop appends to SHARD. Its records stay readable."""
    with _changing(ctx, path, endpoints) as operator:
        operator.finalize_shard(shard, grace)
    rendering.answer(as_json, {"finalized": shard}, f"shard {shard} accepts no more appends")


@cluster.command()
@click.argument("shard", type=click.IntRange(min=1))
@_anywhere
@as_json
@click.pass_context
def add_replica(ctx: click.Context, path: Path, endpoints: str | None, shard: int, as_json: bool) -> None:
    """Add a server to SHARD, which must be finalized, to serve more readers. If the cluster runs on this machine
    and has no spare, one is started first.
    """
    with _changing(ctx, path, endpoints) as operator:
        server = operator.add_replica(shard)
    rendering.answer(as_json, {"server": server, "shard": shard}, f"server {server} copies shard {shard}")


@cluster.command()
@click.argument("milliseconds", type=click.FloatRange(0, 10_000))
@_anywhere
@as_json
@click.pass_context
def cut_interval(ctx: click.Context, path: Path, endpoints: str | None, milliseconds: float, as_json: bool) -> None:
    """Order new records at most once in MILLISECONDS from now on, overriding cut_interval_ms in the cluster file.
    0 orders them as soon as possible; with a longer interval there are fewer and larger cuts, and appends wait longer.
    """
    with _changing(ctx, path, endpoints) as operator:
        operator.set_cut_interval(milliseconds / 1_000)
    rendering.answer(as_json, {"cut_interval_ms": milliseconds}, f"cuts are at least {milliseconds:g} ms apart")


@cluster.command()
@click.argument("server")
@_anywhere
@as_json
@click.pass_context
def replace_server(ctx: click.Context, path: Path, endpoints: str | None, server: str, as_json: bool) -> None:
    """Replace SERVER (its number, name or address) with a spare server. If the cluster runs on this machine and
    has no spare, one is started first.
    """
    with _changing(ctx, path, endpoints) as operator:
        gone, by, shard = operator.replace_server(server)
    document = {"replaced": gone, "by": by, "shard": shard}
    rendering.answer(as_json, document, f"server {by} takes the place of server {gone} in shard {shard}")
