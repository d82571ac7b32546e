"""A storage server's membership: its registration, its configurations, its reports, and the links of its shard.

When it may be missing something (a gap in the chain, a newer epoch, no message for some time) it sends a request to the
ordering layer, and to other members for links that the ordering layer no longer has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logdb.cores.effects import Address, Create, Drop, Journal, ProtocolViolation, Send, SetTimer, Stop
from logdb.log.requests import ShardState
from logdb.log.scalog.messages import (
    CaughtUp,
    PlacementsRequest,
    PlacementsResponse,
    Register,
    RegistrationReply,
    Report,
    ReportRequest,
    Segment,
    SessionsResponse,
    ShardConfig,
    ShardCut,
    Suspect,
    Update,
    UpdateRequest,
    Updates,
)
from logdb.log.scalog.storage.member_state import MemberState
from logdb.log.scalog.storage.metadata_journal import META, CheckpointedReplica, MetadataJournal, recovered_copy
from logdb.log.scalog.storage.primary import Primary
from logdb.log.scalog.storage.read_server import ReadServer
from logdb.log.scalog.storage.replication import Replication
from logdb.log.scalog.storage.segment_replica import SegmentReplica, journal_of
from logdb.log.scalog.storage.upstream_tracker import UpstreamTracker

TICK: Final = "tick"


class Membership:
    """The membership of one server. `left`: whether it was removed."""

    def __init__(
        self, shard: MemberState, meta: MetadataJournal, primary: Primary, replication: Replication, reads: ReadServer
    ) -> None:
        self._shard, self._meta = shard, meta
        self._primary, self._replication, self._reads = primary, replication, reads
        self.left = False
        self._token_at = 0
        self._journals: dict[str, Journal] = {}
        self._head = self._epoch = 0
        self._needs_placements = False
        self._update_requested_at = self._placements_requested_at = 0
        self._upstream = UpstreamTracker(shard)
        self._joined_at_head: int | None = None
        self._sessions_durable_at = 0
        self._reported: Report | None = None
        self._reported_at = 0
        self._has_news = False
        self._disk_progress_at = self._ticked_at = 0

    # ---- starting

    def start(self, journals: Mapping[str, Journal]) -> None:
        """Recover from the journals, report, and request what is new."""
        shard = self._shard
        self._disk_progress_at = self._ticked_at = shard.now
        self._journals = dict(journals)
        covered = self._meta.recover(journals[META]) if META in journals else {}
        if shard.token == 0:
            shard.token = shard.rng.getrandbits(63) + 1
            self._token_at = self._meta.write_identity()
        for segment in shard.config.segments if shard.config else ():
            self._open_copy(segment, covered.get(segment.id))
        self._primary.on_ordered()
        shard.refresh()
        self._replication.on_config()
        self._upstream.start()
        self._request_update()
        if shard.config is not None:
            self._report()
        shard.out.append(SetTimer(TICK, shard.now + shard.settings.heartbeat_ns))

    def _open_copy(self, segment: Segment, covered: CheckpointedReplica | None = None) -> None:
        """Open the copy of a segment: from the journal that was found, or a new one at the segment's base.

        A journal may be older than the durable configuration: it is continued, unless it ends before the base.
        """
        shard, name = self._shard, journal_of(segment.id)
        journal = self._journals.pop(name, None)
        if journal is not None and journal.end >= segment.base:
            shard.copies[segment.id] = recovered_copy(segment, journal, covered)
            return
        if journal is not None:
            shard.out.append(Drop(name))
        shard.copies[segment.id] = SegmentReplica.empty(segment)
        shard.out.append(Create(name, segment.base))

    # ---- messages of the ordering layer and of aggregators

    def on_registration_reply(self, message: RegistrationReply, sender: Address) -> None:
        """Process the server's id and the updates for it, or its removal."""
        shard = self._shard
        if message.token != shard.token:
            return
        if message.gone:
            self._leave("this server was replaced, or its shard trimmed away")
            return
        if shard.server and message.server == 0:
            return  # from a replica that lags, or a late reply
        if shard.server and message.server != shard.server:
            raise ProtocolViolation(f"server {shard.server} got a reply for server {message.server}")
        self._upstream.on_message(sender)
        update = message.update
        if update is None:
            return
        if shard.config is None:
            if update.config is None or message.server == 0:
                return
            shard.server = message.server
            self._adopt(update.config)
            if self.left:
                return
        self._follow(update, sender, is_reply=True)

    def on_updates(self, message: Updates, sender: Address) -> None:
        """Process a batch of updates from the leader or an aggregator."""
        for update in message.updates:
            self.on_update(update, sender)

    def on_update(self, update: Update, sender: Address) -> None:
        """Process an update of this server's shard."""
        config = self._shard.config
        if config is None or update.shard != config.shard or self.left:
            return
        self._upstream.on_message(sender)
        self._follow(update, sender, is_reply=False)

    def _follow(self, update: Update, sender: Address, *, is_reply: bool) -> None:
        """Apply an update; request what is missing. `is_reply`: it comes directly from an ordering replica."""
        shard = self._shard
        config = shard.config
        assert config is not None
        if update.shard != config.shard:
            raise ProtocolViolation(f"a member of shard {config.shard} got an update of shard {update.shard}")
        covered, head = shard.covered, shard.chain.head
        if update.config is not None and update.config.epoch > config.epoch:
            self._adopt(update.config)
            if self.left:
                return
            config = shard.config
            assert config is not None
        if is_reply and update.epoch == config.epoch and shard.server in config.joining:
            # Only replicas have the head: an aggregator that has just started sends configurations without it.
            previous = self._joined_at_head
            self._joined_at_head = update.head if previous is None else min(previous, update.head)
        self._head, self._epoch = max(self._head, update.head), max(self._epoch, update.epoch)
        self._place(update.links)
        shard.trim(update.oldest)
        if shard.chain.head >= update.head:
            shard.covered = max(shard.covered, update.last)
            if update.epoch == config.epoch and (is_reply or sender in shard.settings.ordering):
                # All links of segments that were removed from this configuration have arrived.
                shard.chain.forget_all_but([segment.id for segment in config.segments])
        self._refresh()
        if is_reply and shard.chain.head < update.head:
            self._needs_placements = True
            self._request_placements()
        elif self._is_behind():
            self._request_update_if_due()
        if sender in shard.settings.ordering and (shard.covered > covered or shard.chain.head > head):
            self._upstream.report_aggregator()

    def _place(self, links: tuple[ShardCut, ...]) -> None:
        """Append the links that follow the chain (SCA-3)."""
        chain, meta = self._shard.chain, self._meta
        for link in links:
            if link.number > chain.head:
                if link.previous > chain.head:
                    break
                chain.place(link)
                meta.add_link(link)
        self._needs_placements = self._needs_placements and chain.head < self._head

    def _refresh(self) -> None:
        """Answer waiting requests after a change of the chain, the configuration or the oldest GSN."""
        self._shard.refresh()
        self._primary.on_ordered()
        self._reads.wake()

    def _is_behind(self) -> bool:
        """Whether an update has named a link or an epoch that is missing here."""
        config = self._shard.config
        return self._shard.chain.head < self._head or (config is not None and config.epoch < self._epoch)

    # ---- configurations

    def _adopt(self, config: ShardConfig) -> None:
        """Adopt a newer configuration, in which this server is a member, or was replaced, or is missing."""
        shard = self._shard
        if shard.config is None or shard.config.reports_to != config.reports_to:
            self._upstream.restart_parent()
        shard.config = config
        if all(member.server != shard.server for member in config.holders):
            self._leave("this server is not in the newest configuration of its shard")
            return
        trimmed = False
        for segment in config.segments:
            copy = shard.copies.get(segment.id)
            if copy is not None and copy.end < segment.base:
                shard.out.append(Drop(copy.journal))
                copy = None
            if copy is None:
                self._open_copy(segment)
            else:
                trimmed |= copy.trim(segment.base)
                copy.sealed = segment.sealed
        kept = {segment.id for segment in config.segments}
        for segment_id in shard.copies.keys() - kept:
            del shard.copies[segment_id]
            shard.out.append(Drop(journal_of(segment_id)))
        for name in self._journals.keys() - {META}:
            shard.out.append(Drop(name))
            del self._journals[name]
        self._meta.write_member()
        if trimmed:
            self._meta.checkpoint()
        shard.refresh()
        self._primary.on_sealed()
        self._replication.on_config()
        self._report()

    def _leave(self, reason: str) -> None:
        """Reject all waiting requests and stop."""
        self._primary.leave()
        self._reads.leave()
        self._shard.out.append(Stop(reason, wipe=True))
        self.left = True

    # ---- requests

    def _request_update(self) -> None:
        """Request updates from the ordering layer, once the token is durable. A spare also registers."""
        shard, address = self._shard, self._shard.settings.address
        self._update_requested_at = shard.now
        if self._meta.durable < self._token_at:
            return
        if shard.config is None:
            self._upstream.send(Register(shard.token, address))
        self._upstream.send(UpdateRequest(shard.token, address, shard.chain.head))

    def _request_update_if_due(self) -> None:
        if self._shard.now >= self._update_requested_at + self._shard.settings.ask_ns:
            self._request_update()

    def _request_placements(self) -> None:
        """Request missing links from another server of the shard."""
        shard = self._shard
        self._placements_requested_at = shard.now
        others = shard.sources()
        if others:
            request = PlacementsRequest(shard.number, shard.server, shard.chain.head)
            shard.out.append(Send(shard.rng.choice(others).address, request))

    def on_placements_request(self, message: PlacementsRequest, sender: Address) -> None:
        """Send another server of the shard the links after the one that it names."""
        shard, chain = self._shard, self._shard.chain
        if message.shard != shard.number:
            return
        after = max(message.after, chain.trimmed)
        entries = chain.links(after, shard.settings.links_per_message)
        complete = (entries[-1].number if entries else after) >= chain.head
        answer = PlacementsResponse(
            shard.number, chain.trimmed, chain.ends_at_trimmed(), shard.oldest, entries, complete
        )
        shard.out.append(Send(sender, answer))

    def on_placements(self, message: PlacementsResponse, sender: Address) -> None:
        """Append links from another server of the shard. If it has trimmed missing ones, continue after them."""
        shard = self._shard
        if message.shard != shard.number:
            return
        head = shard.chain.head
        if message.trimmed > head:
            shard.restart_chain(message.trimmed, message.ends)
            shard.trim(message.oldest)
            self._meta.checkpoint()  # links that follow are written behind it, so none is durable without it
        self._place(message.entries)
        shard.trim(message.oldest)
        self._refresh()
        if not message.complete and shard.chain.head > head:
            self._placements_requested_at = shard.now
            shard.out.append(Send(sender, PlacementsRequest(shard.number, shard.server, shard.chain.head)))

    def on_sessions(self, message: SessionsResponse, sender: Address) -> None:
        """Add another server's sessions and make them durable: it may be wiped when this member has joined (SCA-14)."""
        if self._replication.on_sessions(message):
            self._sessions_durable_at = self._meta.checkpoint()

    # ---- reporting

    def on_report_request(self, message: ReportRequest, sender: Address) -> None:
        """Report to all ordering replicas: the leader may get this server's messages only through other replicas."""
        shard = self._shard
        if message == (shard.number, shard.server) and not self._is_disk_stuck():
            self._report()
            if self._reported is not None:
                for address in shard.settings.ordering:
                    shard.out.append(Send(address, self._reported))

    def _report(self) -> None:
        """Report the durable positions (SCA-1) to the aggregator, if there is one, and to the ordering layer if there
        is none or if it is silent."""
        shard, config = self._shard, self._shard.config
        assert config is not None
        if shard.is_replaced:
            return
        ends = tuple([(copy.id, copy.durable) for copy in shard.copies.values() if copy.sealed is None])
        report = self._reported = Report(config.shard, config.epoch, shard.server, self._meta.placed, ends)
        self._reported_at, self._has_news = shard.now, False
        if config.reports_to:
            shard.out.append(Send(config.reports_to, report))
        if not config.reports_to or self._upstream.is_parent_silent():
            self._upstream.send(report)

    def on_persisted(self, journal: str, end: int) -> None:
        """A journal is durable up to `end`: report it, and send what depended on it."""
        shard = self._shard
        self._disk_progress_at = shard.now
        if journal == META:
            waiting = self._meta.durable < self._token_at
            moved = self._meta.persisted(end)
            if waiting and end >= self._token_at:
                self._request_update()
            self._has_news |= moved
            return
        copy = shard.copies.get(int(journal.rpartition("-")[2]))
        if copy is None or end <= copy.durable:
            return
        copy.durable = min(end, copy.end)
        # The message that others wait for is sent first: a primary's records, a backup's report.
        if copy.primary == shard.server and copy.sealed is None:
            self._replication.on_durable(copy)
        if copy.sealed is None:
            self._report()
        if copy.primary != shard.server:
            self._replication.on_backup_durable(copy)

    def on_tick(self) -> None:
        """Send a heartbeat report, and repeat unanswered requests."""
        shard, settings = self._shard, self._shard.settings
        shard.out.append(SetTimer(TICK, shard.now + settings.heartbeat_ns))
        if shard.now >= self._ticked_at + settings.suspect_after_ns:
            self._upstream.restart_parent()  # this server was paused, or its clock has jumped
        self._ticked_at = shard.now
        if shard.config is None:
            self._request_update_if_due()
            return
        is_watched = shard.config.state is not ShardState.FINALIZED
        interval_ns = settings.heartbeat_ns // 2 if is_watched else settings.suspect_after_ns
        is_due = self._has_news or shard.now >= self._reported_at + interval_ns
        if is_due and not self._is_disk_stuck():
            self._report()
        needs_goal = shard.server in shard.config.joining and self._joined_at_head is None
        quiet_since = max(self._upstream.last_message_at(), self._update_requested_at)
        if needs_goal or self._is_behind() or shard.now >= quiet_since + settings.suspect_after_ns:
            self._request_update_if_due()
        if self._needs_placements and shard.now >= self._placements_requested_at + settings.ask_ns:
            self._request_placements()
        if self._has_caught_up():
            self._upstream.send(CaughtUp(shard.config.shard, shard.server))
        if self._replication.is_unable:
            self._upstream.send(Suspect(shard.config.shard, shard.config.epoch, shard.server, silent=False))
        self._replication.on_tick()

    def _is_disk_stuck(self) -> bool:
        """Whether a write has waited for the disk for `straggle_after_ns`. Other servers cannot detect that at a
        primary: records that are not durable there were not sent, so no other member is ahead of it."""
        shard, copies = self._shard, self._shard.copies.values()
        if self._meta.durable == self._meta.end and all(copy.durable == copy.end for copy in copies):
            self._disk_progress_at = shard.now
        return shard.now - self._disk_progress_at >= shard.settings.straggle_after_ns

    def _has_caught_up(self) -> bool:
        """SCA-9: whether a joining member durably has all records that were ordered before it was added."""
        shard, config = self._shard, self._shard.config
        if config is None or shard.server not in config.joining or self._joined_at_head is None:
            return False
        ends = shard.chain.ends
        has_links = self._meta.placed >= self._joined_at_head and self._meta.durable >= self._sessions_durable_at
        return has_links and all(copy.whole and copy.durable >= ends.get(copy.id, 1) for copy in shard.copies.values())

    def check(self) -> None:
        """SCA-1. Raises AssertionError."""
        if self._reported is not None:
            assert self._reported.placed <= self._meta.placed <= self._shard.chain.head, "SCA-1: placed is not durable"
            for segment, end in self._reported.ends:
                copy = self._shard.copies.get(segment)
                assert copy is None or end <= copy.durable, "SCA-1: reported more than is durable"
