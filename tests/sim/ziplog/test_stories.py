"""Stories: fixed sequences of two faults at once around a new view, which random faults seldom reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logdb.cores.effects import MILLISECOND, SECOND, Received
from logdb.log import requests as calls
from logdb.log.ziplog.epochs import time_of
from logdb.log.ziplog.messages import ChangeRequest, Freeze, Pull, Pulled, Replicate, Report, ShardConfig
from logdb.log.ziplog.records import gsn_of
from logdb.log.ziplog.storage.log_store import GRAIN_BYTES
from tests.sim.cluster import Operator
from tests.sim.process import Process
from tests.sim.world import World
from tests.sim.ziplog.cluster import Cluster, Shape
from tests.sim.ziplog.healing import ADDRESS, Prober


class Appended:
    """An append that a client has begun. `gsn`: 0 until it returns."""

    def __init__(self, client: Operator, shard: int | None = None, after: int | None = None, size: int = 8) -> None:
        self.gsn = 0
        client.call(calls.Append([(1, bytes(size))], shard, after=after), self._returned)

    def _returned(self, result: object) -> None:
        assert isinstance(result, calls.AppendResult), result
        self.gsn = result.gsns[0]


class Story:
    """A running cluster with one shard of two servers, and two clients that know its set of shards."""

    def __init__(self, spares: int) -> None:
        self.world = World(1)
        self.cluster = Cluster(
            self.world, Shape(clients=2, replicas=1, shards=1, spares=spares, epoch_ns=60 * MILLISECOND, cache_bytes=0)
        )
        self.cluster.start()
        self.clients = [Operator(process) for process in self.cluster.clients]
        for client in self.clients:
            self.wait_for(Appended(client))

    def append_large(self) -> int:
        """Append a record that the index of a journal has. Returns its GSN."""
        appended = Appended(self.clients[0], size=GRAIN_BYTES)
        self.wait_for(appended)
        return appended.gsn

    def shard(self, number: int) -> ShardConfig:
        """A shard, in the newest configuration."""
        config = self.cluster.state.shards[number]
        assert isinstance(config, ShardConfig)
        return config

    def member(self, place: int) -> Process:
        """The process of a member of the first shard."""
        address = self.shard(1).members[place].address
        return next(one for one in self.cluster.storage if one.address == address)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Run the world until this holds."""
        assert condition() or self.world.run(self.world.now + 10 * SECOND, condition)

    def wait_for(self, *appended: Appended) -> None:
        """Run the world until these appends have returned."""
        self.wait(lambda: all(one.gsn for one in appended))

    def pass_time(self, ms: int) -> None:
        """Run the world for a while."""
        self.world.run(self.world.now + ms * MILLISECOND)

    def cut_off(self, process: Process) -> set[tuple[str, str]]:
        """Clients alone reach this server. Returns the links that are cut."""
        servers = [one.address for one in (*self.cluster.ordering, *self.cluster.storage)]
        return self.cluster.network.split([process.address], servers)

    def begin_view_without(self, process: Process, source: Process) -> set[tuple[str, str]]:
        """A member is cut off, while the other one is frozen and begins a view. Returns the links that are cut."""
        links = self.cut_off(process)
        view = self.shard(1).view
        self.cluster.network.send(self.cluster.founders[0], source.address, Freeze(1, view))
        self.wait(lambda: self.shard(1).view == view + 1)
        return links

    def add_shard(self) -> None:
        """The first client adds a shard, which joins the set."""
        self.clients[0].call(calls.Reconfigure(calls.AddShard(())))
        self.wait(lambda: 2 in self.cluster.state.shards and self.shard(2).is_in_set)

    def lose_disk(self, process: Process) -> None:
        """A server restarts on an empty disk."""
        process.kill()
        process.wipe()
        process.start()


@pytest.mark.parametrize("place", [0, 1])
def test_a_member_that_was_cut_off_when_its_view_ended_places_nothing_behind_what_has_returned(place: int) -> None:
    """The view ends without this member, a second shard joins, and the source of the next view loses its disk. A client
    of the earlier set, which asks for no frontier, has reached that member alone (ZIP-6)."""
    story = Story(spares=2)
    cut_off, source = story.member(place), story.member(1 - place)
    links = story.begin_view_without(cut_off, source)
    story.add_shard()
    first = Appended(story.clients[0])
    story.pass_time(10)
    returned = first.gsn
    later = Appended(story.clients[1])
    story.pass_time(5)
    assert cut_off.core.state.log.last > story.member(0).core.state.log.last, "it has placed the record"
    story.lose_disk(source)
    story.cluster.network.restore(links)
    story.wait_for(first, later)
    assert later.gsn > returned


def test_a_shard_that_joins_does_not_wait_for_a_member_that_was_replaced() -> None:
    """The next view is established without the member that is cut off, and no other one begins with it."""
    story = Story(spares=3)
    story.begin_view_without(story.member(1), story.member(0))
    story.add_shard()
    story.wait_for(Appended(story.clients[0]), Appended(story.clients[1]))
    assert story.shard(1).is_in_set


def test_a_late_report_of_a_frozen_server_opens_no_shard() -> None:
    """The server was frozen in an earlier view. It is the primary of this one, and has not entered the set with the new
    shard: a client of the earlier set, which asks for no frontier, goes on inserting there (ZIP-6)."""
    story = Story(spares=2)
    primary, mms = story.member(0), story.cluster.ordering[0]
    late: list[Report] = []

    def note(sender: str, to: str, message: Any) -> Any:
        late.extend([message] if sender == primary.address and isinstance(message, Report) else [])
        return message

    story.cluster.network.filters.append(note)
    story.cluster.network.send(mms.address, primary.address, Freeze(*story.shard(1)[:2]))
    story.wait(lambda: story.shard(1).view == 2 and story.shard(1).is_in_set)
    assert story.member(0) is primary
    story.cluster.network.filters.clear()
    for client in story.clients:
        story.wait_for(Appended(client))
    links = story.cluster.network.split([primary.address], [mms.address])
    story.clients[0].call(calls.Reconfigure(calls.AddShard(())))
    story.wait(lambda: 2 in story.cluster.state.shards and story.shard(2).is_in_set)
    mms.deliver(Received(primary.address, next(one for one in late if one.is_frozen)))
    first = Appended(story.clients[0], shard=2, after=0)
    story.pass_time(20)
    returned = first.gsn
    later = Appended(story.clients[1])
    story.pass_time(20)
    story.cluster.network.restore(links)
    story.wait_for(first, later)
    assert later.gsn > returned


def test_a_new_member_copies_all_that_it_does_not_know_to_be_trimmed() -> None:
    """Else it would send a subscriber at a trimmed position the records behind a gap."""
    story = Story(spares=1)
    network, mms, source = story.cluster.network, story.cluster.ordering[0], story.member(0)
    (new,) = [one for one in story.cluster.storage if one not in (source, story.member(1))]
    places = [story.append_large() for _ in range(12)]

    def drop_the_order(_: str, to: str, message: Any) -> Any:
        return None if to == new.address and isinstance(message, Replicate) else message

    network.filters.append(drop_the_order)
    story.begin_view_without(story.member(1), source)
    story.wait(lambda: new.core.state.view == 3 and source.core.state.primary is not None)
    network.split([mms.address], [new.address], one_way=True)
    network.send("client-1", mms.address, ChangeRequest(1, "Trim", (places[-1],)))
    story.wait(lambda: source.core.state.reads.oldest == places[-1])
    story.pass_time(20)
    network.filters.clear()
    story.wait(lambda: new.core.state.log.stable >= places[-2])
    prober = Prober(story.cluster)
    network.send(ADDRESS, new.address, Pull(0, 1, places[2], None, 1 << 20, 0))
    story.wait(lambda: prober.answer is not None)
    assert isinstance(prober.answer, Pulled)
    sent = [gsn_of(one.payload) for one in prober.answer.records]
    assert [gsn for gsn in sent if gsn >= places[2]] == places[2:]


def test_records_get_no_time_in_the_future_when_epochs_are_long() -> None:
    """Each epoch begins behind the GSNs of the last one, so an epoch that begins early moves the time of the log on."""
    story = Story(spares=0)
    story.clients[0].call(calls.Reconfigure(calls.SetCutInterval(1 * SECOND)))
    for _ in range(60):
        story.pass_time(50)
        appended = Appended(story.clients[0])
        story.wait_for(appended)
    assert time_of(appended.gsn, story.cluster.state.origin) <= story.world.now


def test_a_record_behind_one_that_does_not_exist_begins_no_epochs() -> None:
    story = Story(spares=0)
    appended = Appended(story.clients[0], after=1 << 62)
    before = story.cluster.state.cut
    story.pass_time(1_000)
    assert not appended.gsn
    assert story.cluster.state.cut <= before + 1
