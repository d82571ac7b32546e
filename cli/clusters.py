"""`logdb cluster`: a whole cluster as processes of this machine, and changes to one, wherever its servers run."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from logdb.log.engine import ENGINES

from . import rendering
from .failing import FAILED, INTERRUPTED, BadInput, Failure
from .session import Session, as_json, showing

if TYPE_CHECKING:
    from logdb.admin.changes import Operator
    from logdb.admin.layout import Layout
    from logdb.admin.status import ClusterStatus, ServerStatus, ShardStatus
    from logdb.security.credentials import Credentials

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT: Final = "cluster"
SERVERS: Final = ("server", "role", "address", "process", "shard", "state")
SHARDS: Final = ("shard", "state", "servers")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """Run a whole cluster as processes of this machine, look at one, and change one.

    The servers of a cluster that runs on this machine have a directory (--dir), with their configuration, data
    and logs. Of others --endpoints names some servers; they are all found from any of them.
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
        type=click.Path(path_type=Path),
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
    if endpoints is None and session.given:
        endpoints = session.endpoints
    if endpoints is None:
        return Operator((), _layout(path), rendering.progress, _shown(session))
    try:
        return Operator(endpoints_of(endpoints), None, rendering.progress, _shown(session))
    except ValueError as error:
        raise BadInput(str(error)) from error


def _shown(session: Session) -> Credentials:
    """Raises Failure."""
    from logdb.security.credentials import credentials

    try:
        return credentials(**session.shown)
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
@click.option("--shards", type=click.IntRange(1, 100), default=2, show_default=True, help="Shards to begin with.")
@click.option("--replicas", type=click.IntRange(1, 21), default=2, show_default=True, help="Servers of each shard.")
@click.option(
    "--ordering", type=click.Choice(("1", "3", "5")), default="3", show_default=True, help="Ordering replicas."
)
@click.option("--mapping", type=click.IntRange(0, 20), default=2, show_default=True, help="Mapping servers.")
@click.option("--aggregators", type=click.IntRange(0, 50), default=0, show_default=True, help="Aggregators.")
@click.option("--spares", type=click.IntRange(0, 50), default=0, show_default=True, help="Storage servers in reserve.")
@click.option(
    "--policy",
    default="",
    metavar="POLICY",
    help="What is done about a failed storage server; by default the first that the engine has.",
)
@click.option(
    "--engine", type=click.Choice(ENGINES), default=ENGINES[0], show_default=True, help="The engine of the shared log."
)
@click.option(
    "--port", type=click.IntRange(1024, 60_000), default=7401, show_default=True, help="The first port to take."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="One more key of [cluster] in the file (repeatable)."
)
@_directory
@showing
@as_json
@click.pass_context
def up(ctx: click.Context, /, path: Path, as_json: bool, **asked: Any) -> None:
    """Start a cluster on this machine, or what does not run of one that is in DIR already.

    A new DIR gets a configuration (cluster.toml), the servers' data and their logs. If not all of it can be
    done, no server is left running that did not run before, and `up` may be run again.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from logdb.admin.changes import Operator
        from logdb.admin.layout import changing

        with changing(path):
            layout = _laid_out(ctx, path, asked)
            started = Operator((), layout, rendering.progress, _shown(ctx.ensure_object(Session))).bring_up()
        _tell_how_to_connect(path, layout, started, as_json)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise Failure(f"interrupted; {_what_runs(path)}", INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _what_runs(path: Path) -> str:
    """Of a cluster whose `up` was interrupted, and what to do."""
    from logdb.admin import processes
    from logdb.admin.layout import FILE

    if not (path / FILE).exists():
        return f"there is no cluster in {path} yet: `up --dir {path}` makes it"
    layout = _layout(path)
    count = len(processes.running(layout))
    if not count:
        return f"no server of {path} runs: `up --dir {path}` starts them"
    some = f"{count} of {len(layout.file.servers)} servers of {path} run"
    return f"{some}: `up --dir {path}` starts the others, `down --dir {path}` ends them"


def _laid_out(ctx: click.Context, path: Path, asked: dict[str, Any]) -> Layout:
    from logdb.admin.layout import FILE, Layout, NotACluster
    from logdb.log.engine import engine_of

    first_port, settings = asked.pop("port"), _settings(asked.pop("settings"))
    given = click.core.ParameterSource.COMMANDLINE
    asked["ordering"] = int(asked["ordering"])
    explicit = {name for name in asked if ctx.get_parameter_source(name) is given}
    usual = engine_of(asked["engine"]).operations.default_shape
    shape = replace(usual, **{name: asked[name] for name in explicit})
    if (path / FILE).exists():
        layout = _layout(path)
        differs = layout.differs(shape, explicit)
        if differs or settings:
            raise BadInput(f"the cluster in {path} has {differs or 'its settings already, in ' + FILE}; "
                           "take another --dir for another cluster")  # fmt: skip
        return layout
    try:
        return Layout.make(path, shape, settings, first_port)
    except (ValueError, NotACluster) as error:
        raise BadInput(str(error)) from error


def _settings(texts: Sequence[str]) -> dict[str, int | str]:
    settings: dict[str, int | str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals or '"' in text or "\\" in text:
            raise BadInput(f"--set takes KEY=VALUE, not {text!r}")
        settings[key] = int(value) if value.isdecimal() else value
    return settings


def _tell_how_to_connect(path: Path, layout: Layout, started: Sequence[str], as_json: bool) -> None:
    servers = layout.file.servers
    where = layout.endpoints
    document = {"cluster": layout.file.name, "dir": str(path), "endpoints": where, "started": list(started)}
    face = "logdb" if any(role == "mapping" for role, _ in servers) else "logdb.log"
    rendering.answer(as_json, document, f"""\
ready: cluster {layout.file.name} with {len(servers)} servers, {len(started)} of them started now
  python      {face}.connect("{where}")
  shell       export LOGDB_ENDPOINTS=$(logdb cluster endpoints --dir {path})
  what it is  logdb cluster status --dir {path}
  end it      logdb cluster down --dir {path}""")  # fmt: skip


@cluster.command()
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=20, show_default=True, metavar="S", help="Wait so long for them."
)
@click.option("--kill", is_flag=True, help="Kill (SIGKILL) those that have not ended by then.")
@_directory
@as_json
def down(path: Path, timeout: float, kill: bool, as_json: bool) -> None:
    """End the servers that run on this machine (SIGTERM) and wait for them; their data stays."""
    from logdb.admin import processes
    from logdb.admin.layout import changing

    layout = _layout(path)
    with changing(path), rendering.progress("stopping servers") as tick:
        count = len(processes.running(layout))
        left = processes.end(layout, tick, timeout_s=timeout, kill=kill)
    if left:
        raise Failure(f"still running: {', '.join(left)}; `down --kill` kills what does not end", FAILED)
    document = {"stopped": count, "data": str(path)}
    sentence = f"stopped {count} server{'s' if count != 1 else ''}; the data is in {path}: `cluster up --dir {path}`"
    rendering.answer(as_json, document, sentence)


# ---- looking


@cluster.command()
@click.argument("role")
@click.option("--name", required=True, metavar="NAME", help="Which one: its table is [ROLE.NAME].")
@click.option(
    "--config",
    "path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The cluster's configuration (TOML); the server's own certificate is shown, if it has one.",
)
@click.option(
    "--wait", type=click.FloatRange(min=0), default=0, metavar="S", help="Give it so many seconds to become ready."
)
def health(role: str, name: str, path: Path, wait: float) -> None:
    """Tell whether one server takes requests, for probes of Kubernetes and units of systemd: 0 if it does,
    else 3.
    """
    from logdb.admin import server_query
    from logdb.clients.background_loop import in_shared_loop
    from logdb.node.config import ClusterFile, Misconfigured
    from logdb.security.credentials import NONE, credentials

    try:
        server = ClusterFile(path).server(role, name)
        tls = server.security
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
    """Print where clients find the cluster: what LOGDB_ENDPOINTS, --endpoints and logdb.connect take."""
    click.echo(_layout(path).endpoints)


@cluster.command()
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Time between two looks, over which the rates are taken.",
)
@_anywhere
@as_json
@click.pass_context
def status(ctx: click.Context, path: Path, endpoints: str | None, watch: bool, interval: float, as_json: bool) -> None:
    """Show the shards and their servers, the leader, the tail of the log, cuts and records a second, and how
    far each mapping server lags behind.

    Ends with 3 if there is no leader.
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
    if not now.leader:
        raise Failure(f"cluster {now.cluster} has no leader of its ordering layer: nothing can be appended", FAILED)


def _show(now: ClusterStatus, before: ClusterStatus) -> None:
    """For people."""
    titles = {server.address: server.title for server in now.servers}
    leader = titles.get(now.leader, "nobody")
    cuts, records = now.rates(before)
    click.echo(f"cluster {now.cluster}: {leader} leads, the tail is {_number(now.tail)}, the oldest record "
               f"{_number(now.oldest)}, {_number(cuts)} cuts/s, {_number(records)} records/s, "
               f"{_number(now.cut_interval_ms)} ms between two cuts at least")  # fmt: skip
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


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:,}"


# ---- changes


@contextmanager
def _changing(ctx: click.Context, path: Path, endpoints: str | None) -> Iterator[Operator]:
    """Who can change the cluster, with its directory held if it has one here."""
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
    rendering.answer(as_json, {"shard": shard}, f"shard {shard} takes appends")


@cluster.command()
@click.argument("shard", type=click.IntRange(min=1))
@click.option(
    "--grace", type=click.IntRange(min=0), default=0, show_default=True, help="Let so many more cuts go by first."
)
@_anywhere
@as_json
@click.pass_context
def finalize_shard(
    ctx: click.Context, path: Path, endpoints: str | None, shard: int, grace: int, as_json: bool
) -> None:
    """Have SHARD take no appends any more. What is in it can be read as before."""
    with _changing(ctx, path, endpoints) as operator:
        operator.finalize_shard(shard, grace)
    rendering.answer(as_json, {"finalized": shard}, f"shard {shard} takes no appends any more")


@cluster.command()
@click.argument("shard", type=click.IntRange(min=1))
@_anywhere
@as_json
@click.pass_context
def add_replica(ctx: click.Context, path: Path, endpoints: str | None, shard: int, as_json: bool) -> None:
    """Have one more server hold SHARD, which is finalized: so that more readers are served side by side. If the
    cluster runs on this machine and there is no spare, one is started first.
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
    """Order new records only every so many MILLISECONDS, from now on, whatever cut_interval_ms says in the cluster
    file. 0 orders as soon as possible; more lets a large log make fewer and larger cuts, and appends wait longer.
    """
    with _changing(ctx, path, endpoints) as operator:
        operator.set_cut_interval(milliseconds / 1_000)
    rendering.answer(as_json, {"cut_interval_ms": milliseconds}, f"cuts are {milliseconds:g} ms apart at least")


@cluster.command()
@click.argument("server")
@_anywhere
@as_json
@click.pass_context
def replace_server(ctx: click.Context, path: Path, endpoints: str | None, server: str, as_json: bool) -> None:
    """Put a spare server in the place of SERVER: its number, name or address. If the cluster runs on this
    machine and there is no spare, one is started first.
    """
    with _changing(ctx, path, endpoints) as operator:
        gone, by, shard = operator.replace_server(server)
    document = {"replaced": gone, "by": by, "shard": shard}
    rendering.answer(as_json, document, f"server {by} takes the place of server {gone} in shard {shard}")
