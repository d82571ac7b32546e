"""Records that no client writes, in the log nevertheless: a client has forged them, and an earlier release took them.

They end no server and stop no compaction, and all else in the log is decided as that release has decided it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import logdb
from logdb.cluster.client import requests as calls
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import Entries, Get, Pin, Pinned, Pins, Rows, Scan, SliceRequest
from logdb.errors import AccessDenied, Corruption
from logdb.log import requests as log_calls
from logdb.log.contract import NotOfThisShard
from logdb.log.engine import Engine, all_engines
from logdb.security.record_permissions import check_messages
from logdb.store.limits import MAX_VALUE_BYTES
from logdb.store.records import (
    DECISION,
    PIN,
    VALUE,
    Decision,
    Place,
    encode_decision,
    encode_pin,
)
from logdb.txn.validation import Reason
from tests.harness.cold_tiers import Tier, compact
from tests.harness.forged import FORGED
from tests.harness.mapping_histories import LARGE, PLACE, compacted
from tests.harness.samples import sample, sent
from tests.harness.stage import Client, Log, Server, batch, commit

LONG = Place(1, 1, (1 << 63) - 1, bytes(16))
SINGLE = commit(1, {b"a": b"1"})


@pytest.mark.parametrize("engine", all_engines(), ids=lambda engine: engine.name)
@pytest.mark.parametrize("what", FORGED)
def test_a_server_refuses_them_at_the_door(engine: Engine, what: str) -> None:
    (kind,) = engine.wire.appends
    message = sample(kind)
    check_messages([message._replace(records=[SINGLE, (PIN, encode_pin("p", 1))])])
    with pytest.raises(AccessDenied):
        check_messages([message._replace(records=[SINGLE, FORGED[what]])])


def test_what_honest_clients_write_passes_the_door() -> None:
    (kind,) = next(iter(all_engines())).wire.appends
    longest = PLACE._replace(length=MAX_VALUE_BYTES)
    records = [
        commit(1, {b"k": longest}, conditions=[logdb.equals(b"k", LARGE)], snapshot=5),
        commit((1 << 63) - 1, {b"k": b"v" * 4096}, conditions=[logdb.version_less(b"k", (1 << 64) - 1)]),
        (PIN, encode_pin("p", 0)),
        (VALUE, LARGE),
    ]
    check_messages([sample(kind)._replace(records=records)])


def test_the_lengths_of_forged_places_stop_no_compaction() -> None:
    """Their sum did not fit its field in the head of a checkpoint: each server stopped at the BEGINNING, for good."""
    log = Log(SINGLE, commit(2, {b"k%d" % number: LONG for number in range(3)}), commit(3, {b"z": b"3"}))
    first, second = Server(on=log), Server(on=log, name="m2", seed=2)
    assert compacted(log, first, second, before=3).oldest_after == 3
    assert first.core.replica.image() == second.core.replica.image()
    assert first.core.replica.logged < 10_000
    assert first.ask(Get((b"a", b"z"))).entries == ((1, b"1"), (3, b"3"))
    later = Server(on=log, name="m3", seed=3)
    assert later.stopped is None
    assert later.ask(Get((b"a", b"z"))).entries == ((1, b"1"), (3, b"3"))


def test_what_was_decided_after_one_stays_decided() -> None:
    """Earlier releases have applied its commit; decision records in the log say so, and later conflicts follow."""
    log = Log(
        SINGLE,
        commit(2, {b"k": LONG._replace(length=(1 << 64) - 1)}),
        (DECISION, encode_decision(Decision(0, 2, ()))),
        commit(3, {b"k": b"3"}, reads=[b"k"], snapshot=1, client=2),
        (DECISION, encode_decision(Decision(2, 4, (4,)))),
    )
    server = Server(on=log)
    assert server.stopped is None
    assert server.applied == 5


def test_only_values_that_are_there_count_as_logged() -> None:
    replica = Replica(None, 100)
    dangling = commit(2, {b"k": PLACE._replace(gsn=900)})
    for gsn, record in enumerate([(VALUE, LARGE), commit(1, {b"k": PLACE._replace(gsn=1)})] * 2 + [dangling], 1):
        decided = replica.apply(batch(gsn, record))
    assert decided[0][1].reason is Reason.DANGLING
    size = sum(len(payload) for _, payload in (commit(1, {b"k": PLACE}), commit(1, {b"k": PLACE}), dangling))
    assert replica.logged == size + len(LARGE)


def test_a_count_of_an_earlier_release_is_bounded() -> None:
    """The sum fitted its field when that release wrote it, and did not with more records."""
    log, replica = Log(SINGLE, commit(2, {b"k": b"2"})), Replica(None, 100)
    replica.apply(batch(1, *log.records))
    replica.logged = (1 << 64) - 1
    image = replica.image()
    restored = Replica(None, 100)
    restored.install(2, image)
    restored.apply(batch(3, *[commit(number, {b"k": b"v"}) for number in range(3, 9)]))
    assert restored.logged < 1 << 63
    restored.head()


def test_answers_with_a_forged_place_arrive() -> None:
    """Receivers refused the whole answer: a scan of the key, or the checkpoint for a new server, never arrived."""
    log = Log(SINGLE, commit(2, {b"k": LONG._replace(length=1 << 63)}))
    server = Server(on=log)
    place = LONG._replace(length=MAX_VALUE_BYTES + 1)
    assert server.ask(Scan(None, None, False, 9)) == Rows(((b"a", b"1"), (b"k", place)), b"k\0")
    server.give("m2", SliceRequest(1, 0, None))
    for _, message in server.sent:
        assert sent(message) == message


def test_the_pins_are_answered_though_one_is_forged() -> None:
    server = Server(SINGLE, (PIN, encode_pin("p", (1 << 64) - 1)), (PIN, encode_pin("q", 1)))
    pins = server.ask(Pins())
    assert pins == Pinned((Pin("p", log_calls.END), Pin("q", 1)))
    server.show((PIN, encode_pin("p", 0)))
    assert server.ask(Pins()) == Pinned((Pin("q", 1),))


@pytest.mark.parametrize("place", [PLACE._replace(shard=77), PLACE._replace(digest=bytes(16)), LONG])
def test_a_value_that_is_nowhere_stops_no_compaction(place: Place) -> None:
    """The compaction tried to read it again and again."""
    log = Log((VALUE, LARGE), commit(1, {b"k": place._replace(gsn=1), b"a": PLACE._replace(gsn=1)}), commit(2, {}))
    server = Server(on=log)
    for number in (1, 2):
        assert compacted(log, server, before=len(log.records), number=number).why == ""
        log.add(commit(2 + number, {b"b": b"%d" % number}))
        log.run(server)
    (_, forged), (_, there) = server.ask(Get((b"k", b"a"))).entries
    assert not forged.has(*log.records[forged.gsn - 1])
    assert there.has(*log.records[there.gsn - 1])


def test_a_value_that_is_nowhere_is_damage_for_its_reader() -> None:
    client = Client()
    call = client.call(calls.Get([b"k"]))
    ((_, read),) = client.reads()
    client.answer(read.number, 6, Entries(((4, PLACE._replace(shard=77)),)))
    client.log_answers(log_calls.Read, NotOfThisShard(5, 77))
    assert isinstance(client.answers[call], Corruption)


@pytest.mark.parametrize("place", [PLACE._replace(shard=77), PLACE._replace(digest=bytes(16))])
def test_a_value_that_is_nowhere_keeps_nothing_from_the_cold_tier(tmp_path: Path, place: Place) -> None:
    """A wrong digest stopped the server, and a shard that does not exist the copying."""
    forged = place._replace(gsn=1)
    log = Log(
        (VALUE, LARGE),
        commit(1, {b"k": forged, b"a": PLACE._replace(gsn=1)}),
        commit(2, {b"k": forged}),
        commit(3, {b"b": b"3"}),
    )
    tier, server = Tier(tmp_path / "tier"), Server(on=log, has_cold_tier=True)
    assert compact(log, tier, server, before=3).why == ""
    assert compact(log, tier, server, before=4, number=2).oldest_after == 4
    logdb.restore(tier.place.location(), tmp_path / "restored", version=3)
    with logdb.open(tmp_path / "restored", read_only=True) as db:
        assert db.get(b"a") == LARGE
        assert db.get(b"k") is None
