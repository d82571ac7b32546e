"""A scripted host for storage servers: journals are lists, and the test delivers messages and syncs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

from logdb.cores.effects import (
    Address,
    Create,
    Drop,
    Effect,
    Event,
    Journal,
    Persist,
    Persisted,
    Received,
    Send,
    SendRanges,
    SendStored,
    SetTimer,
    Stop,
    TimerFired,
    Trim,
)
from logdb.log.contract import LogRecord
from logdb.log.requests import ShardState
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.messages import Append, Member, Range, RegistrationReply, Segment, ShardConfig, ShardCut, Update
from logdb.log.scalog.storage.server import StorageServer

ORDERING = ("order-1", "order-2")
SHARD = 1
M = TypeVar("M")


class Kept:
    """A journal: the written records, and how many of them survive a crash."""

    def __init__(self, first: int) -> None:
        self.first = self.durable = self.trimmed = first
        self.records: list[LogRecord] = []

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def read(self, first: int, end: int) -> list[LogRecord]:
        assert self.trimmed <= first < end <= self.durable, f"{first} to {end} of {self.trimmed} to {self.durable}"
        return self.records[first - self.first : end - self.first]


class Host:
    """One storage server, its journals, and the messages that it has sent."""

    def __init__(self, address: Address, **settings: Any) -> None:
        self.config = StorageConfig(address, ORDERING, **settings)
        self.now = 1_000_000_000
        self.journals: dict[str, Kept] = {}
        self.lives = 0
        self.sent: list[Send] = []
        self.timers: dict[str, int] = {}
        self.stopped: Stop | None = None
        self.start()

    def start(self) -> None:
        """Start the core from the journals."""
        self.lives += 1
        journals = {name: Journal(kept.first, kept.end, list(kept.records)) for name, kept in self.journals.items()}
        self.core = StorageServer(self.config, journals, random.Random(f"{self.config.address} {self.lives}"))
        self.perform(self.core.start(self.now))

    def restart(self) -> None:
        """Crash, and start again with the durable records."""
        for kept in self.journals.values():
            del kept.records[kept.durable - kept.first :]
        self.sent.clear()
        self.timers.clear()
        self.start()

    def handle(self, event: Event) -> None:
        """Give the core an event."""
        assert self.stopped is None
        self.perform(self.core.handle(event, self.now))
        self.core.check_invariants()

    def receive(self, message: Any, sender: Address = "client") -> None:
        """A message arrives."""
        self.handle(Received(sender, message))

    def perform(self, effects: Sequence[Effect]) -> None:
        """Perform effects; messages are kept in `sent`."""
        for effect in effects:
            if isinstance(effect, Send):
                self.sent.append(effect)
            elif isinstance(effect, SendStored):
                records = [(r.tag, r.payload) for r in self.journals[effect.journal].read(effect.first, effect.end)]
                self.sent.append(Send(effect.to, effect.message._replace(records=records)))
            elif isinstance(effect, SendRanges):
                self.sent.append(Send(effect.to, effect.message._replace(records=self.read(effect))))
            elif isinstance(effect, Create):
                assert effect.journal not in self.journals
                self.journals[effect.journal] = Kept(effect.first)
            elif isinstance(effect, Persist):
                kept = self.journals[effect.journal]
                assert effect.first == kept.end, "records go where the journal ends"
                for tag, payload in effect.records:
                    kept.records.append(LogRecord(kept.end, self.now, tag, payload))
            elif isinstance(effect, Trim):
                kept = self.journals[effect.journal]
                assert effect.before <= kept.durable
                kept.trimmed = effect.before
                del kept.records[: effect.before - kept.first]
                kept.first = effect.before
            elif isinstance(effect, Drop):
                del self.journals[effect.journal]
            elif isinstance(effect, SetTimer):
                self.timers[effect.name] = effect.at
            elif isinstance(effect, Stop):
                self.stopped = effect
            else:
                raise AssertionError(effect)

    def read(self, effect: SendRanges) -> list[LogRecord]:
        found = []
        for journal, first, end, number, time in effect.ranges:
            for gsn, record in enumerate(self.journals[journal].read(first, end), number):
                if effect.tags is None or record.tag in effect.tags:
                    found.append(LogRecord(gsn, time, record.tag, record.payload))
        return found

    # ---- steps of a test

    def sync(self, *journals: str) -> None:
        """Make all written records (of these journals) durable, and deliver `Persisted`."""
        for name, kept in list(self.journals.items()):
            if kept.durable < kept.end and (not journals or name in journals):
                kept.durable = kept.end
                self.handle(Persisted(name, kept.end))

    def wait(self, ns: int) -> None:
        """Let time pass; timers fire in their order."""
        until = self.now + ns
        while self.timers and min(self.timers.values()) <= until and self.stopped is None:
            name = min(self.timers, key=lambda one: self.timers[one])
            self.now = max(self.now, self.timers.pop(name))
            self.handle(TimerFired(name))
        self.now = until

    def take(self, kind: type[M], to: Address | None = None) -> list[M]:
        """Remove and return the messages of this kind (to `to`) from `sent`."""
        taken = [one for one in self.sent if isinstance(one.message, kind) and to in (None, one.to)]
        self.sent = [one for one in self.sent if one not in taken]
        return [one.message for one in taken]

    @property
    def token(self) -> int:
        return self.core.shard.token


def member_config(hosts: Sequence[Host], epoch: int = 1, **changes: Any) -> ShardConfig:
    """A shard of these hosts, which are servers 11, 12, ... and primaries of segments 21, 22, ..."""
    config = ShardConfig(
        shard=SHARD,
        epoch=epoch,
        state=ShardState.LIVE,
        quorum=len(hosts),
        members=tuple(Member(11 + index, host.config.address) for index, host in enumerate(hosts)),
        segments=tuple(Segment(21 + index, 11 + index, 1, None) for index in range(len(hosts))),
        reports_to="",
    )
    return config._replace(**changes)


def sealed(config: ShardConfig, **ends: int) -> ShardConfig:
    """The next configuration, in which segments (s21=5: segment 21, at LSN 5) are sealed."""
    segments = tuple(segment._replace(sealed=ends.get(f"s{segment.id}", segment.sealed)) for segment in config.segments)
    return config._replace(epoch=config.epoch + 1, segments=segments)


class Cluster:
    """A shard of some hosts, and an ordering layer whose messages the test decides."""

    def __init__(self, size: int = 2, **settings: Any) -> None:
        self.hosts = [Host(f"host-{index}", **settings) for index in range(size)]
        self.config = member_config(self.hosts)
        self.links: list[ShardCut] = []
        self.last = 0
        self.oldest = 1
        for index in range(size):
            self.admit(index)
        self.run()

    def host(self, address: Address) -> Host | None:
        return next((host for host in self.hosts if host.config.address == address), None)

    def admit(self, index: int) -> None:
        """Send a host its configuration."""
        host = self.hosts[index]
        host.sync()
        host.receive(
            RegistrationReply(host.token, 11 + index, False, self.update(config=self.config, links=())), ORDERING[0]
        )

    # ---- the ordering layer

    def order(self, *counts: tuple[int, int], skip: int = 0) -> ShardCut:
        """Order `count` more records of each segment ((segment, count), ...), after `skip` GSNs of other shards."""
        ends = {part.segment: part.first_lsn + part.count for link in self.links for part in link.ranges}
        gsn = self.last + skip + 1
        ranges = []
        for segment, count in counts:
            ranges.append(Range(segment, ends.get(segment, 1), count, gsn))
            gsn += count
        self.last = gsn - 1
        number = self.links[-1].number + 1 if self.links else 1
        link = ShardCut(number, number - 1, number * 1000, tuple(ranges))
        self.links.append(link)
        return link

    def update(self, *, links: Sequence[ShardCut] | None = None, config: ShardConfig | None = None) -> Update:
        """An update with the newest link, and with the configuration if it is given."""
        if links is None:
            links = self.links[-1:]
        head = self.links[-1].number if self.links else 0
        return Update(SHARD, self.config.epoch, config, tuple(links), head, self.last, self.oldest)

    def send_update(self, *, config: ShardConfig | None = None, links: Sequence[ShardCut] | None = None) -> None:
        """Send an update to all hosts, and run them."""
        if config is not None:
            self.config = config
        update = self.update(config=config, links=links)
        for host in self.hosts:
            if host.stopped is None:
                host.receive(update, ORDERING[0])
        self.run()

    # ---- messages among the hosts

    def run(self, *, sync: bool = True) -> None:
        """Deliver the messages between hosts and make their writes durable, until there are none left."""
        moved = True
        while moved:
            moved = False
            for host in self.hosts:
                if host.stopped is not None:
                    continue
                if sync and any(kept.durable < kept.end for kept in host.journals.values()):
                    host.sync()
                    moved = True
                for one in list(host.sent):
                    to = self.host(one.to)
                    if to is not None:
                        host.sent.remove(one)
                        if to.stopped is None:
                            to.receive(one.message, host.config.address)
                        moved = True

    def wait(self, ns: int) -> None:
        """Let time pass for all hosts, in small steps."""
        for _ in range(max(1, ns // 50_000_000)):
            for host in self.hosts:
                if host.stopped is None:
                    host.wait(50_000_000)
            self.run()


def append(sequence: int, count: int = 1, *, segment: int = 21, client: int = 7, settled: int = 0) -> Append:
    """Records whose payloads name client and number."""
    records = [(1 + number % 3, b"%d:%d" % (client, number)) for number in range(sequence, sequence + count)]
    return Append(client, sequence, settled, segment, records)
