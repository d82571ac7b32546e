"""How a storage server becomes a member, what it reports, and how it follows the ordering layer.

It asks when it has reason to think that it lacks something (a gap in the chain, a configuration that it has not,
nothing heard for a while): first the ordering layer, and other members for links that the ordering layer keeps no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logdb.cores.effects import Address, Create, Drop, Journal, ProtocolViolation, Send, SetTimer, Stop
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
    """`left`: this server is nobody any more."""

    def __init__(
        self, shard: MemberState, meta: MetadataJournal, primary: Primary, replication: Replication, reading: ReadServer
    ) -> None:
        self._shard, self._meta = shard, meta
        self._primary, self._replication, self._reading = primary, replication, reading
        self.left = False
        self._token_at = 0
        self._journals: dict[str, Journal] = {}
        self._head = self._epoch = 0
        self._unlinked = False
        self._asked = self._asked_others = 0
        self._above = UpstreamTracker(shard)
        self._joined_at_head: int | None = None
        self._learned_at = 0
        self._reported: Report | None = None
        self._disk_moved = 0

    # ---- starting

    def start(self, journals: Mapping[str, Journal]) -> None:
        """Be what the journals say."""
        shard = self._shard
        self._disk_moved = shard.now
        self._journals = dict(journals)
        covered = self._meta.recover(journals[META]) if META in journals else {}
        if shard.token == 0:
            shard.token = shard.rng.getrandbits(63) + 1
            self._token_at = self._meta.write_identity()
        for segment in shard.config.segments if shard.config else ():
            self._begin(segment, covered.get(segment.id))
        self._primary.on_ordered()
        shard.refresh()
        self._replication.on_config()
        self._above.begin()
        self._ask()
        if shard.config is not None:
            self._report()
        shard.out.append(SetTimer(TICK, shard.now + shard.settings.heartbeat_ns))

    def _begin(self, segment: Segment, covered: CheckpointedReplica | None = None) -> None:
        """Begin the copy of a segment: with the journal that was found, or at its base.

        A journal may be older than the durable configuration (it goes on), or as good as trimmed (it goes).
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

    # ---- what the ordering layer says

    def on_registration_reply(self, message: RegistrationReply, sender: Address) -> None:
        """Learn who this server is."""
        shard = self._shard
        if message.token != shard.token:
            return
        if message.gone:
            self._leave("this server was replaced, or its shard trimmed away")
            return
        if shard.server and message.server == 0:
            return  # from a replica that has not come so far, or from before
        if shard.server and message.server != shard.server:
            raise ProtocolViolation(f"server {shard.server} is told to be {message.server}")
        self._above.hear(sender)
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
        self._follow(update, sender, asked=True)

    def on_updates(self, message: Updates, sender: Address) -> None:
        """What a leader or an aggregator sends to those below it."""
        for update in message.updates:
            self.on_update(update, sender)

    def on_update(self, update: Update, sender: Address) -> None:
        """News of the shard."""
        config = self._shard.config
        if config is None or update.shard != config.shard or self.left:
            return
        self._above.hear(sender)
        self._follow(update, sender, asked=False)

    def _follow(self, update: Update, sender: Address, *, asked: bool) -> None:
        """Take what is new; ask for what is missing."""
        shard = self._shard
        config = shard.config
        assert config is not None
        if update.shard != config.shard:
            raise ProtocolViolation(f"a member of shard {config.shard} is told to be one of shard {update.shard}")
        known, head = shard.known, shard.chain.head
        if update.config is not None and update.config.epoch > config.epoch:
            self._adopt(update.config)
            if self.left:
                return
            config = shard.config
            assert config is not None
        if asked and update.epoch == config.epoch and shard.server in config.joining:
            # Only a replica knows the head: an aggregator that has just begun tells the configuration without it.
            head_then = self._joined_at_head
            self._joined_at_head = update.head if head_then is None else min(head_then, update.head)
        self._head, self._epoch = max(self._head, update.head), max(self._epoch, update.epoch)
        self._place(update.links)
        shard.trim(update.oldest)
        if shard.chain.head >= update.head:
            shard.known = max(shard.known, update.last)
            if update.epoch == config.epoch and (asked or sender in shard.settings.ordering):
                # All links are here that place segments which this configuration has no more.
                shard.chain.forget_all_but([segment.id for segment in config.segments])
        self._conclude()
        if asked and shard.chain.head < update.head:
            self._unlinked = True
            self._ask_others()
        elif self._lacks_something():
            self._ask_if_due()
        if sender in shard.settings.ordering and (shard.known > known or shard.chain.head > head):
            self._above.report_aggregator()

    def _place(self, links: tuple[ShardCut, ...]) -> None:
        """Link what links (SCA-3)."""
        chain, meta = self._shard.chain, self._meta
        for link in links:
            if link.number > chain.head:
                if link.previous > chain.head:
                    break
                chain.place(link)
                meta.add_link(link)
        self._unlinked = self._unlinked and chain.head < self._head

    def _conclude(self) -> None:
        """The chain, the configuration or the oldest GSN has changed: whoever waits for that is answered."""
        self._shard.refresh()
        self._primary.on_ordered()
        self._reading.wake()

    def _lacks_something(self) -> bool:
        config = self._shard.config
        return self._shard.chain.head < self._head or (config is not None and config.epoch < self._epoch)

    # ---- configurations

    def _adopt(self, config: ShardConfig) -> None:
        """Be a member of the shard as it is configured now, or one that was replaced and keeps what it has, or none."""
        shard = self._shard
        if shard.config is None or shard.config.reports_to != config.reports_to:
            self._above.new_parent()
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
                self._begin(segment)
            else:
                trimmed |= segment.base > copy.base
                copy.base = max(copy.base, segment.base)
                copy.sealed = segment.sealed
        kept = {segment.id for segment in config.segments}
        for gone in shard.copies.keys() - kept:
            del shard.copies[gone]
            shard.out.append(Drop(journal_of(gone)))
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

    def _leave(self, why: str) -> None:
        """Nobody may wait for this server any more."""
        self._primary.leave()
        self._reading.leave()
        self._shard.out.append(Stop(why, wipe=True))
        self.left = True

    # ---- asking

    def _ask(self) -> None:
        """Ask the ordering layer: what is new for me? A spare registers with that, once its token is durable."""
        shard, address = self._shard, self._shard.settings.address
        self._asked = shard.now
        if self._meta.durable < self._token_at:
            return
        if shard.config is None:
            self._above.tell(Register(shard.token, address))
        self._above.tell(UpdateRequest(shard.token, address, shard.chain.head))

    def _ask_if_due(self) -> None:
        if self._shard.now >= self._asked + self._shard.settings.ask_ns:
            self._ask()

    def _ask_others(self) -> None:
        """Ask another member for the links that are missing here."""
        shard = self._shard
        self._asked_others = shard.now
        others = shard.sources()
        if others:
            question = PlacementsRequest(shard.number, shard.server, shard.chain.head)
            shard.out.append(Send(shard.rng.choice(others).address, question))

    def on_ask_placements(self, message: PlacementsRequest, sender: Address) -> None:
        """Give another member the links that it lacks."""
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
        """Take links from another member; where it has trimmed what is missing here, begin behind that."""
        shard = self._shard
        if message.shard != shard.number:
            return
        head = shard.chain.head
        if message.trimmed > head:
            shard.restart_chain(message.trimmed, message.ends)
            self._place(message.entries)
            shard.trim(message.oldest)
            self._meta.checkpoint()
        else:
            self._place(message.entries)
            shard.trim(message.oldest)
        self._conclude()
        if not message.complete and shard.chain.head > head:
            self._asked_others = shard.now
            question = PlacementsRequest(shard.number, shard.server, shard.chain.head)
            shard.out.append(Send(sender, question))

    def on_sessions(self, message: SessionsResponse, sender: Address) -> None:
        """Learn what another member knows of clients. Who has told may be wiped once this one has joined (SCA-14)."""
        if self._replication.on_sessions(message):
            self._learned_at = self._meta.checkpoint()

    # ---- reporting

    def on_ask_report(self, message: ReportRequest, sender: Address) -> None:
        """A leader asks whether this server is well. It may hear what goes by other replicas only."""
        shard = self._shard
        if message == (shard.number, shard.server) and not self._is_disk_stuck():
            self._report()
            if self._reported is not None:
                for address in shard.settings.ordering:
                    shard.out.append(Send(address, self._reported))

    def _report(self) -> None:
        """Report what is durable (SCA-1) to whoever collects it, and past an aggregator that is silent."""
        shard, config = self._shard, self._shard.config
        assert config is not None
        if shard.is_replaced:
            return
        ends = tuple([(copy.id, copy.durable) for copy in shard.copies.values() if copy.sealed is None])
        report = self._reported = Report(config.shard, config.epoch, shard.server, self._meta.placed, ends)
        if config.reports_to:
            shard.out.append(Send(config.reports_to, report))
        if not config.reports_to or self._above.is_parent_silent():
            self._above.tell(report)

    def on_persisted(self, journal: str, end: int) -> None:
        """Something is durable: report it, and send on what may leave now."""
        shard = self._shard
        self._disk_moved = shard.now
        if journal == META:
            waiting = self._meta.durable < self._token_at
            moved = self._meta.persisted(end)
            if waiting and end >= self._token_at:
                self._ask()
            if moved and shard.config is not None:
                self._report()
            return
        copy = shard.copies.get(int(journal.rpartition("-")[2]))
        if copy is None or end <= copy.durable:
            return
        copy.durable = min(end, copy.end)
        # What others wait for leaves first: of a primary its records, of a backup its report.
        if copy.primary == shard.server and copy.sealed is None:
            self._replication.on_durable(copy)
        if copy.sealed is None:
            self._report()
        if copy.primary != shard.server:
            self._replication.on_backup_durable(copy)

    def on_tick(self) -> None:
        """Time has passed: say that this server lives, and try again whatever has had no answer."""
        shard, settings = self._shard, self._shard.settings
        shard.out.append(SetTimer(TICK, shard.now + settings.heartbeat_ns))
        if shard.config is None:
            self._ask_if_due()
            return
        if not self._is_disk_stuck():
            self._report()
        heard = self._above.heard()
        lacks_goal = shard.server in shard.config.joining and self._joined_at_head is None
        if lacks_goal or self._lacks_something() or shard.now >= max(heard, self._asked) + settings.suspect_after_ns:
            self._ask_if_due()
        if self._unlinked and shard.now >= self._asked_others + settings.ask_ns:
            self._ask_others()
        if self._has_caught_up():
            self._above.tell(CaughtUp(shard.config.shard, shard.server))
        self._replication.on_tick()

    def _is_disk_stuck(self) -> bool:
        """Whether something has waited for the disk for long. Nobody else can see that of a primary: what is not
        durable there has been sent to nobody, so no other member is ahead of it."""
        shard, copies = self._shard, self._shard.copies.values()
        if self._meta.durable == self._meta.end and all(copy.durable == copy.end for copy in copies):
            self._disk_moved = shard.now
        return shard.now - self._disk_moved >= shard.settings.straggle_after_ns

    def _has_caught_up(self) -> bool:
        """SCA-9: whether a joining member has, durably, all that was ordered before it came."""
        shard, config = self._shard, self._shard.config
        if config is None or shard.server not in config.joining or self._joined_at_head is None:
            return False
        ends = shard.chain.ends
        has_links = self._meta.placed >= self._joined_at_head and self._meta.durable >= self._learned_at
        return has_links and all(copy.whole and copy.durable >= ends.get(copy.id, 1) for copy in shard.copies.values())

    def check(self) -> None:
        """SCA-1."""
        if self._reported is not None:
            assert self._reported.placed <= self._meta.placed <= self._shard.chain.head, "SCA-1: placed is not durable"
            for segment, end in self._reported.ends:
                copy = self._shard.copies.get(segment)
                assert copy is None or end <= copy.durable, "SCA-1: reported more than is durable"
