"""Reads below the floor from the cold tier of a cluster (PROTOCOL.md, DBS-21)."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from logdb.backups.places import DirectoryPlace
from logdb.cluster import messages
from logdb.cluster.client import requests as calls
from logdb.cluster.cold_reads import ColdReader
from logdb.cluster.compaction import archiver
from logdb.cluster.mapping_server import cold_queue
from logdb.cluster.messages import (
    COLD_SHARD,
    AtTime,
    Busy,
    ColdCommits,
    Entries,
    Get,
    History,
    NotReadable,
    Oldest,
    Pins,
    Read,
    Reads,
    Recalling,
    Rows,
    Scan,
    Version,
    Versions,
    VersionTrimmedReply,
)
from logdb.cores.effects import SECOND, Call, Recall
from logdb.errors import Corruption, Unavailable
from logdb.log import requests as log_calls
from logdb.node import cold_store
from logdb.node.cold_store import DiskMap, PlacedSegments
from logdb.store.limits import MAX_VALUE_BYTES
from logdb.store.records import PLACE, VALUE, Place, decode_commit, digest
from logdb.wire.codec import encode
from tests.harness.cold_tiers import Tier, compact
from tests.harness.mapping_histories import LARGE, write
from tests.harness.stage import LINEARIZABLE, SESSION, SNAPSHOT, Client, Log, Server, commit


def ask(
    log: Log, tier: Tier, server: Server, question: Any, version: int = 0, consistency: Any = SNAPSHOT
) -> tuple[int, Any]:
    """(version, result) of a read, which the tier may answer."""
    number = server.read(question, consistency, version)
    log.run(server)
    tier.serve(server)
    return server.read_answers()[number]


def written(count: int) -> Log:
    """A log with a version of a key in each of its records."""
    return Log(*[commit(number, {b"k": b"%d" % number}) for number in range(1, count + 1)])


def everything(log: Log, tier: Tier, server: Server, keys: tuple[bytes, ...], version: int) -> list[Any]:
    """The results of reads at a version, with large values by their digests."""
    entries = ask(log, tier, server, Get((*keys, b"missing")), version)
    rows = ask(log, tier, server, Scan(None, None, True, 1_000), version)
    assert isinstance(entries[1], Entries)
    assert isinstance(rows[1], Rows)
    histories = [history(log, tier, server, key, version) for key in keys[:3]]
    return [
        entries[0],
        [(at if value is not None else 0, known(value)) for at, value in entries[1].entries],  # or forgotten
        rows[0],
        [(key, known(value)) for key, value in rows[1].rows],
        histories,
    ]


def history(log: Log, tier: Tier, server: Server, key: bytes, version: int, rows: int = 3) -> list[Any]:
    """All versions of a key up to one, read in pages."""
    found: list[Any] = []
    more = True
    while more:
        page = ask(log, tier, server, History(key, rows), version)[1]
        assert isinstance(page, Versions)
        found += [(at, known(value)) for at, value in page.versions]
        more = page.more
        version = page.versions[-1][0] - 1 if more else 0
    return found


def known(value: Any) -> Any:
    """A value, a large one by its digest."""
    return value.digest if isinstance(value, Place) else value


@pytest.mark.parametrize(("seed", "on_disk"), [(0, False), (1, False), (2, False), (3, True)])
def test_versions_of_some_history_are_what_they_were(
    seed: int, on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "SEGMENT_BYTES", 2_000)
    draw, log, tier = random.Random(seed), Log(), Tier(tmp_path / "tier", window=4)
    if on_disk:
        monkeypatch.setattr(cold_store, "OVERLAY_BYTES", 2_000)
        maps = itertools.count()
        tier.reader = ColdReader(
            PlacedSegments(tier.place), lambda: DiskMap(tmp_path / "maps" / str(next(maps)), Event()), window=4
        )
    first = 40 if seed % 2 else 0  # the tier begins with rows
    server, reference = Server(on=log, has_cold_tier=True), Server(on=log, name="m2", seed=2)
    for number in range(1, 160):
        write(draw, log, number)
        if number == first:
            log.run(server)
            compact(log, tier, Server(on=log, name="m3", seed=3), before=server.applied)
            log.run(server)
        if number > first and number % 50 == 0:
            log.run(server, reference)
            floor = reference.core.replica.coordinator.floor
            keys = tuple(reference.core.replica.map.keys_from(b"", 1_000))
            versions = [*draw.sample(range(floor, server.applied), 6), floor]
            before = [everything(log, tier, reference, keys, version) for version in versions]
            compact(log, tier, server, before=server.applied, number=number)
            after = [everything(log, tier, server, keys, version) for version in versions]
            for version, right, found in zip(versions, before, after, strict=True):
                assert found[:4] == right[:4], version
                for entries, those in zip(found[4], right[4], strict=True):
                    assert entries[: len(those)] == those, version


def test_a_version_before_the_tier_is_refused(tmp_path: Path) -> None:
    log, tier = written(8), Tier(tmp_path)
    compact(log, tier, Server(on=log), before=4)
    server = Server(on=log, name="m2", seed=2, has_cold_tier=True)
    compact(log, tier, server, before=8)
    assert ask(log, tier, server, Get((b"k",)), 4) == (4, Entries(((4, b"4"),)))
    for question in (Get((b"k",)), Version(), Scan(None, None, False, 9)):
        assert ask(log, tier, server, question, 3) == (0, VersionTrimmedReply(4))
    assert ask(log, tier, server, ColdCommits(3), consistency=LINEARIZABLE) == (0, VersionTrimmedReply(4))
    assert ask(log, tier, server, Oldest(in_cold_tier=True), consistency=SESSION)[1].version == 4
    assert ask(log, tier, server, Oldest(), consistency=SESSION)[1].version == 8
    assert [at for at, _ in history(log, tier, server, b"k", server.applied)] == [8, 7, 6, 5, 4]


def test_a_tier_without_all_rows_of_its_first_version_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver, "SEGMENT_BYTES", 1)
    monkeypatch.setattr(archiver, "ROWS_BYTES", 1)
    log, tier = Log(*[commit(number, {b"%d" % number: b"v"}) for number in range(1, 5)]), Tier(tmp_path)
    compact(log, tier, Server(on=log), before=4)
    server = Server(on=log, name="m2", seed=2, has_cold_tier=True)
    server.give("client", messages.Compact(1, server.applied))
    while not tier.written:
        log.run(server)
        tier.serve(server)
        server.wait(SECOND // 10)
    log.run(server)
    assert server.core.replica.cold is not None
    assert (server.core.replica.cold.copied.number, server.core.replica.cold.has_base) == (1, False)
    missing = server.read(History(b"missing", 9), SESSION, server.applied)
    oldest = server.read(Oldest(in_cold_tier=True), SESSION, server.applied)
    answers = server.read_answers()
    assert answers[missing][1] == Versions((), False)
    assert answers[oldest][1].version == 4


def test_the_version_of_a_time_before_the_log(tmp_path: Path) -> None:
    log, tier = written(8), Tier(tmp_path)
    server = Server(on=log, has_cold_tier=True)
    compact(log, tier, server, before=8)
    for time, at in ((5, 0), (10, 1), (39, 3), (40, 4), (75, 7)):
        number = server.read(AtTime(time), LINEARIZABLE)
        server.log_answers(log_calls.AtTime, log.oldest - 1)
        tier.serve(server)
        assert server.read_answers()[number] == (at, messages.VersionReply())


def test_only_what_the_log_states_is_read(tmp_path: Path) -> None:
    """A server that is behind, and a store with a segment that no COPIED names yet."""
    log, tier = written(8), Tier(tmp_path)
    server = Server(on=log, has_cold_tier=True)
    compact(log, tier, server, before=4)
    late = Server(on=log, name="m2", seed=2, has_cold_tier=True)
    log.add(*[commit(number, {b"k": b"%d" % number}) for number in range(9, 20)])
    log.run(server)
    compact(log, tier, server, before=server.applied, number=2)
    assert len(tier.written) == 2
    assert late.core.replica.cold is not None
    assert late.core.replica.cold.copied.number == 1
    late.read(ColdCommits(0), SESSION)
    tier.serve(late)
    (found,) = late.read_answers().values()
    assert [one.version for one in found[1].commits] == [1, 2, 3, 4]
    assert (found[1].end, found[1].more) == (5, False)


def test_a_store_that_is_away_is_an_error_with_the_cause(tmp_path: Path) -> None:
    log, tier = written(8), Tier(tmp_path)
    server = Server(on=log, has_cold_tier=True)
    compact(log, tier, server, before=8)
    tier.away = "no route to the store"
    assert ask(log, tier, server, Get((b"k",)), 3) == (0, NotReadable("", "no route to the store"))
    tier.away = ""
    assert ask(log, tier, server, Get((b"k",)), 3) == (3, Entries(((3, b"3"),)))


def test_a_damaged_segment_is_an_error_that_names_it(tmp_path: Path) -> None:
    log, tier = written(8), Tier(tmp_path)
    server = Server(on=log, has_cold_tier=True)
    compact(log, tier, server, before=4)
    compact(log, tier, server, before=8, number=2)
    (part,) = tmp_path.glob("000002-*.log")
    content = part.read_bytes()
    for damaged in (content[:-9] + b"\1" + content[-8:], content[:-1], None):
        if damaged is None:
            part.unlink()
        else:
            part.write_bytes(damaged)
        version, result = ask(log, tier, server, Get((b"k",)), 6)
        assert isinstance(result, NotReadable)
        assert (version, result.damaged) == (0, str(part))
        assert ask(log, tier, server, Get((b"k",)), 3) == (3, Entries(((3, b"3"),)))
    part.write_bytes(content)
    assert ask(log, tier, server, Get((b"k",)), 6) == (6, Entries(((6, b"6"),)))


def test_a_tier_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    log, tier = written(8), Tier(tmp_path / "tier")
    server = Server(on=log, has_cold_tier=True)
    compact(log, tier, server, before=8)
    other = written(8)
    compact(other, Tier(tmp_path / "other"), Server(on=other, seed=7, has_cold_tier=True), before=8)
    tier.place = DirectoryPlace(tmp_path / "other")
    wrong = Tier(tmp_path / "other")
    _, result = ask(log, wrong, server, Get((b"k",)), 6)
    assert isinstance(result, NotReadable)
    assert "does not have segment 1 of this cluster" in result.why


# ---- beside other work


def test_other_reads_do_not_wait_for_the_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_queue, "MAX_WAITING", 3)
    log, tier = written(8), Tier(tmp_path)
    server = Server(on=log, has_cold_tier=True, request_ttl_ns=10 * SECOND)
    compact(log, tier, server, before=8)
    numbers = [server.read(Get((b"k",)), SNAPSHOT, version) for version in (1, 2, 3)]
    assert len(server.notices) == 1
    assert [message for _, message in server.take(Recalling)] == [Recalling((number,)) for number in numbers]
    assert server.ask(Pins()) == messages.Pinned(())
    refused = server.read(Get((b"k",)), SNAPSHOT, 4)
    assert [message for _, message in server.take(Busy)] == [Busy((refused,))]
    another = server.read(Get((b"k",)), SNAPSHOT, 4, sender="other")
    server.give("client", Reads((Read(numbers[0], SNAPSHOT, 1, Get((b"k",))),)))  # again: it is under way
    server.wait(9 * SECOND)
    server.give("client", Reads((Read(numbers[2], SNAPSHOT, 3, Get((b"k",))),)))  # the others were not sent again
    server.wait(2 * SECOND)
    while tier.serve(server):
        pass
    found = server.read_answers()
    assert found == {numbers[0]: (1, Entries(((1, b"1"),))), numbers[2]: (3, Entries(((3, b"3"),)))}
    assert another not in found


def test_a_history_that_is_sent_again_after_a_compaction_keeps_its_version(tmp_path: Path) -> None:
    """The answer had the version of the floor before: the client ended with DBS-5, or with DBS-4."""
    log = Log(commit(1, {b"k": b"1"}), commit(2, {b"k": None}), *[commit(number, {}) for number in range(3, 13)])
    tier, server = Tier(tmp_path), Server(on=log, has_cold_tier=True)
    compact(log, tier, server, before=4)
    applied = server.applied
    number = server.read(History(b"k", 9), SNAPSHOT, applied)
    log.run(server)
    (recall,) = server.take_notices()
    assert isinstance(recall, Recall)
    compact(log, tier, server, before=8, number=2)
    server.give("client", Reads((Read(number, SNAPSHOT, applied, History(b"k", 9)),)))
    log.run(server)
    server.handle(tier.reader.recalled(recall))
    assert server.read_answers() == {number: (applied, Versions(((2, None), (1, b"1")), False))}


def test_a_reader_of_the_tier_holds_back_no_compaction(tmp_path: Path) -> None:
    log, tier = written(8), Tier(tmp_path)
    server = Server(on=log, has_cold_tier=True, lease_ns=60 * SECOND)
    compact(log, tier, server, before=4)
    server.give("reader of the tier", messages.Hold(3))
    server.give("reader of the map", messages.Hold(6))
    assert compact(log, tier, server, before=8, number=2).floor == 6


def test_a_client_stays_with_the_server_that_reads_the_tier() -> None:
    client = Client()
    client.handle(Call(1, calls.Get((b"k",), SNAPSHOT, 3)))
    ((server, read),) = client.reads()
    assert server == "m1"
    for _ in range(5):
        client.give("m1", Recalling((read.number,)))
        client.wait(SECOND // 2)
        assert client.reads() == [("m1", read)]
    client.wait(SECOND // 2)
    assert client.reads() == [("m2", read)]
    client.give("m2", Recalling((read.number,)))
    client.answer(read.number, 3, Entries(((3, b"3"),)), "m1")
    assert client.answers[1] == calls.Found(3, ((3, b"3"),))


def test_a_deadline_while_the_tier_is_read() -> None:
    client = Client()
    client.handle(Call(1, calls.Get((b"k",), SNAPSHOT, 3, client.now + SECOND // 4)))
    ((_, read),) = client.reads()
    client.give("m1", Recalling((read.number,)))
    client.wait(SECOND)
    assert "the cold tier is still being read" in str(client.answers[1])


def test_what_cannot_be_read_has_an_error() -> None:
    client = Client()
    for call, (result, kind) in enumerate(
        [(NotReadable("", "why"), Unavailable), (NotReadable("a file", "why"), Corruption)], 1
    ):
        client.handle(Call(call, calls.Get((b"k",), SNAPSHOT, 3)))
        ((_, read),) = client.reads()
        client.answer(read.number, 0, result)
        assert isinstance(client.answers[call], kind)
        assert "why" in str(client.answers[call])


# ---- large values


def test_a_large_value_comes_in_parts(tmp_path: Path) -> None:
    log = Log((VALUE, LARGE), commit(1, {b"k": Place(1, 1, len(LARGE), digest(LARGE))}))
    log.add(commit(2, {b"k": b"small"}))
    tier, server = Tier(tmp_path), Server(on=log, has_cold_tier=True, answer_bytes=2_000)
    compact(log, tier, server, before=3)
    place = ask(log, tier, server, Get((b"k",)), 2)[1].entries[0][1]
    assert place == Place(1, COLD_SHARD, len(LARGE), digest(LARGE))
    client = Client(servers=("m1",))
    client.handle(Call(1, calls.Get((b"k",), SNAPSHOT, 2)))
    rounds = 0
    while 1 not in client.answers:
        log.run(client, server)
        tier.serve(server)
        rounds += 1
    assert client.answers[1] == calls.Found(2, ((2, LARGE),))
    assert rounds > len(LARGE) // 2_000


def test_a_commit_of_many_small_values_comes_in_parts(tmp_path: Path) -> None:
    """A page with such a commit was a message of 5 MB, which could not be sent: a follower waited without end."""
    many = {b"%04d" % number: b"v" * 1_000 for number in range(5_000)}
    log = Log(commit(1, {b"k": b"1"}), commit(2, many), commit(3, {b"k": b"3"}))
    tier, server = Tier(tmp_path), Server(on=log, has_cold_tier=True)
    compact(log, tier, server, before=3)
    client = Client(servers=("m1",))
    client.handle(Call(1, calls.ColdCommits(0)))
    while 1 not in client.answers:
        log.run(client)
        for _, message in client.take(Reads):
            server.give("client", message)
        log.run(server)
        tier.serve(server)
        for _, answers in server.take(messages.Answers):
            encode(answers)
            client.give("m1", answers)
    page = client.answers[1]
    found = [(one.version, decode_commit(one.record, one.version).writes) for one in page.commits]
    assert found == [(1, {b"k": b"1"}), (2, many), (3, {b"k": b"3"})]


def test_a_commit_that_is_larger_than_any_value_comes_in_parts() -> None:
    """A record may have 64 KiB more: it seemed to be damaged."""
    record = bytes(MAX_VALUE_BYTES + 1_000)
    client = Client(servers=("m1",))
    client.handle(Call(1, calls.ColdCommits(0)))
    ((_, read),) = client.reads()
    place = PLACE.pack(1, COLD_SHARD, len(record), digest(record))
    client.answer(read.number, 9, messages.CommitPage((messages.ColdCommit(9, 1, b"", place),), 10, False))
    for part in (record[:MAX_VALUE_BYTES], record[MAX_VALUE_BYTES:]):
        ((_, read),) = client.reads()
        client.answer(read.number, 9, messages.ValuePart(part))
    assert client.answers[1].commits[0].record == record


def test_a_large_value_that_is_another_one_is_not_returned() -> None:
    client = Client(servers=("m1",))
    client.handle(Call(1, calls.ColdValue(Place(1, COLD_SHARD, 4, digest(b"good")))))
    for part in (b"ba", b"d!"):
        ((_, read),) = client.reads()
        client.answer(read.number, 9, messages.ValuePart(part))
    assert isinstance(client.answers[1], Corruption)
