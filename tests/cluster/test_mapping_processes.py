"""Mapping servers as processes: commits can be read at any of them while others fail."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

import pytest

from logdb.clients.background_loop import in_shared_loop
from logdb.clients.log_client import discover
from logdb.cluster.client.requests import Commit, Compact, Found, Get, Scan
from logdb.cluster.messages import Consistency
from logdb.errors import VersionTrimmed
from logdb.log import connect
from logdb.store.records import COMMIT, VALUE, Place, digest, encode_commit
from logdb.store.records import Commit as CommitRecord
from logdb.wire.envelopes import CLIENT, VERSION, Hello
from tests.harness.applications import Application
from tests.harness.cluster_processes import Processes

LARGE = bytes(range(256)) * 40


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """One server of each role but two mapping servers, and a shard."""
    shape = {"ordering": 1, "storage": 1, "aggregators": 0, "failures": 0, "mapping": 2}
    with Processes(tmp_path, policy="finalize-and-add", **shape) as running:
        running.start_all()
        with connect(running.addresses["s1"]) as log:
            while not log.configuration().spares:
                pass
            log.add_shard()
        yield running


def application(processes: Processes, *servers: str) -> Application:
    """A client of these mapping servers; of all, if none is named."""
    names = servers or [name for name, role in processes.roles.items() if role == "mapping"]
    return Application([processes.addresses["o1"]], [processes.addresses[name] for name in names])


def test_commits_are_read_at_every_server(processes: Processes) -> None:
    with application(processes, "m1") as one, application(processes, "m2") as other:
        first = one.call(Commit({b"a": b"1", b"large": LARGE}, label="first"))
        assert first.verdict.committed
        assert other.call(Get([b"a", b"large", b"none"])).entries == (
            (first.version, b"1"),
            (first.version, LARGE),
            (0, None),
        )
        second = other.call(Commit({b"a": None, b"b": b"2"}, snapshot=first.version, reads=[b"a"]))
        lost = one.call(Commit({b"a": b"3"}, snapshot=first.version, reads=[b"a"]))
        assert second.verdict.committed
        assert (lost.verdict.key, lost.verdict.version) == (b"a", second.version)
        assert one.call(Scan()).rows == ((b"b", b"2"), (b"large", LARGE))
        assert other.call(Get([b"a"], Consistency.SNAPSHOT, first.version)) == Found(
            first.version, ((first.version, b"1"),)
        )
    assert processes.metric("m1", "logdb_verdicts_total") >= 2  # a repeated request gets the verdict again
    assert processes.metric("m2", "logdb_reads_total") >= 2
    aborts = 'logdb_aborts_total{label="",reason="conflict"}'
    assert processes.metric("m1", aborts) == 1
    assert processes.metric("m1", "logdb_commits_total") >= 1  # the first one may have come with a checkpoint
    assert processes.metric("m1", "logdb_applied_gsn") >= lost.version


def test_a_client_goes_on_with_another_server(processes: Processes) -> None:
    with application(processes) as client:
        for number in range(30):
            if number in (10, 20):
                processes.kill("m1" if number == 10 else "m2")
                processes.start("m1" if number == 10 else "m2")
            assert client.call(Commit({b"k": b"%d" % number})).verdict.committed
            assert client.call(Get([b"k"])).entries[0][1] == b"%d" % number


def test_any_node_names_the_mapping_servers(processes: Processes) -> None:
    mine = Hello(VERSION, "", CLIENT, "client-1")
    told = [in_shared_loop(discover([address], mine, 10.0)) for address in processes.addresses.values()]
    servers = (processes.addresses["m1"], processes.addresses["m2"])
    assert [hello.mapping for hello in told] == [servers] * len(processes.addresses)


# ---- the state on disk


def put_many(client: Application, first: int, count: int, size: int = 100) -> int:
    """Commit keys one after another, many at a time. Returns the version of the last."""
    version = 0
    for start in range(first, first + count, 500):
        numbers = range(start, min(start + 500, first + count))
        writes = {b"key %06d" % number: b"%d" % number * size for number in numbers}
        version = client.call(Commit({b"round": b"%d" % start, **writes})).version
    return version


def everything(client: Application, version: int) -> list[tuple[bytes, bytes]]:
    """All rows at a version."""
    rows: list[tuple[bytes, bytes]] = []
    start = None
    while True:
        page = client.call(Scan(start, None, False, 1_000, Consistency.SNAPSHOT, version))
        rows += page.rows
        if page.rest is None:
            return rows
        start = page.rest


def covered(processes: Processes, name: str, version: int) -> None:
    """Wait until the server's checkpoint reaches there."""
    while processes.metric(name, "logdb_checkpoint_gsn") < version:
        pass


def replayed(processes: Processes, name: str) -> float:
    """The number of records of the log that the server has received since it started."""
    return processes.metric(name, "logdb_replayed_records_total")


def test_a_restart_replays_only_the_log_after_the_checkpoint(processes: Processes) -> None:
    with application(processes, "m1") as one:
        first = put_many(one, 0, 3_000)
        covered(processes, "m1", first)
        one.call(Commit({b"key 000007": b"changed", b"large": LARGE}, label="after"))
        last = one.call(Commit({b"key 000008": None})).version
        whole, old = everything(one, last), everything(one, first)
        processes.kill("m1")
        processes.start("m1")
        assert everything(one, last) == whole
        assert everything(one, first) == old
        assert replayed(processes, "m1") <= last - first + 2
    with application(processes, "m2") as other:
        assert everything(other, last) == whole
        assert everything(other, first) == old


def test_a_kill_at_any_time_loses_no_commit(processes: Processes) -> None:
    version = 0
    with application(processes, "m1", "m2") as client:
        for round_ in range(6):
            version = put_many(client, 1_000 * round_, 1_000)
            processes.kill("m1")  # wherever its checkpoint is
            processes.start("m1")
        whole = everything(client, version)
        assert len(whole) == 6_001
    with application(processes, "m1") as one:
        assert everything(one, version) == whole


def damage(tables: Path, how: str) -> None:
    """Damage tables with rows of `put_many`, in the same way each time."""
    data = bytearray(tables.read_bytes())
    pages = len(data) // 4096
    if how == "gone":
        shutil.rmtree(tables.parent)
    elif how == "garbage":
        tables.write_bytes(b"no database" * 1_000)
    elif how == "cut off":
        os.truncate(tables, pages // 2 * 4096)
    elif how == "pages":
        for page in range(pages // 2, pages // 2 + 40):
            data[page * 4096 : page * 4096 + 24] = blake2b(b"%d" % page, digest_size=24).digest()
        tables.write_bytes(data)
    else:
        tables.write_bytes(data.replace(b"700" * 100, b"700" * 99 + b"701"))


@pytest.mark.parametrize("how", ["gone", "garbage", "cut off", "pages", "a value", "another's"])
def test_a_checkpoint_that_is_damaged_is_made_again(processes: Processes, how: str) -> None:
    with application(processes, "m1") as one:
        version = put_many(one, 0, 2_000)
        covered(processes, "m1", version)
        whole = everything(one, version)
        processes.kill("m1")
        path = processes.path / "data" / "m1" / "map"
        if how == "another's":
            covered(processes, "m2", version)
            processes.kill("m2")
            shutil.rmtree(path)
            shutil.copytree(processes.path / "data" / "m2" / "map", path)
            processes.start("m2")
        else:
            damage(next(run for run in path.glob("run-*.mdb") if b"700" * 100 in run.read_bytes()), how)
        processes.start("m1")
        assert everything(one, version) == whole
        assert ("the checkpoint is damaged" in processes.log("m1")) == (how != "gone")


# ---- compaction


def test_a_new_server_gets_versions_that_the_log_lacks(processes: Processes) -> None:
    """From another server, and where there is none from the log, whose beginning was trimmed."""
    with application(processes) as client:
        put_many(client, 0, 2_000)
        client.call(Commit({b"large": LARGE, b"key 000001": None}))
        version = put_many(client, 0, 1_000, size=50)
        done = client.call(Compact(version))
        assert done.floor == version
        assert done.oldest_after == version
        with connect(processes.addresses["s1"]) as log:
            assert log.oldest() == version
        whole = everything(client, version)
        assert len(whole) == 2_002
        processes.kill("m2")
        shutil.rmtree(processes.path / "data" / "m2")
        processes.start("m2")
        with application(processes, "m2") as other:
            assert everything(other, version) == whole
            assert other.call(Get([b"large"])).entries[0][1] == LARGE
        for name in ("m1", "m2"):
            processes.kill(name)
            shutil.rmtree(processes.path / "data" / name)
        processes.start("m2")
        with application(processes, "m2") as other:
            assert everything(other, version) == whole
            assert processes.metric("m2", "logdb_taken_rows_total") >= len(whole)
            assert other.call(Get([b"large"])).entries[0][1] == LARGE
            with pytest.raises(VersionTrimmed):
                other.call(Get([b"large"], Consistency.SNAPSHOT, version - 1))


def test_a_server_that_lost_its_disk_after_two_compactions_has_all_large_values(processes: Processes) -> None:
    """DBS-13, as it was seen on real servers: other commits and two floors came between a value and its commit. The
    second compaction did not restate values that the first one had moved, so a server that rebuilt from it looked for
    the trimmed original, and no later compaction ended."""
    with application(processes) as client, connect(processes.addresses["s1"]) as log:
        client.call(Commit({b"k": b"1"}))
        (value,) = log.append([(VALUE, LARGE)])
        floors = [client.call(Commit({b"k": b"%d" % number})).version for number in range(3)]
        place = Place(value, 1, len(LARGE), digest(LARGE))
        (version,) = log.append([(COMMIT, encode_commit(CommitRecord(7, 1, {b"large": place})))])
        for floor in floors[1:]:
            assert client.call(Compact(floor)).oldest_after == floor
        whole = everything(client, version)
        assert (b"large", LARGE) in whole
        for name in ("m1", "m2"):
            processes.kill(name)
            shutil.rmtree(processes.path / "data" / name)
        processes.start("m1")
        with application(processes, "m1") as one:
            assert everything(one, version) == whole
            assert one.call(Compact(version)).floor == version
            assert everything(one, version) == whole


def test_a_compaction_goes_on_when_its_server_is_killed(processes: Processes) -> None:
    with application(processes, "m1") as client, connect(processes.addresses["s1"]) as log:
        for number in range(40):
            version = client.call(Commit({b"large %d" % number: LARGE * 10, b"again": b"%d" % number})).version
        whole = everything(client, version)
        with ThreadPoolExecutor(1) as aside:
            compacting = aside.submit(client.call, Compact(version))
            while log.tail() < version + 5:
                pass
            processes.kill("m1")
            processes.start("m1")
            assert compacting.result().floor == version
        assert log.oldest() == version
        assert everything(client, version) == whole
