"""Mapping servers detect that the state of one of them differs (DBS-14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from logdb.cluster.compaction.records import CompactionBeginning, encode_beginning
from logdb.cluster.messages import Compare, Compared, SliceRequest
from logdb.cores.effects import SECOND, ProtocolViolation
from logdb.store.records import BEGINNING, DECISION
from tests.harness.mapping_histories import compacted, some_history
from tests.harness.stage import Log, Server, commit

LONG = 60 * SECOND


def servers(log: Log, count: int) -> list[Server]:
    """Peers that have followed the log to its end."""
    names = [f"m{number}" for number in range(1, count + 1)]
    made = []
    for number, name in enumerate(names):
        peers = tuple(other for other in names if other != name)
        made.append(Server(name=name, seed=number, peers=peers, is_behind=True))
        made[-1].wait(LONG)
        made[-1].take(SliceRequest)
    log.run(*made)
    return made


def go_on(log: Log, servers: Sequence[Server], seconds: int) -> dict[str, str]:
    """Let time pass. Returns the reasons of the servers that have stopped, by name."""
    why: dict[str, str] = {}
    running = list(servers)
    for _ in range(seconds * 10):
        for server in list(running):
            try:
                server.wait(SECOND // 10)
            except ProtocolViolation as error:
                why[server.address] = str(error)
                running.remove(server)
        log.run(*running)
    return why


def agreed(server: Server) -> int:
    return server.core.comparison.agreed


def another_decision(server: Server) -> None:
    """Let the server apply a commit that all others have aborted."""
    aborted = server.core.replica.coordinator.ledger.aborted
    assert len(aborted) > 3
    del aborted[1]


def another_value(server: Server) -> None:
    replica = server.core.replica
    key = replica.map.keys_from(b"", 1)[0]
    replica.map.active.insert(key, replica.map.newer(key, 0, replica.applied), b"something else")


def another_version(server: Server) -> None:
    """Let the server lose an older version of a key."""
    replica = server.core.replica
    for key in replica.map.keys_from(b"", 99):
        newest = replica.map.active.newest[key]
        if newest[2] is not None:
            replica.map.active.newest[key] = newest[0], newest[1], None
            return


DIFFERENCES = [another_decision, another_value, another_version]


def test_servers_with_the_same_state_agree_and_write_their_decisions() -> None:
    log = Log(*some_history(1, 60))
    three = servers(log, 3)
    for round_ in range(4):
        assert go_on(log, three, 30) == {}
        conflict = commit(1, {b"k": b""}, client=round_ + 100, reads=[b"key 1"], snapshot=1)
        log.add(commit(2, {b"key 1": b"%d" % round_}, client=round_ + 100), conflict)
    assert all(agreed(server) > 3 for server in three)
    assert DECISION in [tag for tag, _ in log.records]


@pytest.mark.parametrize("differ", DIFFERENCES)
@pytest.mark.parametrize("which", range(3))
def test_the_one_that_differs_from_two_stops(differ: Callable[[Server], None], which: int) -> None:
    """In any order, and before it writes a decision, which would stop the others (DBS-8)."""
    log = Log(*some_history(1, 60))
    three = servers(log, 3)
    differ(three[which])
    why = go_on(log, three, 90)
    assert list(why) == [f"m{which + 1}"]
    assert "DBS-14" in why[f"m{which + 1}"]
    assert go_on(log, [server for server in three if server is not three[which]], 60) == {}


def test_of_two_that_differ_neither_goes_on() -> None:
    """The two servers cannot decide which of them is wrong."""
    log = Log(*some_history(1, 60))
    two = servers(log, 2)
    another_decision(two[0])
    assert sorted(go_on(log, two, 60)) == ["m1", "m2"]


def test_one_that_is_slow_to_answer_is_waited_for_where_its_answer_counts() -> None:
    """Else the right one of two would stop because the third was busy; in the end it is taken for dead."""
    log = Log(*some_history(1, 60))
    one, wrong, slow = servers(log, 3)
    another_decision(wrong)
    kept: list[tuple[str, Compare]] = []
    for _ in range(300):
        try:
            one.wait(SECOND // 10)
        except ProtocolViolation as error:
            raise AssertionError("it stopped") from error
        for to, asked in one.take(Compare):
            if to == "m2":
                wrong.give("m1", asked)
            else:
                kept.append((to, asked))
        for _, told in wrong.take(Compared):
            one.give("m2", told)
        if len(kept) == 5:
            slow.give("m1", kept[-1][1])
            ((_, told),) = slow.take(Compared)
            one.give("m3", told)
            kept.append(kept[-1])
    assert len(kept) > 5
    silent = servers(log, 3)
    another_decision(silent[1])
    assert sorted(go_on(log, silent[:2], 120)) == ["m1", "m2"]


def test_all_of_the_map_is_compared_in_the_end() -> None:
    log = Log(*[commit(number, {b"%03d %d" % (key, number): b"" for key in range(90)}) for number in range(1, 11)])
    three = servers(log, 3)
    assert go_on(log, three, 30) == {}
    last = three[1].core.replica.map.keys_from(b"089 9", 1)[0]
    three[1].core.replica.map.active.insert(last, 9, b"something else")
    assert "m2" in go_on(log, three, 600)


def test_a_server_that_cannot_compare_does_not_reply() -> None:
    """The server has not applied that version, has moved its floor, or is empty."""
    log = Log(*some_history(1, 60))
    one, other = servers(log, 2)
    floor, version, digest = 0, one.applied, one.core.replica.excerpt(0, one.applied, b"", b"")
    other.give("m1", Compare(1, floor, 0, version, b"", b"", digest))
    assert other.one(Compared) == ("m1", Compared(1, True))
    other.give("m1", Compare(2, floor, 0, version + 1, b"", b"", digest))
    other.show((BEGINNING, encode_beginning(CompactionBeginning(7, 50))))
    other.give("m1", Compare(3, floor, 0, version, b"", b"", digest))
    empty = Server(name="m3", peers=("m1",))
    empty.give("m1", Compare(4, floor, 0, version, b"", b"", digest))
    assert not other.take(Compared)
    assert not empty.take(Compared)
    assert go_on(log, [one], 60) == {}
    assert agreed(one) == 0


def test_servers_agree_again_after_a_compaction_whenever_they_have_pruned() -> None:
    log = Log(*some_history(1, 80))
    three = servers(log, 3)
    compacted(log, *three, before=50)
    before = [agreed(server) for server in three]
    assert go_on(log, three, 60) == {}
    assert all(agreed(server) > count for server, count in zip(three, before, strict=True))
