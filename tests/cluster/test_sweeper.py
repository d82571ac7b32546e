"""Sweeps in a cluster: one mapping server carries them out, and another one takes over (PROTOCOL.md, "Retention")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from logdb.cluster.mapping_server import sweeper
from logdb.cluster.messages import SliceRequest
from logdb.cores.effects import SECOND
from logdb.log.contract import LogRecord, Record
from logdb.named_logs.layout import Layout, stored
from logdb.named_logs.retention import Retention
from logdb.retention.expiry import EXPIRING, with_expiry
from logdb.retention.sweep import LABEL, TICK
from logdb.store.key_map import KeyMap
from logdb.store.records import (
    COMMIT,
    VALUE,
    Commit,
    Place,
    decode_commit,
    digest,
    encode_commit,
    unversioned_key,
)
from tests.harness.stage import Log, Server, commit

LARGE = b"large " * 2_000


class TimedLog(Log):
    """A log with a tenth of a second between two records."""

    def perform(self, request: Any) -> Any:
        answer = super().perform(request)
        return answer._replace(time=answer.gsn * SECOND // 10) if isinstance(answer, LogRecord) else answer


class Servers:
    """Three mapping servers that sweep every second."""

    def __init__(self, *records: Record) -> None:
        self.log = TimedLog(*records)
        names = ["m0", "m1", "m2"]
        self.servers = []
        for number, name in enumerate(names):
            peers = tuple(peer for peer in names if peer != name)
            server = Server(name=name, seed=number, is_behind=True, peers=peers, sweep_ns=SECOND)
            server.wait(60 * SECOND)
            server.take(SliceRequest)
            self.servers.append(server)
        self.log.run(*self.servers)

    def go_on(self, seconds: int, running: Sequence[Server] | None = None) -> None:
        running = self.servers if running is None else running
        for _ in range(seconds * 5):
            for server in running:
                server.wait(SECOND // 5)
            self.log.run(*running)

    def sweeps(self) -> list[Commit]:
        """The commits of sweeps, in the order of the log."""
        commits = [
            decode_commit(payload, gsn) for gsn, (tag, payload) in enumerate(self.log.records, 1) if tag == COMMIT
        ]
        return [one for one in commits if one.label == LABEL]

    def rows(self, start: bytes, end: bytes) -> list[bytes]:
        """The keys of a range, which are the same on all servers that have applied the log."""
        found = []
        for server in self.servers:
            replica = server.core.replica
            if replica.applied == len(self.log.records):
                batches = replica.map.scan(start, end, replica.applied)
                found.append([key for batch in batches for key, _ in batch])
        assert found
        assert all(keys == found[0] for keys in found)
        return found[0]


def expiring(sequence: int, writes: dict[bytes, bytes | None], ttl: float) -> Record:
    made, appended = with_expiry(writes, ttl)
    return COMMIT, encode_commit(Commit(1, sequence, made, appended=appended))


def test_one_server_deletes_keys_that_have_expired() -> None:
    servers = Servers(
        expiring(1, {b"a": b"1", b"b": b"1"}, 0.5), expiring(2, {b"c": b"1"}, 3_600), commit(3, {b"b": b"2"})
    )
    servers.go_on(1)
    assert servers.rows(b"a", b"z") == [b"a", b"b", b"c"]
    for number in range(4, 20):
        servers.log.add(commit(number, {b"x": b""}))
    servers.go_on(5)
    assert servers.rows(b"a", b"x") == [b"b", b"c"]
    assert len(servers.rows(*EXPIRING.range())) == 1
    assert len({one.client for one in servers.sweeps() if b"a" in one.writes}) == 1
    count = len(servers.sweeps())
    servers.go_on(20)
    assert len(servers.sweeps()) <= count + 2, "the others look once at what is not due"


def test_a_value_that_is_nowhere_stops_no_sweep() -> None:
    """A forged place, as the policy of a log: each sweep ended there."""
    forged = {Layout("log").policy: Place(1, 77, len(LARGE), digest(LARGE))}
    servers = Servers(expiring(1, {b"a": b"1"}, 0.1), *[commit(number, forged) for number in range(2, 9)])
    servers.go_on(6)
    assert servers.rows(b"a", b"b") == []


def test_another_server_takes_over() -> None:
    servers = Servers(expiring(1, {b"a": b"1"}, 0.1), *[commit(number, {b"x": b""}) for number in range(2, 9)])
    others = servers.servers[1:]
    servers.go_on(2, others)
    assert servers.sweeps() == [], "the second waits for the first"
    servers.go_on(8, others)
    assert servers.rows(b"a", b"b") == []
    clients = {one.client for one in servers.sweeps()}
    assert len(clients) == 1
    servers.log.add(expiring(20, {b"b": b"1"}, 0.1), *[commit(number, {b"x": b""}) for number in range(21, 29)])
    servers.go_on(8)
    assert servers.rows(b"b", b"c") == []
    assert len({one.client for one in servers.sweeps()} - clients) == 1, "the first is there again"


def test_two_servers_that_sweep_at_once_delete_once() -> None:
    servers = Servers(expiring(1, {b"a": b"1"}, 0.1), *[commit(number, {b"x": b""}) for number in range(2, 9)])
    for server in servers.servers:
        server.core.sweeper.turn = 0
    servers.go_on(6)
    assert servers.rows(b"a", b"b") == []
    assert len({one.client for one in servers.sweeps()}) == 3
    replica = servers.servers[0].core.replica
    deleting = [one for one in servers.sweeps() if b"a" in one.writes]
    assert [version for version, value, _ in replica.map.versions(b"a", replica.applied)] != []
    committed = [
        one
        for one in deleting
        if not replica.coordinator.ledger.is_aborted(replica.coordinator.ledger.find(one.client, one.sequence) or 0)
    ]
    assert len(committed) == 1


def test_large_entries_and_long_keys_are_swept() -> None:
    layout, key = Layout("log"), b"k" * 5_000
    log = TimedLog((VALUE, LARGE), (VALUE, key))
    entries: dict[bytes, Any] = {
        unversioned_key(layout.entries, 0): Place(1, 1, len(LARGE), digest(LARGE)),
        unversioned_key(layout.entries, 1): stored(b"small", None, None),
    }
    (row,) = [row for row in with_expiry({key: b"1"}, 0.1)[0] if row != key]
    writes = {
        key: b"1",
        layout.policy: Retention(size_bytes=6).encode(),
        **entries,
        row: Place(2, 1, len(key), digest(key)),
    }
    servers = Servers(*log.records, (COMMIT, encode_commit(Commit(1, 1, writes, appended=3))))
    servers.go_on(2)
    for number in range(2, 9):
        servers.log.add(commit(number, {b"x": b""}))
    servers.go_on(4)
    assert servers.rows(key, key + b"\0") == []
    assert len(servers.rows(*layout.range())) == 1


def test_a_database_without_expiry_is_not_written() -> None:
    servers = Servers(commit(1, {b"a": b"1"}))
    servers.go_on(30)
    assert servers.sweeps() == []
    assert servers.rows(TICK, TICK + b"\0") == []


def test_keys_that_do_not_exist_are_passed_in_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other event was handled while a sweep looked for rows among them."""
    monkeypatch.setattr(sweeper, "BATCHES_AT_ONCE", 2)
    in_events = [0]
    scan, fire = KeyMap.scan, Server.fire

    def counting(key_map: KeyMap, *given: Any) -> Iterator[Any]:
        for batch in scan(key_map, *given):
            in_events[-1] += 1
            yield batch

    def firing(server: Server, *given: Any) -> Any:
        in_events.append(0)
        return fire(server, *given)

    low = EXPIRING.range()[0]
    gone = [low + b"%05d" % number for number in range(5_000)]
    servers = Servers(
        commit(1, dict.fromkeys(gone, b"")),
        commit(2, dict.fromkeys(gone)),
        expiring(3, {b"a": b"1"}, 0.1),
        *[commit(number, {b"x": b""}) for number in range(4, 20)],
    )
    monkeypatch.setattr(KeyMap, "scan", counting)
    monkeypatch.setattr(Server, "fire", firing)
    servers.go_on(3)
    assert 2 <= max(in_events) <= 4
    assert sum(in_events) > 20
    monkeypatch.undo()
    assert servers.rows(b"a", b"b") == []
