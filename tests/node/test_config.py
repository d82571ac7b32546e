"""The configuration file: what it gives, and that every mistake is named with its line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from logdb.cores.effects import MILLISECOND
from logdb.log.engine import ENGINES, engine_of
from logdb.node.config import ClusterFile, Misconfigured, settings_of
from logdb.node.roles import MappingServerConfig
from logdb.security.authenticator import Security

ENGINE = engine_of(ENGINES[0])
CONFIGS = {role.name: role.config for role in ENGINE.roles.values()}
WHOLE = """\
[cluster]
name = "demo"
data = "/var/lib/logdb"
policy = "mask"
failures = 2
heartbeat_ms = 50
suspect_after_ms = 300
straggle_after_ms = 900
election_ms = 200
cut_interval_ms = 1
snapshot_mib = 8
segment_mib = 16
keep_decisions = 5
decide_ms = 70

[ordering.o1]
listen = "127.0.0.1:7401"
metrics = "127.0.0.1:9401"

[ordering.o2]
listen = "[::1]:7402"
snapshot_mib = 9

[ordering.o3]
listen = "localhost:7403"
address = "node3.example:7403"

[storage.s1]
listen = "127.0.0.1:7411"
data = "s1-here"
buffer_mib = 32

[aggregator.a1]
listen = "127.0.0.1:7421"

[mapping.m1]
listen = "127.0.0.1:7431"

[mapping.m2]
listen = "[::1]:7432"
address = "node2.example:7432"
"""
LEAST = '[cluster]\nname = "demo"\n\n[ordering.o1]\nlisten = "127.0.0.1:7401"\n'


def written(path: Path, text: str) -> Path:
    file = path / "cluster.toml"
    file.write_text(text)
    return file


def test_a_whole_file(tmp_path: Path) -> None:
    file = ClusterFile(written(tmp_path, WHOLE))
    ordering = ("127.0.0.1:7401", "[::1]:7402", "node3.example:7403")
    assert file.server("ordering", "o1") == CONFIGS["ordering"](
        name="o1",
        cluster="demo",
        listen="127.0.0.1:7401",
        address="127.0.0.1:7401",
        data=Path("/var/lib/logdb/o1"),
        ordering=ordering,
        mapping=("127.0.0.1:7431", "node2.example:7432"),
        metrics="127.0.0.1:9401",
        policy=ENGINE.settings["policy"].check("mask"),
        failures=2,
        heartbeat_ms=50,
        suspect_after_ms=300,
        straggle_after_ms=900,
        election_ms=200,
        cut_interval_ms=1,
        snapshot_mib=8,
    )
    storage, aggregator = file.server("storage", "s1"), file.server("aggregator", "a1")
    assert isinstance(storage, CONFIGS["storage"])
    assert (storage.data, storage.buffer_mib, storage.segment_mib) == (tmp_path / "s1-here", 32, 16)
    assert isinstance(aggregator, CONFIGS["aggregator"])
    third = file.server("ordering", "o3")
    assert (third.listen, third.address, third.ordering) == ("localhost:7403", "node3.example:7403", ordering)
    assert file.server("ordering", "o2").snapshot_mib == 9


def test_the_least_file(tmp_path: Path) -> None:
    replica = ClusterFile(written(tmp_path, LEAST)).server("ordering", "o1")
    assert replica.data == tmp_path / "data" / "o1"
    assert replica == CONFIGS["ordering"]("o1", "demo", *2 * ["127.0.0.1:7401"], replica.data, ("127.0.0.1:7401",))


def test_cores_get_what_is_configured(tmp_path: Path) -> None:
    file = ClusterFile(written(tmp_path, WHOLE))
    ordering = file.server("ordering", "o3").core()
    assert (ordering.address, ordering.f) == ("node3.example:7403", 2)
    assert ordering.policy == ENGINE.settings["policy"].check("mask")
    assert (ordering.interval_ns, ordering.heartbeat_ns) == (MILLISECOND, 50 * MILLISECOND)
    assert (ordering.paxos.election_ns, ordering.snapshot_bytes) == (200 * MILLISECOND, 8 << 20)
    storage = file.server("storage", "s1").core()
    assert (storage.ordering, storage.buffer_bytes) == (ordering.replicas, 32 << 20)
    assert file.server("aggregator", "a1").core().suspect_after_ns == 300 * MILLISECOND
    mapping = file.server("mapping", "m2").core()
    assert (mapping.address, mapping.log.address) == 2 * ("node2.example:7432",)
    assert (mapping.peers, mapping.keep_decisions) == (("127.0.0.1:7431",), 5)
    assert mapping.decide_ns == 70 * MILLISECOND
    assert mapping.log.ordering == ordering.replicas


SECURE = """
[storage.s1]
listen = "0.0.0.0:7411"
address = "s1.example:7411"
metrics = "10.0.0.1:9411"

[security]
ca = "ca.pem"
certificate = "{role}-{name}.pem"
key = "/keys/{name}.key"
"""


def test_security(tmp_path: Path) -> None:
    file = ClusterFile(written(tmp_path, LEAST + SECURE + 'tokens = "tokens.toml"\n'))
    storage = file.server("storage", "s1")
    pair = (tmp_path / "storage-s1.pem", Path("/keys/s1.key"))
    assert storage.security == Security(tmp_path / "ca.pem", *pair, tmp_path / "tokens.toml")
    assert storage.names == {"127.0.0.1:7401": "o1", "s1.example:7411": "s1"}
    ordering = ClusterFile(written(tmp_path, LEAST + SECURE)).server("ordering", "o1").security
    assert ordering is not None
    assert (ordering.certificate, ordering.tokens) == (tmp_path / "ordering-o1.pem", None)


MISTAKES = {
    "no CA": ('[security]\ncertificate = "a"\nkey = "b"\n', 6, "[security] needs the key ca"),
    "no certificate": ('[security]\nca = "a"\nkey = "b"\n', 6, "[security] needs the key certificate"),
    "a token in the file": (
        '[security]\nca = "a"\nkey = "b"\ntoken = "t"\n',
        9,
        "token is not a key of [security]; its keys are ca, certificate, key, tokens",
    ),
    "unknown table": ('[storag.s1]\nlisten = "127.0.0.1:1"\n', 6, "[storag] is not a table"),
    "unknown key": (
        'heartbeat = 5\n[storage.s1]\nlisten = "127.0.0.1:1"\n',
        6,
        "heartbeat is not a key of [ordering.o1]",
    ),
    "key of another table": (
        '[storage.s1]\nlisten = "127.0.0.1:1"\nfailures = 1',
        8,
        "failures is not a key of [storage.s1]",
    ),
    "a memory of its own": (
        '[mapping.m1]\nlisten = "127.0.0.1:1"\nkeep_decisions = 1',
        8,
        "keep_decisions is not a key of [mapping.m1]",
    ),
    "an address twice": (
        '[mapping.m1]\nlisten = "127.0.0.1:7401"\n',
        7,
        "127.0.0.1:7401 is already taken by [ordering.o1] in line 5",
    ),
    "wrong type": ("metrics = 9401\n", 6, "metrics must be a string, it is 9401"),
    "true is no number": (
        '[storage.s1]\nlisten = "127.0.0.1:1"\nbuffer_mib = true',
        8,
        "buffer_mib must be a whole number",
    ),
    "missing key": ("[storage.s1]\nbuffer_mib = 1\n", 6, "[storage.s1] needs the key listen"),
    "out of range": ("snapshot_mib = 0\n", 6, "snapshot_mib must be a number from 1 to 1,024; it is 0"),
    "no address": ('[storage.s1]\nlisten = "127.0.0.1"\n', 7, "listen must be"),
    "no port": ('[storage.s1]\nlisten = "127.0.0.1:0"\naddress = "a:99999"', 7, "with a port from 1 to 65535"),
    "not loopback": (
        '[storage.s1]\nlisten = "0.0.0.0:1"\n',
        7,
        """listen must be a loopback address such as "127.0.0.1:7401", or there must be a table [security]; it is '0""",
    ),
    "metrics not loopback": ('metrics = "10.0.0.1:1"\n', 6, "must be a loopback address"),
    "address taken": (
        '[storage.s1]\nlisten = "127.0.0.1:7401"\n',
        7,
        "127.0.0.1:7401 is already taken by [ordering.o1] in line 5",
    ),
    "metrics taken": (
        '[storage.s1]\n\nlisten = "127.0.0.1:1"\nmetrics = "127.0.0.1:7401"\n',
        9,
        "already taken by [ordering.o1]",
    ),
    "directory taken": ('data = "/x"\n[storage.s1]\nlisten = "127.0.0.1:1"\ndata = [\n]\n', 9, "data must be a string"),
    "the same directory": (
        'data = "/x"\n[storage.s1]\nlisten = "127.0.0.1:1"\ndata = "/x"\n',
        9,
        "/x is already taken by [ordering.o1] in line 6",
    ),
    "a role without name": ('[storage]\nlisten = "127.0.0.1:1"\n', 7, "listen is not in a server's table"),
    "a bad name": ('["storage"."a b"]\nlisten = "127.0.0.1:1"\n', 6, "a name without blanks"),
    "two replicas": ('[ordering.o2]\nlisten = "127.0.0.1:1"\n', None, "there are 2 ordering replicas"),
}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_is_named_with_its_line(tmp_path: Path, mistake: str) -> None:
    more, line, what = MISTAKES[mistake]
    file = written(tmp_path, LEAST + more)
    with pytest.raises(Misconfigured) as wrong:
        ClusterFile(file)
    assert what in str(wrong.value)
    assert str(wrong.value).startswith(f"{file}:{line}: " if line else f"{file}: ")
    assert "\n" not in str(wrong.value)


CLUSTER_MISTAKES = {
    "no cluster": ("", None, "the table [cluster] is missing"),
    "no name": ("[cluster]\n", 1, "[cluster] needs the key name"),
    "no replica": ('[cluster]\nname = "x"\n', None, "there are 0 ordering replicas"),
    "cluster is no table": ("cluster = 1\n", 1, "[cluster] must be a table"),
    "a role is no table": ('ordering = 1\n[cluster]\nname = "x"\n', 1, "ordering must be tables [ordering.NAME]"),
    "policy": (
        '[cluster]\nname = "x"\npolicy = "none"\n',
        3,
        'one of "finalize-and-add", "mask", "remove-and-replace"',
    ),
    "not TOML": ("[cluster\n", None, "it is not TOML: Expected ']' at the end of a table declaration (at line 1"),
}


@pytest.mark.parametrize("mistake", sorted(CLUSTER_MISTAKES))
def test_a_mistake_of_the_whole(tmp_path: Path, mistake: str) -> None:
    text, line, what = CLUSTER_MISTAKES[mistake]
    file = written(tmp_path, text)
    with pytest.raises(Misconfigured) as wrong:
        ClusterFile(file)
    assert what in str(wrong.value)
    assert str(wrong.value).startswith(f"{file}:{line}: " if line else f"{file}: ")


def test_a_heartbeat_must_arrive_before_it_is_missed(tmp_path: Path) -> None:
    file = written(tmp_path, LEAST.replace("[ordering", "election_ms = 150\n[ordering"))
    with pytest.raises(Misconfigured, match=r":4: election_ms \(150\) must be at least twice heartbeat_ms \(100\)"):
        ClusterFile(file)
    written(tmp_path, LEAST.replace("[ordering", "\n# slowly\nheartbeat_ms = 400\n[ordering"))
    with pytest.raises(Misconfigured, match=r":6: election_ms \(500\) must be at least twice heartbeat_ms \(400\)"):
        ClusterFile(file)


def test_a_database_acknowledges_what_is_synced(tmp_path: Path) -> None:
    log = LEAST.replace("[ordering", 'engine = "ziplog"\nack = "received"\n[ordering')
    log += '[storage.s1]\nlisten = "127.0.0.1:7411"\n'
    assert ClusterFile(written(tmp_path, log)).server("storage", "s1").core().acks_received
    with pytest.raises(Misconfigured, match='ack = "received" is for a log without mapping servers'):
        ClusterFile(written(tmp_path, log + '[mapping.m1]\nlisten = "127.0.0.1:7999"\n'))
    with pytest.raises(Misconfigured, match=r'ack must be "synced" or "received"; it is .written.'):
        ClusterFile(written(tmp_path, log.replace("received", "written")))


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    file = ClusterFile(written(tmp_path, WHOLE))
    with pytest.raises(Misconfigured, match=r"it has no table \[ordering.o9\]; it has o1, o2, o3"):
        file.server("ordering", "o9")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="No such file"):
        ClusterFile(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(Misconfigured, match="not UTF-8"):
        ClusterFile(tmp_path / "bytes.toml")


def test_all_addresses_of_a_machine(tmp_path: Path) -> None:
    """Servers of several machines may listen at 0.0.0.0 and one port each; two of one machine may not."""
    head = LEAST + '\n[security]\nca = "a"\ncertificate = "b"\nkey = "c"\n'
    table = '\n[storage.{}]\nlisten = "0.0.0.0:7400"\naddress = "{}:{}"\nmetrics = "[::]:9400"\n'
    apart = head + table.format("s1", "db1", 7400) + table.format("s2", "db2", 7400)
    assert len(ClusterFile(written(tmp_path, apart)).servers) == 3
    together = head + table.format("s1", "db1", 7400) + table.format("s2", "db1", 7401)
    with pytest.raises(Misconfigured, match=r"db1:7400 is already taken by \[storage.s1\]"):
        ClusterFile(written(tmp_path, together))


@pytest.mark.parametrize("name", ENGINES)
def test_every_setting_is_one_of_a_server(name: str) -> None:
    """A key that no configuration has would be read and ignored."""
    engine = engine_of(name)
    kinds = {"mapping": MappingServerConfig, **{role.name: role.config for role in engine.roles.values()}}
    fields = {role: {field.name for field in dataclasses.fields(kind)} for role, kind in kinds.items()}
    fields["security"] = set(Security.__dataclass_fields__)
    fields["up"] = {"shards"}
    fields["node"] = {"roles", "data", "listen", "address", "metrics"}
    for key, setting in settings_of(engine).items():
        for where in setting.tables:
            assert any(key in fields[role] for role in ([where] if where in fields else fields)), (key, where)
    assert set.union(*fields.values()) == {*settings_of(engine), "cluster", "ordering", "mapping", "security", "names"}


def test_the_configuration_in_the_documents(tmp_path: Path) -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    pages = [(docs / page).read_text() for page in ("log.md", "security.md")]
    shown = "\n".join([page.split("```toml\n")[1].partition("```")[0] for page in pages])
    assert "[cluster]" in shown
    assert "[security]" in shown
    file = ClusterFile(written(tmp_path, shown))
    assert len(file.servers) == 6
    assert file.server("storage", "s2").data == tmp_path / "data" / "s2"
    assert file.server("ordering", "o1").metrics == "127.0.0.1:9401"
