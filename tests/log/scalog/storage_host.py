"""Scripts for storage servers, and for a shard of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from logdb.cores.effects import Address, Journal, Send
from logdb.log.requests import ShardState
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.messages import Append, Member, Range, RegistrationReply, Segment, ShardConfig, ShardCut, Update
from logdb.log.scalog.storage.server import StorageServer
from tests.harness.script import Script

ORDERING = ("order-1", "order-2")
SHARD = 1
M = TypeVar("M")


class Host(Script):
    """The script of one storage server. Each start of the server draws from another generator."""

    def __init__(self, address: Address, **settings: Any) -> None:
        self.config = StorageConfig(address, ORDERING, **settings)
        self.starts = 0
        super().__init__(self._build, now=1_000_000_000)

    def _build(self, journals: Mapping[str, Journal]) -> StorageServer:
        self.starts += 1
        return StorageServer(self.config, journals, random.Random(f"{self.config.address} {self.starts}"))

    def receive(self, message: Any, sender: Address = "client") -> list[Send]:
        """Deliver a message."""
        return self.give(sender, message)

    def messages(self, kind: type[M], to: Address | None = None) -> list[M]:
        """Remove and return the sent messages of this kind (to `to`)."""
        found = [send for send in self.sent if isinstance(send.message, kind) and to in (None, send.to)]
        self.sent = [send for send in self.sent if send not in found]
        return [send.message for send in found]

    @property
    def token(self) -> int:
        token: int = self.core.shard.token
        return token


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
