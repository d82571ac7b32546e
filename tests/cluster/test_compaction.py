"""Compaction in a cluster: dropped and kept versions, and the recovery of the state from a trimmed log
(PROTOCOL.md)."""

from __future__ import annotations

import random
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb.cluster.client import requests as calls
from logdb.cluster.compaction.compactor import APPEND_BYTES, Compactor, Phase
from logdb.cluster.compaction.records import (
    CompactionBeginning,
    decode_beginning,
    decode_ending,
    decode_part,
    encode_beginning,
    encode_ending,
    encode_part,
)
from logdb.cluster.mapping_server.log_recovery import PAUSE_NS, ROWS_AT_ONCE
from logdb.cluster.mapping_server.replica import Replica, UnresolvedValues
from logdb.cluster.messages import (
    Answers,
    Compact,
    Compacted,
    Compacting,
    Floor,
    FutureVersionReply,
    Get,
    HeadRows,
    History,
    Hold,
    LedgerRows,
    MapRow,
    MapRows,
    Oldest,
    Reads,
    RecentRow,
    RecentRows,
    Scan,
    VersionTrimmedReply,
)
from logdb.cluster.placement import ByPrefix, encode_placement
from logdb.cores.effects import SECOND, ProtocolViolation
from logdb.errors import Corruption, FutureVersion, Unavailable, VersionTrimmed
from logdb.log import requests as log_calls
from logdb.log.contract import LogFailed, Record
from logdb.store.checkpoint import Checkpoint
from logdb.store.conditions import exists
from logdb.store.folds import ADD
from logdb.store.key_map import KeyMap
from logdb.store.records import (
    BEGINNING,
    COMMIT,
    ENDING,
    PART,
    PIN,
    PLACEMENT,
    VALUE,
    Commit,
    Fold,
    MalformedRecord,
    Place,
    TxnId,
    Value,
    encode_commit,
    encode_pin,
)
from logdb.txn.coordinator import Status
from logdb.txn.validation import Reason, Verdict
from tests.harness.mapping_histories import LARGE, PLACE, compacted, finished, kinds, some_history, until, write
from tests.harness.stage import SNAPSHOT, Client, Log, Server, batch, commit

# ---- the remaining versions


def test_versions_live_at_the_floor_stay_and_older_ones_are_dropped() -> None:
    log = Log(
        commit(1, {b"kept": b"1", b"changed": b"1", b"deleted": b"1"}),
        commit(2, {b"changed": b"2"}),
        commit(3, {b"deleted": None}),
        commit(4, {b"later": b"4"}),
    )
    server = Server(on=log)
    reported = compacted(log, server, before=3)
    assert reported[:6] == (1, 3, 2, 1, 3, "")
    assert reported.read_bytes > 0
    assert reported.written_bytes == sum(len(payload) for tag, payload in log.records if tag == PART)
    assert reported.freed_bytes == sum(len(payload) for _, payload in log.records[: kinds(log).index(BEGINNING) + 1])
    assert log.trims == [3]
    assert kinds(log)[4:] == [BEGINNING, PART, PART, PART, ENDING]
    keys = (b"kept", b"changed", b"deleted", b"later")
    assert server.ask(Get(keys)).entries == ((1, b"1"), (2, b"2"), (0, None), (4, b"4"))
    assert server.ask(Get(keys), SNAPSHOT, 3).entries == ((1, b"1"), (2, b"2"), (0, None), (0, None))
    assert server.ask(Get(keys), SNAPSHOT, 2) == VersionTrimmedReply(3)
    assert server.ask(History(b"changed", 9)).versions == ((2, b"2"),)


def test_large_values_are_copied_whichever_side_of_the_floor_their_commit_stands_on() -> None:
    before, after = PLACE._replace(gsn=1), PLACE._replace(gsn=2)
    log = Log(
        (VALUE, LARGE),
        (VALUE, LARGE),
        commit(1, {b"before": before}),
        commit(2, {}),
        commit(3, {b"after": after}),
    )
    server = Server(on=log)
    assert compacted(log, server, before=4).oldest_after == 4
    found = server.ask(Get((b"before", b"after"))).entries
    assert [version for version, _ in found] == [3, 5]
    for _, value in found:
        assert isinstance(value, Place)
        assert value.gsn > 5
        assert log.records[value.gsn - 1] == (VALUE, LARGE)


def test_parts_are_appended_together() -> None:
    """Each was an append that waited for the one before: a round trip for 64 KiB."""
    log = Log(*[commit(number, {b"%06d" % number: b"v" * 1_000}) for number in range(1, 501)])
    server = Server(on=log)
    assert compacted(log, server, before=500).copied == 500
    appends = [kinds for kinds in log.appends if PART in kinds]
    assert max(len(kinds) for kinds in appends) == 8
    assert len(appends) == 3  # the map, the head and the ledger


def test_very_many_range_deletes_are_appended_in_parts() -> None:
    """All of them were one record, which no message can carry above 64 MiB; 4 MB in this test."""
    deletes = [(b"%03d" % at, b"%03d" % at + b"x" * 8_000) for at in range(500)]
    ranges = COMMIT, encode_commit(Commit(2, 1, {}, deletes=deletes))
    log = Log(commit(1, {b"k": b"1"}), commit(2, {}), ranges, commit(3, {}))
    server = Server(on=log)
    compacted(log, server, before=2)
    assert max(len(payload) for tag, payload in log.records if tag == PART) < 2 * APPEND_BYTES
    assert log.oldest == 2
    assert Server(on=log, name="m2").core.replica.image() == server.core.replica.image()


def test_decisions_on_very_many_conditions_are_appended_in_parts() -> None:
    """A thousand were one record: too large with more than 16,000 failed conditions in each; 3 MB in this test."""
    failing = [exists(b"%04d" % at) for at in range(5_000)]
    log = Log(commit(1, {b"k": b"1"}), *[commit(number, {}, conditions=failing) for number in range(2, 152)])
    server = Server(on=log)
    compacted(log, server, before=2)
    assert max(len(payload) for tag, payload in log.records if tag == PART) < 2 * APPEND_BYTES
    assert log.oldest == 2
    assert Server(on=log, name="m2").core.replica.image() == server.core.replica.image()


def test_large_values_are_appended_together() -> None:
    places = [PLACE._replace(gsn=number) for number in range(1, 51)]
    log = Log(*[(VALUE, LARGE)] * 50, commit(1, {b"%d" % place.gsn: place for place in places}), commit(2, {}))
    server = Server(on=log)
    assert compacted(log, server, before=52).copied == 50
    assert [len(kinds) for kinds in log.appends if VALUE in kinds] == [1, 2, 4, 8, 16, 19]
    for number in range(1, 51):
        assert value_of(log, server, b"%d" % number) == LARGE


def value_of(log: Log, server: Server, key: bytes) -> bytes:
    """A large value as a client reads it, at the place that the server returns."""
    ((_, place),) = server.ask(Get((key,))).entries
    assert isinstance(place, Place)
    assert place.gsn >= log.oldest, f"it is placed at {place.gsn}, and the log begins with {log.oldest}"
    tag, payload = log.records[place.gsn - 1]
    assert tag == VALUE
    return payload


def test_values_moved_by_one_compaction_are_restated_by_every_later_one() -> None:
    """DBS-13: its commit record refers to the original, and only the parts of the last compaction are read again."""
    log = Log((VALUE, LARGE), *[commit(number, {}) for number in range(1, 6)], commit(6, {b"k": PLACE._replace(gsn=1)}))
    server = Server(on=log)
    for number, before in enumerate((3, 4, 7), 1):
        assert compacted(log, server, before=before, number=number).oldest_after == before
        assert value_of(log, server, b"k") == LARGE
        fresh = Server(on=log)
        assert value_of(log, fresh, b"k") == LARGE
        assert fresh.core.replica.image() == server.core.replica.image()


def test_values_moved_by_a_compaction_that_was_taken_over_are_restated() -> None:
    """DBS-13: the parts of the first one count for nothing in a rebuild, though every server has followed them."""
    log = Log((VALUE, LARGE), *[commit(number, {}) for number in range(1, 6)], commit(6, {b"k": PLACE._replace(gsn=1)}))
    first, second = Server(on=log), Server(on=log, name="m2", seed=2)
    first.give("client", Compact(1, 4))
    until(PART, log, first)
    log.run(second)
    assert compacted(log, second, before=4).oldest_after == 4
    fresh = Server(on=log)
    assert value_of(log, fresh, b"k") == LARGE
    assert fresh.core.replica.image() == second.core.replica.image()


def test_a_server_that_lags_behind_a_compaction_makes_no_version_unreadable() -> None:
    """The version is at or after the floor, so it can be read: by whom the client asks, once that has caught up."""
    log = Log((VALUE, LARGE), *[commit(number, {}) for number in range(1, 6)], commit(6, {b"k": PLACE._replace(gsn=1)}))
    lagging, other, client = Server(on=log), Server(on=log, name="m2", seed=2), Client()
    compacted(log, other, before=4)
    call = client.call(calls.Get([b"k"], calls.SNAPSHOT, 7))
    for _ in range(10):
        log.run(client)
        for to, asked in client.take(Reads):
            assert to == "m1"
            lagging.give("client", asked)
        for _, answers in lagging.take(Answers):
            client.give("m1", answers)
    assert call not in client.answers
    log.run(lagging)
    ((_, answers),) = lagging.take(Answers)
    client.give("m1", answers)
    log.run(client)
    assert client.answers[call] == calls.Found(7, ((7, LARGE),))


def test_a_log_that_lacks_a_value_is_not_served() -> None:
    """DBS-13: a version without the rule has compacted it. An empty server reports that, and does not answer."""
    log = Log((VALUE, LARGE), *[commit(number, {}) for number in range(1, 6)], commit(6, {b"k": PLACE._replace(gsn=1)}))
    server = Server(on=log)
    with mock.patch.object(Compactor, "_needed", return_value=()):
        compacted(log, server, before=4)
    with pytest.raises(ProtocolViolation, match="DBS-13"):
        Server(on=log)
    with pytest.raises(ProtocolViolation, match="DBS-13"):
        compacted(log, server, before=5, number=2)


def test_an_id_that_was_taken_before_a_compaction_is_applied_after_it_once() -> None:
    """A commit that stalled, too. Nothing of it was seen, so nothing of it was forgotten; also after a rebuild."""
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in (1, 2, 4, 5, 7)])
    server = Server(on=log)
    compacted(log, server, before=5)
    log.add(commit(3, {b"k": b"late"}), commit(3, {b"k": b"again"}), commit(4, {b"k": b"again"}))
    log.run(server)
    for one in (server, Server(on=log)):
        assert one.ask(Get((b"k",))).entries == ((len(log.records) - 2, b"late"),)
        outcomes = [one.core.replica.coordinator.outcome(TxnId(1, number)).status for number in (1, 3, 4, 5, 6, 7)]
        gone, committed, unused = Status.FORGOTTEN, Status.COMMITTED, Status.NOT_FOUND
        assert outcomes == [gone, committed, gone, gone, unused, committed]


def test_a_commit_that_refers_to_a_dropped_value_is_not_applied() -> None:
    """DBS-11: its value may be gone."""
    log = Log((VALUE, LARGE), commit(1, {}), commit(2, {}))
    server = Server(on=log)
    compacted(log, server, before=3)
    log.add(commit(3, {b"k": PLACE._replace(gsn=1)}), commit(4, {b"k": PLACE._replace(gsn=3)}))
    log.run(server)
    replica = server.core.replica
    assert replica.decided(TxnId(1, 3)).verdict.reason is Reason.TOO_OLD  # type: ignore[union-attr]
    assert replica.decided(TxnId(1, 4)).verdict.committed  # type: ignore[union-attr]


def test_no_transaction_commits_upon_a_version_before_the_floor() -> None:
    """DBS-11: from the BEGINNING on, not only from the ENDING."""
    log = Log(commit(1, {b"k": b"1"}), commit(2, {b"k": b"2"}))
    server = Server(on=log)
    log.add((BEGINNING, encode_beginning(CompactionBeginning(7, 2))))
    log.add(commit(3, {b"a": b""}, snapshot=1, reads=[b"other"]), commit(4, {b"a": b""}, snapshot=2, reads=[b"other"]))
    log.run(server)
    verdicts = [server.core.replica.decided(TxnId(1, number)).verdict.reason for number in (3, 4)]  # type: ignore[union-attr]
    assert verdicts == [Reason.TOO_OLD, Reason.COMMITTED]


def test_pins_and_leased_versions_are_kept() -> None:
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 9)], (PIN, encode_pin("kept", 6)))
    server = Server(on=log)
    server.give("reader", Hold(4))
    server.give("gone", Hold(2))
    server.wait(4 * SECOND)
    server.give("reader", Hold(4))
    server.wait(2 * SECOND)
    assert compacted(log, server, before=9).floor == 4, "the lease of a silent client expires"
    server.give("reader", Hold(None))
    assert compacted(log, server, before=9, number=2).floor == 6
    log.add((PIN, encode_pin("kept", 0)))
    assert compacted(log, server, before=9, number=3).floor == 9
    assert log.oldest == 9


def test_a_lease_on_the_first_version_keeps_the_whole_log() -> None:
    """A Hold of version 0 used to end the lease, so a compaction overtook readers from the first record on."""
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 9)])
    server = Server(on=log)
    server.give("reader", Hold(0))
    assert compacted(log, server, before=8).floor == 0
    assert log.oldest == 1
    server.give("reader", Hold(None))
    assert compacted(log, server, before=8, number=2).floor == 8


def test_a_client_leases_the_first_version() -> None:
    client = Client()
    client.call(calls.LeaseVersion("one", 0))
    client.wait(SECOND // 5)
    assert {hold.version for _, hold in client.take(Hold)} == {0}


def test_a_pin_that_comes_before_the_beginning_is_kept_and_a_later_one_is_refused() -> None:
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 6)])
    server = Server(on=log)
    log.add(
        (PIN, encode_pin("first", 3)),
        (BEGINNING, encode_beginning(CompactionBeginning(7, 5))),
        (PIN, encode_pin("late", 2)),
    )
    log.run(server)
    assert server.core.replica.coordinator.floor == 3
    assert server.core.replica.coordinator.pins == {"first": 3}


def test_a_pin_that_cannot_move_back_any_more_stays_where_it_is() -> None:
    """The refused move used to remove the pin, and the next compaction dropped the version that it had kept."""
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 6)])
    server = Server(on=log)
    log.add(
        (PIN, encode_pin("moved", 4)),
        (BEGINNING, encode_beginning(CompactionBeginning(7, 3))),
        (PIN, encode_pin("moved", 2)),
        (BEGINNING, encode_beginning(CompactionBeginning(9, 5))),
    )
    log.run(server)
    assert server.core.replica.coordinator.pins == {"moved": 4}
    assert server.core.replica.coordinator.floor == 4


def test_a_map_is_looked_through_a_few_keys_at_a_time() -> None:
    """The server handles other events in between, even if it has to copy little."""
    log = Log(*[commit(number, {b"%d of %d" % (key, number): b"" for key in range(1_000)}) for number in range(1, 11)])
    server = Server(on=log)
    with mock.patch.object(server.core.replica.map, "newest_from", wraps=server.core.replica.map.newest_from) as looks:
        server.give("client", Compact(1, 1))
        before = 0
        while not server.take(Compacted):
            log.step(server)
            server.wait(1 if log.records[-1][0] in (BEGINNING, PART) else SECOND)
            assert looks.call_count <= before + 3
            before = looks.call_count
        assert before > 20
    assert log.oldest == 1


def test_a_compaction_with_no_garbage_writes_nothing() -> None:
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 6)])
    server = Server(on=log)
    compacted(log, server, before=3)
    length = len(log.records)
    assert compacted(log, server, before=2, number=2) == Compacted(2, 3, 0, 3, 3, "", 0, 0, 0)
    assert len(log.records) == length


# ---- recovery from the trimmed log


@pytest.mark.parametrize("seed", range(8))
def test_an_empty_server_recovers_the_same_state_from_a_trimmed_log(seed: int) -> None:
    """DBS-1, DBS-12: after one compaction, and after another."""
    draw, log, written = random.Random(seed), Log(), 0
    server = Server(on=log)
    for number in (1, 2, 3):
        for _ in range(50):
            write(draw, log, written := written + 1)
        log.run(server)
        server.wait(20 * SECOND)  # it appends a decision record
        log.run(server)
        server.give("client", Compact(number, draw.randrange(log.oldest, len(log.records) + 1)))
        server.wait(SECOND)
        steps = 0
        while log.step(server):  # others write meanwhile
            if draw.random() < 0.5 and (steps := steps + 1) < 30:
                write(draw, log, written := written + 1)
            server.wait()
        finished(log, server)
        write(draw, log, written := written + 1)
        log.run(server)
        fresh = Server(on=log)
        assert fresh.applied == server.applied
        assert fresh.core.replica.image() == server.core.replica.image()
        floor = server.core.replica.coordinator.floor
        reported = fresh.ask(Oldest())
        assert reported == server.ask(Oldest()) == Floor(floor, floor, reported.began, reported.ended)
        assert [log.records[gsn - 1][0] for gsn in (reported.began, reported.ended)] == [BEGINNING, ENDING]
        for version in (floor, server.applied):
            question = Scan(None, None, False, 99)
            assert fresh.ask(question, SNAPSHOT, version) == server.ask(question, SNAPSHOT, version)
    assert log.oldest > 1


def test_a_replay_of_the_whole_log_gives_the_state_of_the_compacting_server() -> None:
    """DBS-1"""
    log = Log(*some_history(3, 100))
    server = Server(on=log)
    compacted(log, server, before=70)
    whole = Server(on=Log(*log.records))
    assert whole.core.replica.image() == server.core.replica.image()


def test_on_disk_the_state_is_the_same_before_it_is_pruned_and_after(tmp_path: Path) -> None:
    """DBS-1"""
    log, draw = Log(commit(1, {b"gone": b"1"}), commit(2, {b"gone": None})), random.Random(1)
    for number in range(3, 80):
        write(draw, log, number)
    server = Server(on=log)
    compacted(log, server, before=70)
    assert server.core.replica.cleaned > 2
    checkpoint = Checkpoint(tmp_path, b"log", inline=True)
    replica = Replica(KeyMap(UnresolvedValues(), checkpoint), 10_000)
    for first in range(1, len(log.records) + 1, 20):
        replica.apply(batch(first, *log.records[first - 1 : first + 19]))
        state, frozen = replica.unsaved(), replica.map.freeze()
        checkpoint.begin(replica.applied)
        list(checkpoint.write(frozen))
        checkpoint.finish(replica.applied, state)
        replica.map.thaw()
    assert replica.image() == server.core.replica.image()
    list(checkpoint.prune(replica.cleaned))
    assert replica.image() == server.core.replica.image()
    checkpoint.close()
    again = Checkpoint(tmp_path, b"log", inline=True)
    assert Replica(KeyMap(UnresolvedValues(), again), 10_000).image() == server.core.replica.image()
    again.close()


class Disk:
    """The host of a map: writes its checkpoint when the test calls for it."""

    def __init__(self, path: Path) -> None:
        self.checkpoint = Checkpoint(path, b"log", inline=True)
        self.map = KeyMap(UnresolvedValues(), self.checkpoint)

    def write(self) -> None:
        """End the checkpoint under way."""
        assert self.map.frozen is not None
        self.checkpoint.begin(self.map.frozen.last)
        list(self.checkpoint.write(self.map.frozen))
        self.checkpoint.finish(0, [])
        self.map.thaw()


def test_a_trimmed_log_is_taken_in_bounded_steps_and_onto_the_disk(tmp_path: Path) -> None:
    """DBS-1: a part and then some rows at a time; no faster than the disk takes it; the state is the same."""
    log, disk, keys = Log(), Disk(tmp_path), [b"key %04d" % number for number in range(4_000)]
    log.add((VALUE, LARGE))
    for number in range(2, 61):
        log.add(commit(number, dict.fromkeys(keys[number % 7 * 500 :][:500], b"%060d" % number)))
    log.add(commit(61, {b"large": b"small"}), commit(62, {b"large": PLACE._replace(gsn=1), keys[5]: None}))
    server = Server(on=log)
    compacted(log, server, before=40)
    whole = server.core.replica.image()
    fresh, most = Server(is_behind=True, key_map=disk.map), 4 * ROWS_AT_ONCE
    taken = idle = stood_still = 0
    while fresh.applied != server.applied:
        log.step(fresh)
        fresh.wait(1)
        rebuilding = fresh.core.bootstrap.recovery
        rows = taken if rebuilding is None else rebuilding.rows
        idle = idle + 1 if rows == taken else 0
        assert rows <= taken + most
        if fresh.applied:
            where = [value.gsn for _, value, _ in disk.map.versions(b"large", 62) if isinstance(value, Place)]
            assert where > [62], "it can be read at once"
        taken = rows
        if disk.map.frozen is None:
            if disk.map.active.size > most * 300:
                disk.map.freeze()
        else:
            assert disk.map.active.size <= 2 * disk.map.frozen.size
            if idle == 5:
                stood_still += 1
                disk.write()
                fresh.wait(PAUSE_NS)
    assert stood_still, "it waits for the disk"
    if disk.map.frozen is not None:
        disk.write()
    assert fresh.core.replica.image() == whole
    disk.checkpoint.close()


def test_the_last_compaction_that_was_not_overtaken_is_valid() -> None:
    """DBS-11: compactions that began after it do not change this."""
    log = Log(*some_history(5, 60))
    server = Server(on=log)
    compacted(log, server, before=40)
    one = log.add((BEGINNING, encode_beginning(CompactionBeginning(7, 50))))
    log.add(
        (BEGINNING, encode_beginning(CompactionBeginning(8, 50))),
        (ENDING, encode_ending(one)),
        commit(99, {b"k": b"last"}),
    )
    log.run(server)
    assert Server(on=log).core.replica.image() == server.core.replica.image()


def test_an_empty_server_stops_if_a_trimmed_log_has_no_compaction() -> None:
    log = Log(*some_history(3, 20))
    log.oldest = 9
    server = Server(on=log)
    assert server.stopped is not None
    assert "no complete compaction" in server.stopped.reason
    assert not server.stopped.wipe


# ---- the shards of its records


def homes(log: Log, server: Server) -> dict[bytes, int | None]:
    """To which shard the last compaction has sent the versions of each key."""
    found: dict[bytes, int | None] = {}
    for gsn, (tag, payload) in enumerate(log.records, 1):
        if tag == PART:
            began, part = decode_part(payload)
            if began == server.ask(Oldest()).began and isinstance(part, MapRows):
                for row in part.rows:
                    assert found.setdefault(row.key, log.shards[gsn]) == log.shards[gsn]
    return found


def test_a_compaction_appends_the_rows_of_an_object_to_its_shard(tmp_path: Path) -> None:
    """For any requester, any number of compactions, any source of the server's state, and any server that ends one."""
    keys = [b"%s/%d" % (object_, number) for object_ in (b"a", b"b", b"c") for number in range(3)]
    large = PLACE._replace(gsn=1)
    log = Log(
        (VALUE, LARGE),
        (PLACEMENT, encode_placement(ByPrefix({b"a/": 1})) or b""),
        (PLACEMENT, encode_placement(ByPrefix({b"b/": 2})) or b""),
        commit(1, dict.fromkeys(keys, b"small")),
        commit(2, {b"b/0": large}),
        commit(3, {}),
    )
    right = {key: {b"a": 1, b"b": 2, b"c": None}[key[:1]] for key in keys}
    server = Server(on=log)
    compacted(log, server, before=6)
    assert homes(log, server) == right
    rebuilt = Server(on=log, name="m2", seed=2)
    assert rebuilt.core.replica.image() == server.core.replica.image()
    log.add(commit(4, {}))
    compacted(log, rebuilt, before=len(log.records), number=2)
    assert homes(log, rebuilt) == right
    log.add(commit(5, {}))
    third = Server(on=log, name="m3", seed=3)
    third.give("client", Compact(3, len(log.records)))
    until(BEGINNING, log, third)
    taker = Server(on=log, name="m4", seed=4)
    compacted(log, taker, before=len(log.records))
    assert homes(log, taker) == right
    disk = Disk(tmp_path)
    replica = Replica(disk.map, 10_000)
    replica.install(taker.applied, taker.core.replica.image())
    disk.checkpoint.begin(replica.applied)
    list(disk.checkpoint.write(disk.map.freeze()))
    disk.checkpoint.finish(replica.applied, replica.unsaved())
    disk.map.thaw()
    assert Replica(disk.map, 10_000).placement == taker.core.replica.placement != b""
    disk.checkpoint.close()


# ---- a server is killed


@pytest.mark.parametrize("steps", range(1, 14))
def test_another_server_takes_a_compaction_over(steps: int) -> None:
    """At any step of the first server. Its records are harmless."""
    log = Log(*some_history(4, 60))
    first, second = Server(on=log), Server(on=log, name="m2", seed=2)
    first.give("client", Compact(1, 50))
    first.wait(SECOND)
    for _ in range(steps):
        log.step(first)
        first.wait()
    second.give("client", Compact(1, 50))
    reported = finished(log, second)
    assert reported.floor == log.oldest == 24
    fresh = Server(on=log)
    assert fresh.core.replica.image() == second.core.replica.image()


@pytest.mark.parametrize("kind", [BEGINNING, PART])
def test_an_abandoned_compaction_is_taken_over_without_a_request(kind: int) -> None:
    """Else the log would keep versions that cannot be read."""
    log = Log(*some_history(4, 60))
    first = Server(on=log)
    first.give("client", Compact(1, 50))
    until(kind, log, first)
    others = [Server(on=log, name=f"m{number}", seed=number) for number in (2, 3)]
    for _ in range(400):
        log.run(*others)
        for other in others:
            other.wait(SECOND // 10)
    assert log.oldest == 24
    assert kinds(log).count(ENDING) == 1
    assert Server(on=log).core.replica.image() == others[0].core.replica.image()


def test_a_compaction_that_moves_large_values_slowly_is_not_taken_over() -> None:
    log = Log()
    for number in range(1, 31):
        log.add((VALUE, LARGE), commit(number, {b"%d" % number: PLACE._replace(gsn=2 * number - 1)}))
    log.add(commit(31, {}))
    first, second = Server(on=log), Server(on=log, name="m2", seed=2)
    first.give("client", Compact(1, 61))
    until(BEGINNING, log, first)
    second.give("client", Compact(2, 61))
    for _ in range(200):
        log.step(first)
        log.run(second)
        for server in (first, second):
            server.wait(SECOND // 10)
            server.give("client", Hold(None))  # an event, so that the server has the time
    assert kinds(log).count(BEGINNING) == kinds(log).count(ENDING) == 1


class SlowLog(Log):
    """Takes 3 s to append a large value. `now`: the time."""

    def __init__(self, *records: Record) -> None:
        super().__init__(*records)
        self.now = lambda: 0
        self.asked: dict[int, tuple[object, int]] = {}

    def perform(self, request: object) -> object:
        if isinstance(request, log_calls.Append) and request.records[0][0] == VALUE:
            _, since = self.asked.setdefault(id(request), (request, self.now()))
            if self.now() < since + 3 * SECOND:
                return None
        return super().perform(request)


def test_servers_that_take_long_to_copy_a_value_do_not_overtake_each_other_without_end() -> None:
    log = SlowLog((VALUE, LARGE), commit(1, {b"k": PLACE._replace(gsn=1)}), commit(2, {}))
    first, second = Server(on=log), Server(on=log, name="m2", seed=2)
    log.now = lambda: first.now
    second.give("client", Compact(2, 3))
    assert compacted(log, first, second, before=3).floor == 3
    assert kinds(log).count(BEGINNING) > 1
    assert log.oldest == 3


def test_concurrent_requests_that_fail_are_all_retried() -> None:
    log = Log()
    for number in range(1, 13):
        log.add((VALUE, LARGE), commit(number, {b"%d" % number: PLACE._replace(gsn=2 * number - 1)}))
    log.add(commit(13, {}))
    server = Server(on=log)
    server.give("client", Compact(1, 25))
    while len(server.asks_log(log_calls.Read)) < 4:
        if not log.step(server):
            server.wait(SECOND // 100)
    for _ in range(4):
        server.log_answers(log_calls.Read, LogFailed("no server answered"))
    server.wait(SECOND)
    assert len(server.asks_log(log_calls.Read)) == 4
    assert finished(log, server).floor == 25


def test_records_of_a_compaction_that_were_appended_twice_give_the_same_state() -> None:
    """An append of unknown outcome is repeated. The rebuilt server had the aborted versions twice, not in order, and
    reported some as committed."""
    aborted = [commit(number, {}, reads=[b"k"]) for number in (3, 4)]
    log = Log(commit(1, {b"k": b"1"}), commit(2, {b"k": b"2"}), commit(9, {b"k": b"3"}), *aborted)
    server, failed, perform = Server(on=log), list[object](), log.perform

    def unknown_once(request: object) -> object:
        result = perform(request)
        if not isinstance(request, log_calls.Append) or request.records in failed:
            return result
        failed.append(request.records)
        return LogFailed("the outcome is unknown")

    with mock.patch.object(log, "perform", unknown_once):
        assert compacted(log, server, before=2).floor == log.oldest == 2
    assert kinds(log).count(PART) == 2 * 4  # the map, the head, recent decisions and the ledger
    rebuilt = Server(on=log).core.replica
    assert rebuilt.coordinator.outcome(TxnId(1, 3)).status is Status.ABORTED
    assert rebuilt.image() == server.core.replica.image()


def test_a_request_for_a_version_far_ahead_ends_no_other_compaction() -> None:
    """The server waited without an end for a version that the log does not have, and compacted nothing any more."""
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 4)])
    server = Server(on=log)
    server.give("mistaken", Compact(1, 1 << 40))
    server.give("client", Compact(2, 3))
    for _ in range(40):
        log.run(server)
        server.wait(SECOND // 10)
    replies = {reply.request: reply for _, reply in server.take(Compacted)}
    assert replies[1].why == f"version {1 << 40} is in the future: the newest is 3"
    assert (replies[2].why, replies[2].floor) == ("", 3)
    assert log.trims == [3]


def test_a_compaction_that_cannot_read_a_value_is_repeated_ever_more_seldom() -> None:
    """Every few seconds the server appended another BEGINNING and all parts again, without an end."""
    log = Log((VALUE, LARGE), commit(1, {b"k": PLACE._replace(gsn=1)}), commit(2, {}))
    server, perform = Server(on=log), log.perform

    def damaged(request: object) -> object:
        is_read = isinstance(request, log_calls.Read)
        return Corruption("shard 1", None, "record 1 is damaged") if is_read else perform(request)

    with mock.patch.object(log, "perform", damaged):
        assert "record 1 is damaged" in compacted(log, server, before=3).why
        for _ in range(1_800):
            log.run(server)
            server.wait(SECOND)
        assert 5 < kinds(log).count(BEGINNING) < 15
    assert compacted(log, server, before=3, number=2).floor == log.oldest == 3
    assert server.core.compactor.phase is Phase.IDLE


def test_leases_of_clients_that_have_died_are_dropped_without_a_compaction() -> None:
    """Without compactions the server kept one for each client that it had ever had."""
    server = Server(commit(1, {b"k": b"1"}))
    for number in range(10):
        server.give(f"client {number}", Hold(1))
    server.wait(5 * SECOND)
    server.give("client", Hold(1))
    server.wait(20 * SECOND)
    assert not server.core.compactor.leases.by_client


def test_a_server_suspected_by_mistake_does_no_harm() -> None:
    """DBS-11: PARTs that come too late must not revive deleted versions."""
    log = Log(commit(1, {b"k": b"old"}), commit(2, {}))
    slow, other = Server(on=log), Server(on=log, name="m2", seed=2)
    slow.give("client", Compact(1, 2))
    until(BEGINNING, log, slow)
    log.add(commit(3, {b"k": None}), commit(4, {}))
    floor = len(log.records)
    assert compacted(log, other, before=floor).floor == floor
    log.oldest, late = 1, len(log.records)  # the trim is on its way
    log.add((PART, encode_part(3, MapRows((MapRow(b"k", 1, b"old", 0),)))), (ENDING, encode_ending(3)))
    assert finished(log, slow, other).floor == floor, "it ends with the result of the other one"
    assert log.oldest == floor
    assert PART in kinds(log)[late:]
    for server in (slow, other, Server(on=log)):
        assert server.ask(Get((b"k",))).entries == ((0, None),)
        assert server.core.replica.image() == other.core.replica.image()


def test_a_server_behind_the_oldest_record_starts_again_empty() -> None:
    log = Log(*some_history(4, 60))
    slow, other = Server(on=log), Server(on=log, name="m2", seed=2)
    log.add(commit(99, {}), commit(100, {}))
    compacted(log, other, before=24)
    log.oldest = 62
    log.run(slow)
    assert slow.stopped is not None
    assert slow.stopped.wipe


def test_a_trim_that_was_not_done_is_done_by_the_next_server() -> None:
    log = Log(*some_history(4, 60))
    first = Server(on=log)
    first.give("client", Compact(1, 50))
    until(ENDING, log, first)
    assert log.oldest == 1
    second = Server(on=log, name="m2", seed=2)
    second.wait(20 * SECOND)
    log.run(second)
    assert log.oldest == 24


# ---- the client


def test_a_client_repeats_its_request_until_the_result_comes() -> None:
    client = Client()
    reported: list[int] = []
    call = client.call(calls.Compact(9, progress=reported.append))
    ((to, read),) = client.reads()
    assert read.version == 9
    client.answer(read.number, 9)
    to, asked = client.one(Compact)
    assert (to, asked.before) == ("m1", 9)
    for _ in range(3):
        client.give("m1", Compacting(asked.request, 1))
        client.wait(SECOND)
        assert ("m1", asked) in client.take(Compact), "the request is repeated to a server that replies"
    client.wait(SECOND)
    assert "m2" in [to for to, _ in client.take(Compact)], "a silent server gets no repetition"
    client.give("m2", Compacted(asked.request, 8, 3, 1, 8, "", 10, 20, 30))
    assert client.answers[call] == calls.Compacted(8, 3, 1, 8, 10, 20, 30)
    assert set(reported) == {1}


def test_a_compaction_that_cannot_be() -> None:
    client = Client()
    answers = {}
    for result, error in ((VersionTrimmedReply(5), VersionTrimmed), (FutureVersionReply(3), FutureVersion)):
        call = client.call(calls.Compact(4))
        ((_, read),) = client.reads()
        client.answer(read.number, 0, result)
        answers[call] = error
    for call, error in answers.items():
        assert isinstance(client.answers[call], error)
    late = client.call(calls.Compact(4, client.now + SECOND))
    client.wait(2 * SECOND)
    assert isinstance(client.answers[late], Unavailable)


def test_a_compaction_may_take_as_long_as_it_goes_on() -> None:
    client = Client()
    call = client.call(calls.Compact(9, client.now + 3 * SECOND))
    ((_, read),) = client.reads()
    client.answer(read.number, 9)
    _, asked = client.one(Compact)
    for copied in range(1, 10):
        client.give("m1", Compacting(asked.request, copied))
        client.wait(2 * SECOND)
    assert call not in client.answers
    client.give("m1", Compacting(asked.request, 9))
    client.wait(2 * SECOND)
    assert "reports progress" in str(client.answers[call])


def test_a_long_lease_is_renewed_at_all_servers_and_a_short_one_sends_nothing() -> None:
    client = Client()
    for _ in range(5):
        assert client.answers[client.call(calls.LeaseVersion("short", 9))] is None
        client.call(calls.LeaseVersion("short", None))
        client.wait(SECOND // 100)
    client.wait(SECOND)
    assert not client.take(Hold)
    client.call(calls.LeaseVersion("one", 9))
    client.call(calls.LeaseVersion("two", 7))
    client.wait(SECOND // 5)
    assert {(to, hold.version) for to, hold in client.take(Hold)} == {("m1", 7), ("m2", 7)}
    client.call(calls.LeaseVersion("two", None))
    client.wait(SECOND // 5)
    assert {hold.version for _, hold in client.take(Hold)} == {9}
    client.call(calls.LeaseVersion("one", None))
    client.wait(SECOND // 5)
    assert {hold.version for _, hold in client.take(Hold)} == {None}
    client.wait(SECOND)
    assert not client.take(Hold)


# ---- the records

VERDICT = Verdict(Reason.CONFLICT, b"key", 7, True, (1, 3), 0)
PARTS = [
    HeadRows(((b"f", b"12345678"), (b"p\xff", b""))),
    MapRows((MapRow(b"k", 9, b"v", 0), MapRow(b"k", 8, None, 0), MapRow(b"l", 7, PLACE, 0))),
    LedgerRows(((b"a", b""),)),
    RecentRows((RecentRow(3, "label é", None), RecentRow(4, "", VERDICT))),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_a_part_is_decoded_as_it_was_encoded(part: object) -> None:
    payload = encode_part(77, part)  # type: ignore[arg-type]
    assert decode_part(payload) == (77, part)
    for end in range(len(payload)):
        with pytest.raises(MalformedRecord):
            decode_part(payload[:end])


def test_beginnings_and_endings_are_decoded_as_they_were_encoded() -> None:
    assert decode_beginning(encode_beginning(CompactionBeginning(1 << 63, 7))) == CompactionBeginning(1 << 63, 7)
    assert decode_ending(encode_ending(9)) == 9


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_noise_is_no_record(payload: bytes) -> None:
    for decode in (decode_beginning, decode_ending, decode_part):
        try:
            decode(payload)
        except MalformedRecord:
            continue


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PARTS), st.data())
def test_a_damaged_part_is_refused_or_whole(part: object, data: st.DataObject) -> None:
    payload = bytearray(encode_part(77, part))  # type: ignore[arg-type]
    payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_part(bytes(payload))
    except MalformedRecord:
        return


def test_a_server_that_was_overtaken_ends_its_compaction() -> None:
    """The server started to copy without the GSN of its BEGINNING; the compaction of another server started later and
    has ended."""
    log = Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, 9)])
    slow, other = Server(on=log), Server(on=log, name="m2", seed=2)
    slow.give("client", Compact(1, 5))
    while not slow.asks_log(log_calls.Append):
        if not log.step(slow):
            slow.wait(SECOND // 10)
    (unanswered,) = [request for request, _ in slow.line.requests if isinstance(request, log_calls.Append)]
    slow.line.requests = [ask for ask in slow.line.requests if ask[0] is not unanswered]
    log.add(*unanswered.records)
    until(PART, log, slow)
    assert compacted(log, other, before=7).floor == 7
    log.oldest = 1  # the trim is on its way
    assert finished(log, slow, other).floor == 7


def test_a_rebuild_computes_folds_again() -> None:
    """DBS-19: from the floor on, where the version at the floor is that of a fold, and a range delete comes later."""
    log = Log()
    server = Server(on=log, name="m1", seed=1)
    writes: dict[bytes, Value] = {b"n": b"5"}
    log.add(commit(1, writes), commit(2, {}, folds=[Fold(ADD, b"n", 1), Fold(ADD, b"m", 1)]))
    floor = len(log.records)
    deleting = Commit(1, 3, {}, deletes=[(b"n", b"o")])
    log.add((COMMIT, encode_commit(deleting)), commit(4, {}, folds=[Fold(ADD, b"n", 3), Fold(ADD, b"m", 3)]))
    log.add(commit(5, {b"text": b"x"}), commit(6, {}, folds=[Fold(ADD, b"text", 1)]))
    log.run(server)
    compacted(log, server, before=floor, number=1)

    def rebuilt() -> Replica:
        return Server(on=log, name="m2", seed=2).core.replica

    right = server.core.replica
    assert rebuilt().image() == right.image()
    assert [right.map.value(key, floor + 2) for key in (b"n", b"m")] == [b"3", b"4"]
    assert [right.map.value(key, floor) for key in (b"n", b"m")] == [b"6", b"1"]
    with mock.patch("logdb.cluster.mapping_server.log_recovery.deletions_of", return_value=[]):
        assert rebuilt().image() != right.image()

    for at, (tag, payload) in enumerate(log.records):
        if tag == PART:
            began, part = decode_part(payload)
            if isinstance(part, MapRows):
                older = MapRows(tuple(row for row in part.rows if row.version != floor))
                log.records[at] = PART, encode_part(began, older)
    assert rebuilt().image() != right.image()
