"""The directory of a cluster on this machine: its files when new, and rejected ones."""

from __future__ import annotations

import socket
from collections import Counter
from pathlib import Path

import pytest

from logdb.admin.layout import FILE, Layout, NotACluster, changing, free_ports
from logdb.errors import Unavailable
from logdb.log.engine import Shape
from logdb.system.directories import LOCK, lock
from tests.harness import ports

PORTS = ports.free_ports()
MASK = "mask"


def roles(layout: Layout) -> Counter[str]:
    return Counter(role for role, _ in layout.file.servers)


def test_a_new_one(tmp_path: Path) -> None:
    shape = Shape(shards=3, replicas=2, ordering=3, mapping=1, aggregators=1, spares=1)
    layout = Layout.make(tmp_path, shape, {"cut_interval_ms": 2, "compact_above": 0.5}, next(PORTS))
    assert roles(layout) == {"ordering": 3, "mapping": 1, "aggregator": 1, "storage": 7}
    assert layout.file.shards == 3
    assert layout.members_per_shard == 2
    assert layout.file.server("ordering", "o2").cut_interval_ms == 2  # type: ignore[union-attr]
    assert layout.file.server("storage", "s7").data == tmp_path / "data" / "s7"
    assert len({server.listen for server in layout.file.servers.values()}) == len(layout.file.servers)
    again = Layout(tmp_path)
    assert again.file.name == layout.file.name
    assert again.differs(shape, {"shards", "replicas", "ordering", "mapping", "aggregators", "policy"}) == ""


def test_two_clusters_are_always_distinguished(tmp_path: Path) -> None:
    (tmp_path / "one x").mkdir()
    (tmp_path / "two").mkdir()
    shape = Shape(mapping=0)
    one, two = (Layout.make(tmp_path / name, shape, {}, next(PORTS)) for name in ("one x", "two"))
    assert one.file.name.startswith("one-x-")
    assert one.file.name != two.file.name


def test_masking_takes_an_odd_number_of_replicas(tmp_path: Path) -> None:
    layout = Layout.make(tmp_path, Shape(1, 5, 1, 0, policy=MASK), {}, next(PORTS))
    assert layout.members_per_shard == 5
    (tmp_path / "4").mkdir()
    with pytest.raises(ValueError, match="an odd number of replicas, not 4"):
        Layout.make(tmp_path / "4", Shape(1, 4, 1, 0, policy=MASK), {}, next(PORTS))


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    layout = Layout.make(tmp_path, Shape(2, 2, 3, 0), {}, next(PORTS))
    assert layout.differs(Shape(3, 3, 1, 2, policy=MASK), set()) == ""
    assert layout.differs(Shape(shards=3), {"shards"}) == "--shards 2, not 3"
    assert layout.differs(Shape(policy=MASK), {"policy"}) == "--policy finalize-and-add, not mask"
    assert layout.differs(Shape(ordering=1), {"ordering"}) == "--ordering 3, not 1"
    assert layout.differs(Shape(replicas=3), {"replicas"}) == "--replicas 2, not 3"
    assert layout.differs(Shape().on_nodes(3), {"nodes"}) == "a process for each server, not nodes"


def test_storage_servers_are_added(tmp_path: Path) -> None:
    layout = Layout.make(tmp_path, Shape(1, 2, 1, 0), {}, next(PORTS))
    before = dict(layout.file.servers)
    assert layout.add_storage(2) == ["s3", "s4"]
    assert Layout(tmp_path).file.servers == layout.file.servers
    assert {name: layout.file.servers[name] for name in before} == before
    assert roles(layout)["storage"] == 4
    layout.remove(["s3", "s4"])
    assert Layout(tmp_path).file.servers == layout.file.servers == before
    assert layout.add_storage(1) == ["s3"]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"no_such": 1}, "no_such is not a key of"),
        ({"heartbeat_ms": "often"}, "heartbeat_ms must be a whole number"),
        ({"name": "two"}, "Cannot overwrite a value"),
    ],
)
def test_invalid_settings_leave_no_files(tmp_path: Path, settings: dict[str, int | str], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Layout.make(tmp_path, Shape(1, 1, 1, 0), settings, next(PORTS))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("...")
    with pytest.raises(NotACluster, match=r"holds 'thesis.txt' and no cluster.toml"):
        Layout.make(tmp_path, Shape(), {}, next(PORTS))
    with pytest.raises(NotACluster, match="there is no cluster in"):
        Layout(tmp_path)
    assert not (tmp_path / FILE).exists()


def test_an_interrupted_creation_is_repeated(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.tmp").write_text("[clus")
    (tmp_path / LOCK).write_text("")
    Layout.make(tmp_path, Shape(1, 1, 1, 0), {}, next(PORTS))
    assert not (tmp_path / f"{FILE}.tmp").exists()


def test_one_command_at_a_time(tmp_path: Path) -> None:
    held = lock(tmp_path)
    with pytest.raises(Unavailable, match=r"another command is changing the cluster in .*: this process"):
        with changing(tmp_path):
            raise AssertionError
    held.release()
    with changing(tmp_path):
        pass


def test_a_port_in_use_is_skipped() -> None:
    first = next(PORTS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        found = free_ports(first)
        assert next(found) > first
