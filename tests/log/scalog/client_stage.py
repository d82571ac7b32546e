"""A script for a log client: the test sends the messages of all servers and advances the time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from logdb.cores.effects import SECOND
from logdb.log.contract import LogRecord, Record
from logdb.log.requests import ClientConfig, ShardState
from logdb.log.scalog.client.log_client import LogClient
from logdb.log.scalog.messages import (
    Append,
    Appended,
    Member,
    Pulled,
    Segment,
    ShardConfig,
    View,
    ViewRequest,
    ViewResponse,
)
from logdb.log.scalog.records import wrap
from tests.harness.script import Script

START = 1_000 * SECOND
CONFIG = ClientConfig("client", ("o1", "o2", "o3"), coalesce_calls=False)
LIVE, FINALIZING, FINALIZED = ShardState.LIVE, ShardState.FINALIZING, ShardState.FINALIZED


def shard(
    number: int,
    state: ShardState = LIVE,
    *,
    servers: int = 2,
    sealed: Sequence[int] = (),
    extra: Sequence[Segment] = (),
) -> ShardConfig:
    """Shard n has the servers n1, n2, ... with the segments n1, n2, ...; `sealed` are sealed at 100."""
    ids = [10 * number + index for index in range(1, servers + 1)]
    ended = state is FINALIZED
    segments = tuple(Segment(id, id, 1, 100 if ended or id in sealed else None) for id in ids)
    members = tuple(Member(id, f"s{id}") for id in ids)
    return ShardConfig(number, 1, state, servers, members, (*segments, *extra), "")


def view(version: int, *shards: ShardConfig, next_shard: int = 0, oldest: int = 1) -> View:
    return View(version, shards, next_shard or len(shards) + 1, oldest, (), ())


def records(count: int, tag: int = 1) -> list[Record]:
    return [(tag, b"record %d" % number) for number in range(count)]


class Stage(Script):
    """The script of one client, which has received the view `shown` (if any)."""

    def __init__(self, shown: View | None = None, *, seed: int = 1, **config: Any) -> None:
        settings = replace(CONFIG, **config)
        super().__init__(lambda journals: LogClient(settings, journals, random.Random(seed)), now=START)
        if shown is not None:
            self.show(shown)

    def show(self, shown: View) -> None:
        """Answer the open view requests with this view."""
        for to, question in self.take(ViewRequest):
            self.give(to, ViewResponse(question.request, shown))

    def show_now(self, shown: View) -> None:
        """Answer the next view requests with this view; time passes until the client sends one."""
        for _ in range(100):
            if any(isinstance(message, ViewRequest) for _, message in self.sent):
                break
            self.wait(SECOND // 10)
        self.show(shown)

    def acknowledge(self, to: str, append: Append, gsn: int, count: int = 0, *, leaving: bool = False) -> None:
        """Acknowledge the first `count` records (0: all) of an append with the GSNs from `gsn` on."""
        ranges = ((append.sequence, count or len(append.records), gsn),)
        self.give(to, Appended(append.client, append.segment, ranges, leaving))


def pulled(
    request: Any, end: int, owned: Sequence[tuple[int, int]], *, final: bool = False, tags: frozenset[int] | None = None
) -> Pulled:
    """The answer to a pull: record g has the payload "g" and the tag g % 3 + 1."""
    found = [
        LogRecord(gsn, gsn * 10, gsn % 3 + 1, wrap(7, gsn, [(1, b"%d" % gsn)])[0][1])
        for first, count in owned
        for gsn in range(first, first + count)
        if tags is None or gsn % 3 + 1 in tags
    ]
    return Pulled(request.request, request.shard, request.gsn, end, tuple(owned), final, found)
