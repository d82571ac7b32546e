"""The workloads that are measured in turns, their peers, and LogDB's targets."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, count, cycle, islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import COUNTER_BYTES, Operation, Peer, Session
from benchmarks.peers.disk import Disk, record_of_put
from benchmarks.peers.lmdb import LMDB
from benchmarks.peers.ours import LogDB, LogDBCoroutines, LogDBInTransactions
from benchmarks.peers.rocksdb import RocksDB
from benchmarks.peers.sqlite import SQLite
from benchmarks.rounds import Scale, Step

VALUE_BYTES = 100
HOT_KEYS = 10
GROUP_KEYS = 10
COROUTINES = 64
SCANNERS = 16
RECORD_BYTES = 1_000
"""YCSB's record: 10 fields of 100 bytes."""
LONGEST_SCAN = 100
INSERTS = 0.05
SKEW = 0.99
"""The exponent of YCSB's zipfian distribution."""
BURST = 200


class LogDBGets(LogDB):
    """The measure of a short scan: one may cost as much as this number of gets."""

    name = "LogDB, gets"


class Stage(contextlib.ExitStack):
    """Fresh directories with opened peers in them, and what they are given to do. Closes everything at the end."""

    def __init__(self, root: Path, scale: Scale) -> None:
        super().__init__()
        self.root, self._random = root, random.Random(20130101)
        self.keys = [b"key-%012d" % number for number in range(scale.keys)]
        self.value = self._random.randbytes(VALUE_BYTES)
        self._versions = count()

    def open(self, kind: type[Peer]) -> Peer:
        """A peer that holds all the keys, each with a random value whose counter is at 0."""
        peer = kind(self.root / kind.name)
        self.callback(peer.close)
        random_bytes = self._random.randbytes
        peer.load({key: bytes(COUNTER_BYTES) + random_bytes(VALUE_BYTES - COUNTER_BYTES) for key in self.keys})
        return peer

    def records(self, record_bytes: int) -> dict[bytes, bytes]:
        """As many of YCSB's as there are keys, in no order of their keys."""
        return {record_key(number): self._random.randbytes(record_bytes) for number in range(len(self.keys))}

    def operations(self, record_bytes: int) -> Iterator[list[Operation]]:
        """The operations of workload E, in bursts, without end: scans from keys of unequal popularity, and inserts."""
        draw, fresh = random.Random(20100610), count(len(self.keys))
        popular = [record_key(number) for number in draw.sample(range(len(self.keys)), len(self.keys))]
        weights = list(accumulate(1 / rank**SKEW for rank in range(1, len(popular) + 1)))
        while True:
            starts = draw.choices(popular, cum_weights=weights, k=BURST)
            yield [
                (record_key(next(fresh)), draw.randbytes(record_bytes))
                if draw.random() < INSERTS
                else (start, draw.randint(1, LONGEST_SCAN))
                for start in starts
            ]

    def session(self, peer: Peer) -> Session:
        """A session that is closed before its peer."""
        session = peer.session()
        self.callback(session.close)
        return session

    def random_keys(self) -> Iterator[bytes]:
        """Keys in random order, without end, all equally often."""
        return cycle(self._random.sample(self.keys, len(self.keys)))

    def random_hot_keys(self) -> Iterator[bytes]:
        """A few keys without end, in an order that does not repeat soon."""
        return cycle(self._random.choices(self.keys[:HOT_KEYS], k=1_000))

    def new_value(self) -> bytes:
        """Another one each time: a peer may notice that a write would change nothing, and not make it durable."""
        return next(self._versions).to_bytes(COUNTER_BYTES, "big") + self.value[COUNTER_BYTES:]


Contestant = Callable[[Stage], Sequence[Step]]
"""Opens a peer on a stage and returns what its threads are to do."""


class Workload(NamedTuple):
    """`contestants` by name, LogDB first. `targets`: at least how many times the rate of a peer."""

    name: str
    title: str
    unit: str
    contestants: Mapping[str, Contestant]
    targets: Mapping[str, float]


def in_threads(
    kind: type[Peer], step: Callable[[Stage, Session], Step], threads: int = 1, *, restarted: bool = False
) -> Contestant:
    """The peer's threads, each with a session."""

    def contestant(stage: Stage) -> list[Step]:
        peer = stage.open(kind)
        if restarted:
            peer.reopen()
        return [step(stage, stage.session(peer)) for _ in range(threads)]

    return contestant


# ---- steps


def put(stage: Stage, session: Session) -> Step:
    keys, new_value = stage.random_keys(), stage.new_value

    def step() -> int:
        session.put(next(keys), new_value())
        return 1

    return step


def multi_put(stage: Stage, session: Session) -> Step:
    keys, new_value = stage.random_keys(), stage.new_value

    def step() -> int:
        session.multi_put(dict.fromkeys(islice(keys, GROUP_KEYS), new_value()))
        return 1

    return step


def increment(stage: Stage, session: Session) -> Step:
    hot = stage.random_hot_keys()

    def step() -> int:
        session.increment(next(hot))
        return 1

    return step


def get(stage: Stage, session: Session) -> Step:
    keys = stage.random_keys()

    def step() -> int:
        session.get_each(list(islice(keys, 500)))
        return 500

    return step


def multi_get(stage: Stage, session: Session) -> Step:
    keys = stage.random_keys()

    def step() -> int:
        session.multi_get_each([list(islice(keys, GROUP_KEYS)) for _ in range(50)])
        return 50

    return step


def scan(_: Stage, session: Session) -> Step:
    return session.scan


def short_scan(limit: int) -> Callable[[Stage, Session], Step]:
    def of_session(stage: Stage, session: Session) -> Step:
        starts = stage.random_keys()

        def step() -> int:
            session.scan_each(list(islice(starts, 100)), limit)
            return 100

        return step

    return of_session


def put_in_coroutines(stage: Stage) -> list[Step]:
    peer = LogDBCoroutines(stage.root / "LogDB")
    stage.callback(peer.close)
    peer.load(dict.fromkeys(stage.keys, stage.value))
    keys = stage.random_keys()

    def step() -> int:
        burst = [(key, stage.new_value()) for key in islice(keys, 20 * COROUTINES)]
        peer.put_each(burst, COROUTINES)
        return len(burst)

    return [step]


def workload_e(kind: type[Peer], record_bytes: int) -> Contestant:
    """One thread of the peer, restarted after it was loaded."""

    def contestant(stage: Stage) -> list[Step]:
        peer = kind(stage.root / kind.name)
        stage.callback(peer.close)
        peer.load(stage.records(record_bytes))
        peer.reopen()
        session, bursts = stage.session(peer), stage.operations(record_bytes)

        def step() -> int:
            session.do_each(next(bursts))
            return BURST

        return [step]

    return contestant


def workload_e_in_coroutines(record_bytes: int) -> Contestant:
    def contestant(stage: Stage) -> list[Step]:
        peer = LogDBCoroutines(stage.root / "LogDB")
        stage.callback(peer.close)
        peer.load(stage.records(record_bytes))
        peer.reopen()
        bursts = stage.operations(record_bytes)

        def step() -> int:
            peer.do_each(next(bursts), SCANNERS)
            return BURST

        return [step]

    return contestant


def record_key(number: int) -> bytes:
    """YCSB's: its numbers, mixed by FNV-1a, so that what is inserted goes anywhere."""
    mixed = 0xCBF29CE484222325
    for octet in number.to_bytes(8, "little"):
        mixed = ((mixed ^ octet) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return b"user%020d" % mixed


def write_bare(stage: Stage) -> list[Step]:
    disk = Disk(stage.root / "disk")
    stage.callback(disk.close)
    data = record_of_put(stage.keys[0], stage.value)

    def step() -> int:
        disk.write(data)
        return 1

    return [step]


# ---- the program

PEERS: tuple[type[Peer], ...] = (LogDB, LMDB, SQLite, RocksDB)
TRANSACTIONAL: tuple[type[Peer], ...] = (LogDB, LMDB, SQLite)


def reads(
    name: str, title: str, unit: str, step: Callable[[Stage, Session], Step], targets: Mapping[str, float]
) -> list[Workload]:
    """The workload in two states: with all that was written still in memory, and after a restart."""
    return [
        Workload(
            f"{name}-{state}",
            f"{title}, {state}",
            unit,
            {kind.name: in_threads(kind, step, restarted=state == "restarted") for kind in PEERS},
            targets,
        )
        for state in ("loaded", "restarted")
    ]


def short_scans(name: str, title: str, kinds: Sequence[type[Peer]]) -> list[Workload]:
    """Scans of 1 and of 10 rows, measured in gets, in the two states of `reads`."""
    return [
        Workload(
            f"{name.format(limit)}-{state}",
            f"{title.format(f'{limit} rows' if limit > 1 else '1 row')}, {state}",
            "scans/s",
            {
                **{kind.name: in_threads(kind, short_scan(limit), restarted=state == "restarted") for kind in kinds},
                LogDBGets.name: in_threads(LogDBGets, get, restarted=state == "restarted"),
            },
            {LogDBGets.name: 1 / gets},
        )
        for limit, gets in ((1, 3), (10, 5))
        for state in ("loaded", "restarted")
    ]


WORKLOADS = (
    Workload(
        "put",
        "Durable put, 1 thread",
        "puts/s",
        {**{kind.name: in_threads(kind, put) for kind in PEERS}, Disk.name: write_bare},
        {SQLite.name: 1.0, LMDB.name: 1.7, Disk.name: 0.8},
    ),
    Workload(
        "put-64-threads",
        "Durable put, 64 threads",
        "puts/s",
        {**{kind.name: in_threads(kind, put, 64) for kind in PEERS}, Disk.name: write_bare},
        {SQLite.name: 4.0},
    ),
    Workload(
        "put-64-coroutines",
        "Durable put, 64 coroutines (SQLite: 1 thread, its best)",
        "puts/s",
        {LogDB.name: put_in_coroutines, SQLite.name: in_threads(SQLite, put), Disk.name: write_bare},
        {SQLite.name: 10.0},
    ),
    Workload(
        "multi-put",
        "Durable 10-key multi-put, 1 thread",
        "multi-puts/s",
        {**{kind.name: in_threads(kind, multi_put) for kind in PEERS}, Disk.name: write_bare},
        {SQLite.name: 1.7, LMDB.name: 3.0},
    ),
    *(
        Workload(
            f"transactions-{threads}-threads",
            f"Read-modify-write of 10 hot keys, {threads} threads",
            "commits/s",
            {**{kind.name: in_threads(kind, increment, threads) for kind in TRANSACTIONAL}, Disk.name: write_bare},
            {SQLite.name: 2.0},
        )
        for threads in (8, 64)
    ),
    *reads("get", "Get", "gets/s", get, {RocksDB.name: 1.0, LMDB.name: 0.6}),
    *reads("multi-get", "10-key multi-get", "multi-gets/s", multi_get, {SQLite.name: 1.0, RocksDB.name: 1.0}),
    *reads("scan", "Ordered scan", "rows/s", scan, {RocksDB.name: 1.0}),
    *short_scans("scan-of-{}", "Scan of {}", PEERS),
    *short_scans("scan-of-{}-in-transaction", "Scan of {} in a transaction", (LogDBInTransactions,)),
    *(
        Workload(
            f"workload-e-{record_bytes}",
            f"YCSB's workload E, records of {record_bytes:,} bytes, 1 thread",
            "operations/s",
            {kind.name: workload_e(kind, record_bytes) for kind in PEERS},
            {LMDB.name: 0.7},
        )
        for record_bytes in (RECORD_BYTES, VALUE_BYTES)
    ),
    *(
        Workload(
            f"workload-e-{record_bytes}-coroutines",
            f"YCSB's workload E, records of {record_bytes:,} bytes, {SCANNERS} coroutines (LMDB: 1 thread, its best)",
            "operations/s",
            {LogDB.name: workload_e_in_coroutines(record_bytes), LMDB.name: workload_e(LMDB, record_bytes)},
            {LMDB.name: 0.5},
        )
        for record_bytes in (RECORD_BYTES, VALUE_BYTES)
    ),
)
