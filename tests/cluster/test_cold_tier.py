"""The cold tier of a cluster: versions are in the store before a compaction drops them (PROTOCOL.md)."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest

import logdb
from logdb.backups.archiving import write_segment
from logdb.backups.places import DirectoryPlace
from logdb.cluster.compaction import archiver
from logdb.cluster.compaction.cold_records import (
    Attached,
    ColdState,
    Copied,
    Target,
    decode_cold,
    encode_cold,
    first_state,
)
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import Compact, Compacted, HeadRows
from logdb.cores.effects import SECOND, Archive
from logdb.errors import BackupError, ColdTierError, Corruption
from logdb.log import requests as log_calls
from logdb.store.folds import ADD
from logdb.store.records import BEGINNING, COLD, COMMIT, VALUE, Fold, MalformedRecord, Place, digest
from logdb.txn.coordinator import Coordinator
from tests.harness.cold_tiers import Tier, compact
from tests.harness.mapping_histories import LARGE, kinds, write
from tests.harness.stage import Log, Server, batch, commit

LOG_ID = bytes(range(16))


def restored(tier: Tier, path: Path, version: int) -> dict[bytes, bytes]:
    """The rows that the tier alone has at a version."""
    logdb.restore(tier.place.location(), path, version=version)
    with logdb.open(path, read_only=True) as db:
        return dict(db.scan())


def rows_at(log: Log, version: int) -> dict[bytes, bytes]:
    """The rows at a version, by a replay of the log."""
    replica = Replica(None, 100)
    for gsn, record in enumerate(log.records[:version], 1):
        if record[0] in (COMMIT, VALUE):
            replica.apply(batch(gsn, record))
        else:
            replica.coordinator.pass_to(gsn)
    rows = {}
    for key in replica.map.keys_from(b"", 1_000):
        value = replica.map.get(key, version, whole=False)
        if isinstance(value, Place):
            value = log.records[value.gsn - 1][1]
        if value is not None:
            rows[key] = value
    return rows


def test_versions_are_in_the_tier_before_the_log_is_trimmed(tmp_path: Path) -> None:
    log = Log(
        commit(1, {b"a": b"1", b"n": b"5"}),
        (VALUE, LARGE),
        commit(2, {b"a": Place(2, 1, len(LARGE), digest(LARGE))}),
        commit(2, {b"a": b"a copy of a transaction"}),
        commit(3, {b"a": None}, folds=[Fold(ADD, b"n", 2)], label="third"),
        commit(4, {b"a": b"refused"}, conditions=[logdb.exists(b"a")]),
    )
    tier, server = Tier(tmp_path / "tier"), Server(on=log, has_cold_tier=True)
    assert compact(log, tier, server, before=6).oldest_after == 6
    assert log.trims == [6]
    assert kinds(log).index(COLD) < kinds(log).index(BEGINNING)
    assert [restored(tier, tmp_path / f"at {version}", version) for version in (1, 3, 5)] == [
        {b"a": b"1", b"n": b"5"},
        {b"a": LARGE, b"n": b"5"},
        {b"n": b"7"},
    ]
    assert [one.version for one in logdb.list_backups(tier.place.location())] == [6]
    assert not logdb.verify_backup(tier.place.location()).damage


def test_a_store_that_is_away_delays_compactions(tmp_path: Path) -> None:
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 9)])
    tier, server = Tier(tmp_path / "tier"), Server(on=log, has_cold_tier=True)
    tier.away = "no route to the store"
    server.give("client", Compact(1, 8))
    for _ in range(200):
        log.run(server)
        tier.serve(server)
        server.wait(SECOND // 10)
    assert not log.trims
    assert BEGINNING not in kinds(log)
    assert server.core.compactor.archiver.failures > 2
    ((_, reply),) = server.take(Compacted)
    assert isinstance(reply, Compacted)
    assert reply.why.startswith("the cold tier cannot be written (no route to the store)")
    tier.away = ""
    server.wait(60 * SECOND)
    assert compact(log, tier, server, before=8, number=2).oldest_after == 8
    assert server.core.compactor.archiver.failures == 0
    assert log.trims == [8]
    assert restored(tier, tmp_path / "restored", 7) == {b"k": b"7"}


def test_a_value_that_no_replica_can_read_ends_the_compaction(tmp_path: Path) -> None:
    """The segment was read again every few milliseconds without an end, and the client got no error."""
    place = Place(1, 1, len(LARGE), digest(LARGE))
    log = Log((VALUE, LARGE), commit(1, {b"k": place}), commit(2, {b"k": None}))
    tier, server, perform = Tier(tmp_path / "tier"), Server(on=log, has_cold_tier=True), log.perform
    reads = list[object]()

    def damaged(request: object) -> object:
        if not isinstance(request, log_calls.Read):
            return perform(request)
        reads.append(request)
        return Corruption("shard 1", None, "record 1 is damaged")

    with mock.patch.object(log, "perform", damaged):
        reply = compact(log, tier, server, before=3)
        assert "record 1 is damaged" in reply.why
        server.wait(5 * SECOND)
        log.run(server)
        assert len(reads) == 1
    assert compact(log, tier, server, before=3, number=2).oldest_after == 3
    assert restored(tier, tmp_path / "restored", 2) == {b"k": LARGE}


@pytest.mark.parametrize("is_written", [False, True])
def test_another_server_goes_on_with_a_segment(tmp_path: Path, is_written: bool) -> None:
    """The first server is killed before or after it has written a segment, which it has not stated in the log."""
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 9)])
    first, second = [Server(on=log, name=name, seed=at, has_cold_tier=True) for at, name in enumerate(("m1", "m2"))]
    tier = Tier(tmp_path / "tier")
    first.give("client", Compact(1, 5))
    while not first.notices:
        log.run(first, second)
        first.wait(SECOND // 10)
    segment = first.notices[0]
    if is_written:
        write_segment(tier.place, segment, "test")
    log.add(commit(9, {b"k": b"9"}))
    assert compact(log, tier, second, before=9).oldest_after == 9
    assert tier.written[0] == segment
    assert [one.version for one in logdb.list_backups(tier.place.location())] == [5, 9]
    assert [restored(tier, tmp_path / f"at {at}", at) for at in (4, 8)] == [{b"k": b"4"}, {b"k": b"8"}]


@pytest.mark.parametrize("refused", [False, True])
def test_a_server_that_was_overtaken_while_it_copied_begins_again(tmp_path: Path, refused: bool) -> None:
    """The server stopped, as the versions were gone, or copied a commit that the ledger had forgotten to be refused."""
    conditions = [logdb.exists(b"none")] if refused else []
    log = Log(commit(1, {b"k": b"1"}), commit(2, {b"k": b"2"}, conditions=conditions), commit(3, {b"k": b"3"}))
    slow, fast = [Server(on=log, name=name, seed=at, has_cold_tier=True) for at, name in enumerate(("m1", "m2"))]
    tier = Tier(tmp_path / "tier")
    slow.give("client", Compact(1, 3))
    while not any(request.tags == {COMMIT} for request in slow.asks_log(log_calls.Subscribe)):
        if not log.step(slow):
            slow.wait(SECOND // 10)
    while len(slow.asks_log(log_calls.Next)) < 2:
        assert log.step(slow)
    at = next(at for at, (request, _) in enumerate(slow.line.requests) if isinstance(request, log_calls.Next))
    _, then = slow.line.requests.pop(-1)
    assert at < len(slow.line.requests)
    found = batch(1, *log.records[:3])
    assert compact(log, tier, fast, before=3).oldest_after == 3
    log.run(slow, fast)
    then(found)
    slow.flush()
    assert compact(log, tier, slow, before=3, number=2).oldest_after == 3
    assert len(tier.written) == 1
    assert not slow.notices


def test_two_servers_that_copy_at_once_write_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver, "SEGMENT_BYTES", 200)
    log = Log(*[commit(number, {b"k": b"%d" % number * 20}) for number in range(1, 31)])
    servers = [Server(on=log, name=name, seed=at, has_cold_tier=True) for at, name in enumerate(("m1", "m2"))]
    tier = Tier(tmp_path / "tier")
    servers[1].give("client", Compact(1, 20))
    compact(log, tier, *servers, before=25)
    by_number: dict[int, Archive] = {}
    for segment in tier.written:
        assert by_number.setdefault(segment.number, segment) == segment
    assert len(tier.written) > len(by_number) > 3
    assert servers[0].core.replica.image() == servers[1].core.replica.image()
    for version in (7, 24):
        assert restored(tier, tmp_path / f"at {version}", version) == rows_at(log, version)


def test_a_tier_of_a_log_that_was_trimmed_begins_with_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver, "SEGMENT_BYTES", 300)
    monkeypatch.setattr(archiver, "ROWS_BYTES", 100)
    log = Log(*[commit(number, {b"%02d" % (number % 40): b"%d" % number * 10}) for number in range(1, 61)])
    tier = Tier(tmp_path / "tier")
    compact(log, tier, Server(on=log), before=50)
    assert log.oldest == 50
    server = Server(on=log, has_cold_tier=True, name="m2", seed=2)
    last = log.add(commit(61, {b"00": b"new"}))
    expected = {version: rows_at(log, version) for version in (50, 55, last)}
    assert compact(log, tier, server, before=last).oldest_after == last
    backups = logdb.list_backups(tier.place.location())
    assert sum(one.version < 50 for one in backups) == 2
    assert backups[0].oldest == 50
    for version, rows in expected.items():
        assert restored(tier, tmp_path / f"at {version}", version) == rows


@pytest.mark.parametrize("seed", range(4))
def test_every_version_of_some_history_can_be_restored(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "SEGMENT_BYTES", 4_000)
    draw, log, tier = random.Random(seed), Log(), Tier(tmp_path / "tier")
    server = Server(on=log, has_cold_tier=True)
    for number in range(1, 200):
        write(draw, log, number)
        if number % 50 == 0:
            log.run(server)
            compact(log, tier, server, before=server.applied, number=number)
    cold = server.core.replica.cold
    assert cold is not None
    assert log.oldest > 50
    for version in [*draw.sample(range(1, cold.copied.version), 3), cold.copied.version]:
        assert restored(tier, tmp_path / f"at {version}", version) == rows_at(log, version)


def test_a_server_without_the_setting_drops_nothing(tmp_path: Path) -> None:
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 9)])
    tier = Tier(tmp_path / "tier")
    compact(log, tier, Server(on=log, has_cold_tier=True), before=4)
    other = Server(on=log, name="m2", seed=2)
    other.give("client", Compact(1, 8))
    for _ in range(20):
        log.run(other)
        other.wait(SECOND // 10)
    ((_, reply),) = other.take(Compacted)[-1:]
    assert isinstance(reply, Compacted)
    assert reply.why == "m2 does not know the cold tier of its cluster; set `cold` in its cluster.toml"
    assert set(log.trims) == {4}


def test_the_state_of_the_tier_is_in_checkpoints(tmp_path: Path) -> None:
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 9)])
    tier, server = Tier(tmp_path / "tier"), Server(on=log, has_cold_tier=True)
    compact(log, tier, server, before=8)
    replica, other = server.core.replica, Replica(None, 10_000)
    other.install(replica.applied, replica.image())
    assert other.cold == replica.cold
    rebuilt = Server(on=log, name="m2", seed=2)
    assert rebuilt.core.replica.image() == replica.image()
    assert any(isinstance(part, HeadRows) for part in replica.image())


# ---- the files


SEGMENT = Archive(LOG_ID, 1, 0, 3, 0, 1, 30, ())


def test_a_place_of_another_cluster_is_not_written(tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path)
    write_segment(place, SEGMENT, "one")
    with pytest.raises(ColdTierError, match="another segment 1"):
        write_segment(place, SEGMENT._replace(log_id=bytes(16)), "two")
    with pytest.raises(ColdTierError, match="does not have the segment 2"):
        write_segment(place, SEGMENT._replace(number=3, since=3, version=4), "one")
    with pytest.raises(ColdTierError, match="does not have the segment 1"):
        write_segment(place, SEGMENT._replace(number=2, since=2, version=4), "one")
    assert [one.source for one in logdb.list_backups(tmp_path)] == ["one"]


def test_a_place_with_other_files_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(ColdTierError, match=r"not empty \(it has 'holiday.jpg'\)"):
        write_segment(DirectoryPlace(tmp_path), SEGMENT, "one")


def test_a_part_that_was_damaged_is_not_taken_for_written(tmp_path: Path) -> None:
    log = Log(commit(1, {b"k": b"1"}))
    tier, server = Tier(tmp_path), Server(on=log, has_cold_tier=True)
    compact(log, tier, server, before=1)
    (part,) = tmp_path.glob("*.log")
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(Corruption):
        write_segment(tier.place, tier.written[0], "test")


def test_a_tier_has_no_room_for_backups(tmp_path: Path) -> None:
    write_segment(DirectoryPlace(tmp_path / "tier"), SEGMENT, "one")
    with logdb.open(tmp_path / "db") as db, pytest.raises(BackupError, match="is a cold tier"):
        logdb.backup(db, tmp_path / "tier")


# ---- the records


@pytest.mark.parametrize(
    "record",
    [Attached(LOG_ID), Target(7), Copied(2, 7, 4, 70, None), Copied(2, 7, 4, 70, b""), Copied(2, 7, 4, 70, b"key")],
)
def test_a_cold_record_and_its_bytes(record: Attached | Target | Copied) -> None:
    assert decode_cold(encode_cold(record)) == record


@pytest.mark.parametrize("payload", [b"", b"\1", b"\1\0short", b"\1\1short", b"\1\2short", b"\1\3", b"\2\1" + bytes(8)])
def test_a_malformed_cold_record_is_rejected(payload: bytes) -> None:
    with pytest.raises(MalformedRecord):
        decode_cold(payload)


def test_the_state_follows_from_the_records() -> None:
    state = first_state(Attached(LOG_ID), 5, 50)
    assert not state.has_base
    assert state.after(9, Target(8)) == state  # the rows come first
    state = state.after(9, Copied(1, 5, 3, 50, None))
    assert state.after(10, Copied(1, 5, 3, 50, None)) == state
    state = state.after(10, Target(8))
    assert (state.target, state.copied.version) == (8, 5)
    assert state.after(11, Target(9)) == state  # the one under way comes first
    assert state.after(11, Copied(3, 8, 4, 80, None)) == state
    assert ColdState.decode(state.encode()) == state
    assert state.after(11, Copied(2, 8, 4, 80, None)).after(12, Target(99)).target == 11


def test_no_floor_passes_what_the_tier_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DBS-20, also of a compaction by a server that has copied nothing."""
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 9)])
    log.add((COLD, encode_cold(Attached(LOG_ID))))
    server = Server(on=log)
    monkeypatch.setattr(Replica, "compactable", lambda one, before: Coordinator.oldest_needed(one.coordinator, before))
    with pytest.raises(AssertionError, match="DBS-20"):
        compact(log, Tier(tmp_path), server, before=8)
