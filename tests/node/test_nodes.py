"""Nodes: processes with servers of several roles, which call each other and share streams."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.admin.server_query import health
from logdb.clients.background_loop import in_shared_loop
from logdb.clients.log_client import RemoteLog
from logdb.log.contract import LogFailed
from logdb.log.engine import ENGINES, Shape, engine_of
from logdb.node.config import ClusterFile, Misconfigured
from logdb.node.directory import FOUNDING
from logdb.node.metrics import NodeMetrics
from logdb.node.storage import DamagedJournals
from logdb.security.credentials import NONE
from logdb.system.addresses import location_of, role_in
from logdb.transport import peers
from logdb.transport.peers import Port
from logdb.wire.envelopes import pack
from tests.harness.clusters import Cluster

HEAD = '[cluster]\nname = "demo"\n'
NODE = '[node.n1]\nlisten = "127.0.0.1:7401"\nroles = ["ordering", "storage", "mapping"]\n'


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.of_shape(tmp_path, shape(ENGINES[0]))


def shape(engine: str) -> Shape:
    return engine_of(engine).operations.default_shape.on_nodes(3)


def endpoints(cluster: Cluster) -> str:
    return ",".join(location_of(address) for address in cluster.mapping)


@pytest.mark.parametrize("engine", ENGINES)
def test_servers_of_a_node_call_each_other_and_share_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    cluster = Cluster.of_shape(tmp_path, shape(engine))
    packed, delivered = set(), set()
    deliver = Port.deliver

    def record_packed(sender: str, to: str, messages: tuple[Any, ...]) -> list[bytes]:
        packed.add((sender, to))
        return pack(sender, to, messages)

    def record_delivered(port: Port, sender: str, message: Any) -> None:
        delivered.add((sender, port.address))
        deliver(port, sender, message)

    monkeypatch.setattr(peers, "pack", record_packed)
    monkeypatch.setattr(Port, "deliver", record_delivered)
    cluster.start(shards=1)
    try:
        with logdb.connect(endpoints(cluster)) as db:
            for number in range(20):
                db.put(b"k%d" % number, b"v")
            assert len(list(db.scan())) == 20
        assert len(cluster.servers) == 3
        founder = engine_of(engine).founder_role
        for node in cluster.servers.values():
            assert node.peers is not None
            while node.peers.open_streams > 2 + 1:
                pass  # one to each of two nodes, even if both have dialled, and a client's
            roles = {server.role.name for server in node.servers}
            assert {founder, "mapping"} <= roles
            labels = [sample.labels for metric in NodeMetrics(node).collect() for sample in metric.samples]
            assert {"role": "mapping"} in labels
        pairs = {(role_in(sender), role_in(to)) for sender, to in delivered}
        assert pairs & {(founder, "mapping"), ("mapping", founder)}, "which of them depends on where the leader runs"
        assert all(location_of(sender) == location_of(to) for sender, to in delivered)
        across = {(role_in(sender), role_in(to)) for sender, to in packed if location_of(sender) != location_of(to)}
        assert (founder, founder) in across, "messages between nodes are packed"
        assert {pair for pair in packed if location_of(pair[0]) == location_of(pair[1])} == set()
        cluster.check()
    finally:
        cluster.close()


def wait_for_members(cluster: Cluster) -> None:
    """Wait until the shard has all of its members, each with all records: then it survives the next loss."""
    with cluster.connect() as log:
        while len((shard := log.configuration().shards[0]).members) < cluster.members or shard.joining:
            pass


@pytest.mark.parametrize("engine", ENGINES)
def test_a_cluster_of_three_nodes_survives_the_loss_of_any(tmp_path: Path, engine: str) -> None:
    cluster = Cluster.of_shape(tmp_path, shape(engine), suspect_after_ms=2_000)
    cluster.start(shards=1)
    try:
        with logdb.connect(endpoints(cluster), timeout=60) as db:
            for name in ("n1", "n2", "n3"):
                in_shared_loop(cluster.end(name))
                db.put(name.encode(), b"without it")
                assert db.get(name.encode()) == b"without it"
                in_shared_loop(cluster.begin(name))
                wait_for_members(cluster)
            assert [key for key, _ in db.scan()] == [b"n1", b"n2", b"n3"]
        cluster.check()
    finally:
        cluster.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_node_that_has_lost_its_data_takes_its_place_again(tmp_path: Path, engine: str) -> None:
    cluster = Cluster.of_shape(tmp_path, shape(engine), suspect_after_ms=2_000)
    cluster.start(shards=1)
    address = cluster.processes["n2"].address
    try:
        with logdb.connect(endpoints(cluster), timeout=60) as db, cluster.connect() as log:
            keys = [b"%02d" % number for number in range(20)]
            for key in keys:
                db.put(key, b"v")
            lost = server_at(address, log)
            in_shared_loop(cluster.end("n2"))
            shutil.rmtree(tmp_path / "n2")
            in_shared_loop(cluster.begin("n2"))
            while in_shared_loop(health(address, NONE)):
                pass
            while (found := server_at(address, log)) is None or (found == lost and cluster.storage != cluster.founders):
                pass  # a founder keeps its number; a storage server gets a new one, and copies the records first
            in_shared_loop(cluster.end("n1"))
            db.put(b"last", b"v")
            assert [key for key, _ in db.scan()] == [*keys, b"last"]
        cluster.check()
    finally:
        cluster.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_failed_sync_of_one_server_ends_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    cluster = Cluster.of_shape(tmp_path, shape(engine))
    cluster.start(shards=1)
    try:
        with cluster.connect() as log:
            (shard,) = log.configuration().shards
        server = cluster.configs[cluster.name_of(shard.members[-1].address)]
        node = cluster.servers[server.name]
        monkeypatch.setattr(node.disk, "sync", failing_below(server.data))
        with logdb.connect(endpoints(cluster), timeout=1) as db:
            while not cluster.running[server.name].done():
                with suppress(logdb.Unavailable, logdb.OutcomeUnknown):
                    db.put(b"k", b"v")
        with pytest.raises(LogFailed, match="Input/output error"):
            cluster.running.pop(server.name).result()
        cluster.check()
    finally:
        monkeypatch.undo()
        cluster.close()


def failing_below(folder: Path) -> Callable[[int], None]:
    """A sync that fails for the files in a folder."""

    def sync(fd: int) -> None:
        if Path(f"/proc/self/fd/{fd}").readlink().is_relative_to(folder):
            raise OSError(5, "Input/output error")
        os.fdatasync(fd)

    return sync


def server_at(address: str, log: RemoteLog) -> int | None:
    """The number of the storage server on this node; None while any member of the shard still copies records."""
    view = log.configuration()
    (shard,) = view.shards
    servers = [one for one in (*shard.members, *view.spares) if location_of(one.address) == address]
    return next((one.server for one in servers if not shard.joining), None)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "joined"])
def test_a_node_whose_servers_belong_to_different_ordering_layers_ends(cluster: Cluster, recorded: bool) -> None:
    """`recorded`: the founder's directory names its ordering layer; otherwise the founder finds it in its journal."""
    cluster.start(shards=1)
    try:
        servers = cluster.servers["n1"].servers
        in_shared_loop(cluster.end_all())
        foundings = {server.directory.founding for server in servers if server.directory is not None} - {0}
        assert len(foundings) == 1
        for server in servers:
            assert server.directory is not None
            if not server.is_founder:
                server.directory.keep_founding(1)
            elif recorded:
                server.directory.keep_founding(foundings.pop())
            else:
                (server.directory.path / FOUNDING.identity).unlink(missing_ok=True)
        with pytest.raises(DamagedJournals, match="ordering layer"):
            in_shared_loop(_run(cluster, "n1"))
    finally:
        cluster.close()


async def _run(cluster: Cluster, name: str) -> None:
    await cluster.begin(name)
    await cluster.running.pop(name)


def test_the_configuration_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(HEAD + NODE)
    file = ClusterFile(path)
    node = file.node("node", "n1")
    assert [(server.role, server.address, server.data) for server in node.servers] == [
        (role, f"127.0.0.1:7401/{role}", tmp_path / "data" / "n1" / role) for role in ("ordering", "storage", "mapping")
    ]
    assert (node.title, node.address) == ("node n1", "127.0.0.1:7401")
    assert node.first.ordering == ("127.0.0.1:7401/ordering",)
    with pytest.raises(Misconfigured, match=r"runs on the node with the table \[node.n1\]"):
        file.node("storage", "n1")
    with pytest.raises(Misconfigured, match=r"no table \[node.n2\]; it has n1"):
        file.node("node", "n2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NODE.replace('"mapping"', '"mapping", "mapping"'), "each at most once"),
        (NODE.replace('"mapping"', '"maps"'), 'a list of "ordering", "storage"'),
        (NODE.replace('roles = ["ordering", "storage", "mapping"]', ""), r"\[node.n1\] needs the key roles"),
        (NODE + '[storage.n1]\nlisten = "127.0.0.1:7402"\ndata = "x"\n', "n1 is already a node with the role storage"),
        (NODE + '[storage.s1]\nlisten = "127.0.0.1:7401"\n', "already taken by"),
        (NODE.replace('["ordering"', '["ordering", 7'), 'a list of "ordering", "storage"'),
        (NODE.replace('["ordering", "storage", "mapping"]', '"ordering"'), "roles must be a list, it is 'ordering'"),
        (NODE.replace('["ordering", "storage", "mapping"]', "[]"), 'a list of "ordering", "storage"'),
        (NODE + "checkpoint_mib = 3\n", r"checkpoint_mib is not a key of \[node.n1\]; its keys are address, data"),
        (NODE.replace("127.0.0.1", "0.0.0.0"), "listen must be a loopback address"),
        (NODE.replace("7401", "7401/x"), '"host:port" with a port'),
        (NODE.replace('["ordering", ', "["), r"an odd number of tables \[ordering.NAME\], or of nodes"),
    ],
)
def test_wrong_nodes(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(HEAD + text)
    with pytest.raises(Misconfigured, match=message):
        ClusterFile(path)
