"""The primary's part of replication: it sends its order to the backups, and learns how far all of them have it."""

from __future__ import annotations

from collections import deque
from typing import Final

from logdb.cores.effects import Effect, Send, SendRanges
from logdb.log.requests import transfer_ns
from logdb.log.ziplog.messages import Member, Replicate, Sessions, ShardConfig, Stored
from logdb.log.ziplog.storage.config import StorageConfig
from logdb.log.ziplog.storage.shard_log import ShardLog

UNKNOWN: Final = -1
FLIGHT_BYTES: Final = 8 << 20
"""Records on their way to a backup, beyond which no more are sent: if the queue to it could not hold all, it would drop
the first ones, each time."""


class Follower:
    """A backup. `end`, `durable`, `last`: as it has reported, `confirmed_at`: when it last reported this end, or more.
    `sent`: up to where the order was sent. `flight`: (end, size) of the messages with what it has not reported yet.
    `sessions_until`: until then all sessions are under way. `is_synced`: the MMS has noted that it has all that the
    view began with."""

    __slots__ = (
        "confirmed_at", "durable", "end", "flight", "flight_bytes", "is_synced", "last", "last_received_at", "member",
        "sent", "sent_at", "sessions_until",
    )  # fmt: skip

    def __init__(self, member: Member, now: int) -> None:
        self.member = member
        self.last_received_at = self.sent_at = self.confirmed_at = now
        self.end = self.sent = UNKNOWN
        self.durable = self.last = 0
        self.flight: deque[tuple[int, int]] = deque()
        self.flight_bytes = 0
        self.is_synced, self.sessions_until = member.is_synced, 0

    def land(self, end: int) -> None:
        """The messages up to `end` are not under way any more."""
        while self.flight and self.flight[0][0] <= end:
            self.flight_bytes -= self.flight.popleft()[1]


class Primary:
    """There while this server leads its shard."""

    def __init__(self, config: StorageConfig, view: ShardConfig, log: ShardLog, out: list[Effect], now: int) -> None:
        self._config, self._out, self._log = config, out, log
        self._shard, self._view = view.shard, view.view
        self._ahead = 0
        self._stable_before = log.stable
        self.followers = {one.address: Follower(one, now) for one in view.members if one.address != config.address}

    def send(self, version: int, now: int) -> None:
        """Send every follower what it lacks of the order."""
        for follower in self.followers.values():
            if follower.end == UNKNOWN:
                continue
            pause_ns = self._config.resend_ns + transfer_ns(follower.flight_bytes)
            if follower.sent > follower.end and now >= follower.sent_at + pause_ns:
                follower.land(follower.sent)
                follower.sent = follower.end
            is_behind = follower.sent < self._log.store.cached_from
            if is_behind and follower.sent == follower.end:
                self._send_order(follower, version, now)
            while self._log.store.cached_from <= follower.sent < self._log.end and follower.flight_bytes < FLIGHT_BYTES:
                self._send_order(follower, version, now)

    def _send_order(self, follower: Follower, version: int, now: int) -> None:
        log = self._log
        upto = log.end if follower.sent >= log.store.cached_from else log.store.cached_from
        fetched = log.store.fetch(follower.sent, upto, self._config.batch_bytes)
        message = Replicate(self._shard, self._view, follower.sent, fetched.end, log.stable, version, fetched.records)
        if fetched.ranges:
            self._out.append(SendRanges(follower.member.address, message, fetched.ranges, None))
        else:
            self._out.append(Send(follower.member.address, message))
        if follower.sent == follower.end:
            follower.sent_at = now
        follower.sent = fetched.end
        follower.flight.append((fetched.end, fetched.size))
        follower.flight_bytes += fetched.size

    def heartbeat(self, version: int, now: int) -> None:
        """Show the followers that this primary lives, and how far the order is stable."""
        for follower in self.followers.values():
            at = max(follower.sent, 0)
            beat = Replicate(self._shard, self._view, at, at, self._log.stable, version)
            self._out.append(Send(follower.member.address, beat))
            self._send_sessions(follower, now)

    def _send_sessions(self, follower: Follower, now: int) -> None:
        """Send a follower that was behind, and has the whole order now, what it needs beside it."""
        if follower.end == self._log.end and not follower.is_synced and now >= follower.sessions_until:
            size = 0
            for first, following, sessions in self._log.sessions.parts():
                message = Sessions(self._shard, self._view, self._log.end, first, following, sessions)
                self._out.append(Send(follower.member.address, message))
                size += len(sessions)
            follower.sessions_until = now + transfer_ns(size)

    def note(self, view: ShardConfig) -> None:
        """The MMS has noted which members are synced."""
        for member in view.members:
            if member.is_synced and member.address in self.followers:
                self.followers[member.address].is_synced = True

    def ahead(self) -> int:
        """The last GSN that a backup gave, if the order has not passed it since the last heartbeat: the client of that
        record sends it no more."""
        before = self._ahead
        self._ahead = max([0, *(one.last for one in self.followers.values())])
        return before

    def on_stored(self, message: Stored, sender: str, now: int) -> None:
        """A backup has stored some of the order."""
        follower = self.followers.get(sender)
        if follower is None:
            return
        follower.last_received_at = now
        follower.last = max(message.last, follower.last)
        if message.end >= follower.end:
            follower.confirmed_at = now
            if follower.end == UNKNOWN:
                follower.sent = message.end
            if message.end > follower.end:
                follower.sent_at = now
            follower.end = message.end
            follower.land(message.end)
            if message.durable == message.end:
                self._send_sessions(follower, now)
            follower.sent = max(follower.sent, follower.end)
        elif not follower.is_synced and now >= follower.confirmed_at + self._config.suspect_after_ns:
            # It has restarted, with what it had before this view.
            follower.land(follower.sent)
            follower.end = follower.sent = follower.durable = message.end
            follower.sent_at = follower.confirmed_at = now
        follower.durable = max(follower.durable, min(message.durable, follower.end))

    def stable(self) -> int:
        """How far all members have the order, durably; nothing new until the view is established (ZIP-10)."""
        if not self.is_established:
            return self._stable_before
        return min([self._log.durable, *(one.durable for one in self.followers.values())])

    @property
    def is_established(self) -> bool:
        """Whether the MMS has noted that all members are synced."""
        return all(one.is_synced for one in self.followers.values())

    def silent(self, now: int) -> tuple[int, ...]:
        """The followers from which nothing has come for too long."""
        late = now - self._config.suspect_after_ns
        return tuple([one.member.server for one in self.followers.values() if one.last_received_at <= late])

    def check(self) -> None:
        """Raises AssertionError."""
        assert all(one.durable <= one.end <= self._log.end for one in self.followers.values() if one.end != UNKNOWN), (
            "ZIP-4: a follower has more of the order than its primary"
        )
        assert self.is_established or self._log.stable == self._stable_before, (
            "ZIP-10: records became stable before the view was established"
        )
