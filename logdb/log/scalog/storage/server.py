"""The storage server: a member of a shard, or a spare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from logdb.cores.effects import (
    Address,
    Disconnected,
    Effect,
    Event,
    Journal,
    Persisted,
    ProtocolViolation,
    Received,
    TimerFired,
    Unreadable,
)
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.messages import (
    Append,
    AppendStatusRequest,
    PlacementsRequest,
    PlacementsResponse,
    Pull,
    ReadRequest,
    RegistrationReply,
    Replicate,
    ReplicateAck,
    ReportRequest,
    SessionsRequest,
    SessionsResponse,
    TimeRequest,
    Update,
    Updates,
)
from logdb.log.scalog.storage.member_state import MemberState
from logdb.log.scalog.storage.membership import Membership
from logdb.log.scalog.storage.metadata_journal import META, MetadataJournal
from logdb.log.scalog.storage.primary import Primary
from logdb.log.scalog.storage.read_server import ReadServer
from logdb.log.scalog.storage.replication import Replication

_OF_HOLDERS = frozenset(
    {Replicate, ReplicateAck, SessionsRequest, SessionsResponse, PlacementsRequest, PlacementsResponse}
)
_OF_ORDERING = frozenset({RegistrationReply, Update, Updates, ReportRequest})


class StorageServer:
    """The core of a storage server. Its journals are "meta" and "segment-<id>", one for each segment of its shard.

    A spare draws a token and registers with it until a reply names its shard; then it starts a copy of each segment of
    the shard. Updates bring links and configurations. Every change of the chain, a copy or the configuration is passed
    to the parts (`Primary`, `Replication`, `ReadServer`, `MetadataJournal`).
    """

    def __init__(self, config: StorageConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self._shard = MemberState(config, rng)
        self._journals = journals
        self._meta = MetadataJournal(self._shard, journals.get(META))
        self._replication = Replication(self._shard)
        self._primary = Primary(self._shard, self._replication.on_appended)
        self._reads = ReadServer(self._shard)
        self._membership = Membership(self._shard, self._meta, self._primary, self._replication, self._reads)
        member = self._membership
        self._handlers: dict[type, Callable[[Any, Address], None]] = {
            Append: self._primary.on_append,
            AppendStatusRequest: self._primary.on_append_status_request,
            ReadRequest: self._reads.on_read,
            Pull: self._reads.on_pull,
            TimeRequest: self._reads.on_time_request,
            Replicate: self._replication.on_replicate,
            ReplicateAck: self._replication.on_replicate_ack,
            SessionsRequest: self._replication.on_sessions_request,
            SessionsResponse: member.on_sessions,
            RegistrationReply: member.on_registration_reply,
            Update: member.on_update,
            Updates: member.on_updates,
            PlacementsRequest: member.on_placements_request,
            ReportRequest: member.on_report_request,
            PlacementsResponse: member.on_placements,
        }

    def start(self, now: int) -> list[Effect]:
        """Recover from the journals, or draw a token; request updates from the ordering layer. Returns the effects."""
        return self._do(now, lambda: self._membership.start(self._journals))

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Process an event. Returns the effects. Raises ProtocolViolation."""
        if type(event) is Received:
            act = self._handlers.get(type(event.message))
            if act is None:
                raise ProtocolViolation(f"a storage server cannot process the message {event.message!r}")
            if not self._is_authorized(type(event.message), event.sender):
                return []
            return self._do(now, act, event.message, event.sender)
        if type(event) is Persisted:
            return self._do(now, self._membership.on_persisted, event.journal, event.end)
        if type(event) is TimerFired:
            return self._do(now, self._meta.flush if event.name == META else self._membership.on_tick)
        if type(event) is Disconnected:
            return self._do(now, self._reads.drop, event.peer)
        if type(event) is Unreadable:
            if type(event.effect.message) is Replicate:
                return self._do(now, self._replication.on_unreadable, event.effect)
            return self._do(now, self._reads.on_unreadable, event)
        raise ProtocolViolation(f"a storage server cannot process the event {event!r}")

    def _is_authorized(self, kind: type, sender: Address) -> bool:
        """Whether this sender may send this kind of message about the shard: another server of it, its aggregator, or
        an ordering replica. Acting on a wrong message of another sender could damage the copies."""
        config = self._shard.config
        if kind in _OF_HOLDERS:
            return config is not None and any(holder.address == sender for holder in config.holders)
        if kind in _OF_ORDERING:
            return sender in self._shard.settings.ordering or (config is not None and sender == config.reports_to)
        return True

    def _do(self, now: int, act: Callable[..., None], *arguments: Any) -> list[Effect]:
        shard = self._shard
        if self._membership.left:
            return []
        shard.now = now
        act(*arguments)
        out, shard.out = shard.out, []
        return out

    @property
    def shard(self) -> MemberState:
        """The state that the parts share: the configuration, the links and the copies of segments. Read only."""
        return self._shard

    @property
    def waiting_reads(self) -> int:
        """Number of parked reads and pulls."""
        return self._reads.waiting

    def check_invariants(self) -> None:
        """Raises AssertionError with the name of the violated invariant. Takes microseconds."""
        for copy in self._shard.copies.values():
            copy.check()
        self._shard.chain.check()
        self._membership.check()
        self._primary.check()
        self._replication.check()
        self._reads.check()
