"""One unit is left out while it is paused, and another one of its shard loses its disk: nothing is lost (COR-5;
PROTOCOL.md, Tolerated losses)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from logdb.cores.effects import SECOND, Address
from logdb.log import requests as calls
from logdb.log.contract import GENESIS, LogFailed
from logdb.log.corfu.messages import TokenRequest, Update, WriteRequest
from logdb.log.corfu.projection import ShardConfig, Unit, View
from logdb.log.corfu.storage.copier import Copier
from tests.sim.corfu.cluster import Cluster, Shape
from tests.sim.engine import SimulatedLog
from tests.sim.process import Process

PAYLOADS = [b"%d" % number for number in range(5)]
SOON_S = 5.0


@contextmanager
def a_log(f: int, spares: int) -> Iterator[tuple[SimulatedLog, Cluster]]:
    """A log with one shard and some records."""
    with closing(SimulatedLog("corfu", Shape(clients=1, replicas=1, shards=1, f=f, spares=spares))) as log:
        log.append([(1, payload) for payload in PAYLOADS])
        assert isinstance(log.cluster, Cluster)
        yield log, log.cluster


def the_shard(cluster: Cluster) -> ShardConfig:
    """The only live shard, in the newest projection."""
    (config,) = [one for one in cluster.state.shards.values() if one.is_live]
    assert isinstance(config, ShardConfig)
    return config


def unit(cluster: Cluster, place: int) -> Process:
    """The process of a unit of the chain."""
    address = the_shard(cluster).units[place].address
    return next(one for one in cluster.storage if one.address == address)


def wait(cluster: Cluster, condition: Callable[[], bool]) -> None:
    """Run the world until this holds."""
    cluster.world.run(cluster.world.now + 5 * SECOND, condition)
    assert condition()


def lose_disk(process: Process) -> None:
    """Lose the disk of a unit, for good."""
    process.kill()
    process.wipe()


def payloads(log: SimulatedLog, count: int = 1) -> list[bytes]:
    """The records of the log, at least so many."""
    subscription, found = log.subscribe(GENESIS + 1), list[bytes]()
    while len(found) < count:
        batch = subscription.poll(SOON_S)
        if batch is None:
            raise TimeoutError
        found += [record.payload for record in batch.records]
    return found


def remove_while_paused(cluster: Cluster) -> Process:
    """Pause the last unit until the next epoch has left it out. Returns it."""
    last = unit(cluster, -1)
    last.pause()
    wait(cluster, lambda: all(one.address != last.address for one in the_shard(cluster).units))
    return last


def test_of_three_units_one_pause_and_one_lost_disk_lose_nothing() -> None:
    with a_log(f=2, spares=0) as (log, cluster):
        paused = remove_while_paused(cluster)
        paused.resume()
        lose_disk(unit(cluster, 0))
        assert payloads(log) == PAYLOADS
        log.append([(1, b"more")])
        assert payloads(log) == [*PAYLOADS, b"more"]


def test_of_two_units_none_is_left_out_without_a_spare() -> None:
    """The log waits for the paused one; then the other one may lose its disk."""
    with a_log(f=1, spares=0) as (log, cluster):
        paused, lost = unit(cluster, -1), unit(cluster, 0)
        paused.pause()
        with pytest.raises(LogFailed):
            log.call(calls.Append(((1, b"more"),)), SOON_S)
        lose_disk(lost)
        lost.start()
        cluster.world.run(cluster.world.now + SECOND)
        assert len(the_shard(cluster).units) == 2
        paused.resume()
        assert payloads(log)[:5] == PAYLOADS
        log.append([(1, b"last")])
        assert payloads(log)[-1] == b"last"


@pytest.mark.parametrize("copied", ["nothing", "what was not decided"])
def test_of_two_units_one_pause_and_one_lost_disk_lose_nothing(copied: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spare copies from the unit that was left out what no unit of the chain has any more."""
    ask_chain = vars(Copier)["_ask_chain"]

    def ask(self: Copier, view: View, units: tuple[Unit, ...], position: int, now: int) -> None:
        if copied != "nothing" and position >= view.shards[0].units[-1].since:
            ask_chain(self, view, units, position, now)

    monkeypatch.setattr(Copier, "_ask_chain", ask)  # the copy of the rest takes long
    with a_log(f=1, spares=1) as (log, cluster):
        left = unit(cluster, 0)
        paused = remove_while_paused(cluster)
        wipes = paused.wipes
        log.append([(1, b"later")])
        paused.resume()
        lose_disk(left)
        left.start()
        monkeypatch.undo()
        assert payloads(log) == [*PAYLOADS, b"later"]
        log.append([(1, b"last")])
        assert payloads(log) == [*PAYLOADS, b"later", b"last"]
        wait(cluster, lambda: not the_shard(cluster).joining)
        wait(cluster, lambda: paused.wipes > wipes)


def test_what_a_unit_has_accepted_after_it_was_left_out_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with the old projection still writes to it. The new one assigns the same positions again."""
    monkeypatch.setattr(Copier, "_ask_chain", lambda *_: None)
    with a_log(f=1, spares=1) as (log, cluster):
        left, last = unit(cluster, 1), unit(cluster, 0)
        epoch, start = cluster.state.epoch, max(cluster.decided.entries) + 1
        links = cluster.network.split({last.address}, set(cluster.founders))
        wait(cluster, lambda: all(one.address != last.address for one in the_shard(cluster).units))
        assert cluster.state.start == start
        cluster.network.send("me", last.address, WriteRequest(1, epoch, start, 0, 9, 1, (), [(1, b"late")]))
        log.append([(1, b"more")])
        cluster.network.restore(links)
        lose_disk(left)
        left.start()
        monkeypatch.undo()
        assert payloads(log) == [*PAYLOADS, b"more"]


def test_what_a_reader_has_got_where_a_range_begins_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the head has the first entry of the range when a spare joins, and the other unit has restarted. The entry is
    decided with the spare."""
    with closing(SimulatedLog("corfu", Shape(clients=1, replicas=1, shards=3, f=1, spares=1))) as log:
        cluster = log.cluster
        assert isinstance(cluster, Cluster)
        for payload in PAYLOADS:
            log.append([(1, payload)])
        for shard in (2, 3):
            log.call(calls.Reconfigure(calls.FinalizeShard(shard, 0)))
        state, network = cluster.state, cluster.network
        start, head, last = state.start, unit(cluster, 0), unit(cluster, 1)
        assert state.ranges[-1] == (start, (1,))
        network.send("me", state.sequencer, TokenRequest(1, state.epoch, (0,)))
        cluster.world.run(cluster.world.now + SECOND)
        network.send("me", head.address, WriteRequest(1, state.epoch, start, 0, 9, 1, (), [(1, b"first")]))
        log.append([(1, b"second")])
        last.kill()
        last.start()
        cluster.world.run(cluster.world.now + SECOND)
        ask_chain = vars(Copier)["_ask_chain"]

        def ask(self: Copier, view: View, units: tuple[Unit, ...], position: int, now: int) -> None:
            if position >= view.shards[0].units[-1].since:
                ask_chain(self, view, units, position, now)

        monkeypatch.setattr(Copier, "_ask_chain", ask)  # the copy of the rest takes long
        remove_while_paused(cluster)
        assert payloads(log, 7) == [*PAYLOADS, b"first", b"second"]
        last.resume()
        lose_disk(head)
        head.start()
        monkeypatch.undo()
        assert payloads(log, 7) == [*PAYLOADS, b"first", b"second"]


def test_a_unit_that_was_left_out_before_it_knew_that_it_had_joined_delays_no_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This unit has nothing, and was in the chain later than the paused one, which has all."""
    with a_log(f=1, spares=2) as (log, cluster):
        left, paused = unit(cluster, 0), unit(cluster, -1)
        spares = {spare.address for spare in cluster.state.spares()}

        def lose_updates(sender: Address, to: Address, message: Any) -> Any:
            return None if to in spares and isinstance(message, Update) else message

        cluster.network.filters.append(lose_updates)
        monkeypatch.setattr(Copier, "_ask_chain", lambda *_: None)
        log.append([(1, b"more")])
        paused.pause()
        wait(cluster, lambda: all(one.address != paused.address for one in the_shard(cluster).units))
        joined = unit(cluster, -1)
        joined.kill()
        wait(cluster, lambda: all(one.address != joined.address for one in the_shard(cluster).units))
        cluster.network.filters.remove(lose_updates)
        paused.resume()
        joined.start()
        lose_disk(left)
        left.start()
        monkeypatch.undo()
        assert payloads(log, 6) == [*PAYLOADS, b"more"]
