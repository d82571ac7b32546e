"""The promise of `connect(..., consistency="session")`: causality, and the commits of any client.

A sample of the contract shows that one client sees what it would see without it. The whole contract:
`python -m pytest tests/conformance --sessions`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

import logdb
from logdb.log.engine import ENGINES
from tests.conformance.databases import IN_SESSIONS
from tests.conformance.test_database_transactions import test_a_transaction_reads_one_snapshot
from tests.harness.clusters import Cluster
from tests.harness.worlds import TIMEOUT_S
from tests.sim.engines import simulation_of

WORLDS = IN_SESSIONS
KEYS = (b"a", b"b", b"c")
STEPS = 12

__all__ = ["WORLDS", "test_a_transaction_reads_one_snapshot"]


# ---- the judge


class Write(NamedTuple):
    """A commit of one key."""

    version: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows that a client has read at one version. `since`: its session before that, or one that it was given;
    `until`: its session after that."""

    since: int
    until: int
    rows: dict[bytes, bytes | None]


def versions_of(snapshot: Snapshot, writes: Sequence[Write]) -> list[int]:
    """The versions at which the snapshot could have been taken, by the session of its client."""
    found = []
    for version in [0, *sorted(one.version for one in writes)]:
        rows: dict[bytes, bytes | None] = dict.fromkeys(snapshot.rows)
        for write in sorted(writes):
            if write.version <= version and write.key in rows:
                rows[write.key] = write.value
        end = min([one.version for one in writes if one.version > version], default=1 << 62)
        if rows == snapshot.rows and version <= snapshot.until and end > snapshot.since:
            found.append(version)
    return found


WRITES = (Write(3, b"a", b"1"), Write(5, b"b", b"1"), Write(7, b"a", b"2"))


@pytest.mark.parametrize(
    ("snapshot", "versions"),
    [
        (Snapshot(0, 3, {b"a": b"1"}), [3]),
        (Snapshot(0, 0, {b"a": None}), [0]),
        (Snapshot(4, 6, {b"a": b"1"}), [3, 5]),
        (Snapshot(0, 9, {b"a": b"1", b"b": b"1"}), [5]),
        (Snapshot(7, 7, {b"a": b"1"}), []),
        (Snapshot(3, 3, {b"a": None}), []),
        (Snapshot(0, 6, {b"a": b"2"}), []),
        (Snapshot(0, 9, {b"a": b"2", b"b": None}), []),
    ],
)
def test_the_judge(snapshot: Snapshot, versions: list[int]) -> None:
    """Reads that a session allows, then what is older than it, newer than the client's next one, or of no version."""
    assert versions_of(snapshot, WRITES) == versions


# ---- clients of a cluster


@pytest.fixture(params=ENGINES)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    shape = simulation_of(request.param).CLUSTERS["many"]
    cluster = Cluster.of_shape(tmp_path / "cluster", shape)
    cluster.start(shape.shards)
    yield cluster
    cluster.check()
    cluster.close()


def act(cluster: Cluster, name: str, given: list[int]) -> tuple[list[Write], list[Snapshot], int]:
    """A client writes, reads and increments, and hands its sessions to the others. Returns its writes of `KEYS`, what
    it has read, and the number of its increments."""
    draw = random.Random(name)
    writes, snapshots, increments = list[Write](), list[Snapshot](), 0
    db = logdb.connect(cluster.mapping, consistency="session", timeout=TIMEOUT_S)
    for step in range(STEPS):
        since = db.session
        match draw.choice(("put", "get", "read", "increment", "continue")):
            case "put":
                key, value = draw.choice(KEYS), f"{name} {step}".encode()
                writes.append(Write(db.put(key, value), key, value))
                rows = {key: db.get(key)}
                snapshots.append(Snapshot(writes[-1].version, db.session, rows))
                given.append(db.session)
            case "get":
                key = draw.choice(KEYS)
                rows = {key: db.get(key)}
                snapshots.append(Snapshot(since, db.session, rows))
            case "read":
                with db.transaction(read_only=True) as txn:
                    rows = {key: txn.get(key) for key in KEYS}
                snapshots.append(Snapshot(since, db.session, rows))
            case "increment":
                db.run(lambda txn: txn.put(b"n", b"%d" % (int(txn.get(b"n", b"0")) + 1)))
                increments += 1
            case "continue" if given:
                since = max(since, draw.choice(given[-3:]))
                db.close()
                db = logdb.connect(cluster.mapping, session=since, timeout=TIMEOUT_S)
        assert db.session >= since
    db.close()
    return writes, snapshots, increments


def test_clients_keep_causality(cluster: Cluster) -> None:
    """Each read is of one version, none older than what its client had seen, written or was given."""
    given: list[int] = []
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda name: act(cluster, name, given), ("one", "two", "three")))
    writes = [write for one, _, _ in done for write in one]
    for _, snapshots, _ in done:
        for snapshot in snapshots:
            assert versions_of(snapshot, writes), f"{snapshot} of {sorted(writes)}"
    with logdb.connect(cluster.mapping) as db:
        assert int(db.get(b"n", b"0")) == sum(increments for _, _, increments in done)
