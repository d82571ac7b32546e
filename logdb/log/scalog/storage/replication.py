"""How records get from the primary of a segment to the other members, in the order of LSNs (PROTOCOL.md, SCA-2).

The primary sends what is durable in its own journal, never more. For each backup it keeps a window: from the last
record that the backup has acknowledged (`ReplicateAck`) to the last one sent. What is not acknowledged in time is sent
again from there, first one batch, until the backup is heard again. A backup takes records only where its copy ends.

Fresh records are still in memory and go to all backups in the same message; laggards are served out of the journal.

What the primary does not deliver (it is gone, or silent, or the segment is sealed and nobody's any more) a member
fetches from any other one, a batch at a time, by `ReplicateAck` with `again`.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from logdb.cores.effects import Address, Persist, ProtocolViolation, Send, SendStored
from logdb.log.contract import Record
from logdb.log.requests import record_bytes
from logdb.log.scalog.messages import Replicate, ReplicateAck, SessionsRequest, SessionsResponse
from logdb.log.scalog.records import PROMPT_BYTES, transfer_ns
from logdb.log.scalog.storage.member_state import MemberState
from logdb.log.scalog.storage.segment_replica import SegmentReplica


class Backup:
    """What the primary knows of another member: it has `acked` durably (None: not known yet), was sent up to `sent`.

    `flight`: (end, bytes) of what is under way. `probing`: it has not answered, so it gets one batch at a time.
    `since`: when it was last heard or tried; `wait_ns`: after that it is tried again.
    """

    __slots__ = ("acked", "address", "bytes", "flight", "probing", "sent", "since", "wait_ns")

    def __init__(self, address: Address, wait_ns: int) -> None:
        self.address, self.wait_ns = address, wait_ns
        self.acked: int | None = None
        self.sent = self.since = self.bytes = 0
        self.flight: deque[tuple[int, int]] = deque()
        self.probing = False

    def back_to(self, end: int) -> None:
        """Send from `end` on again."""
        self.sent = end
        self.flight.clear()
        self.bytes = 0


class Replication:
    """Both ends of it, for all segments of a member."""

    def __init__(self, shard: MemberState) -> None:
        self._shard = shard
        self._backups: dict[int, Backup] = {}
        self._of = 0
        self._fresh: deque[tuple[int, list[Record], int]] = deque()
        self._fresh_bytes = 0

    # ---- the primary's end

    def fresh(self, copy: SegmentReplica, first: int, records: list[Record], size: int) -> None:
        """The primary has taken records into its segment."""
        if self._backups:
            self._fresh.append((first, records, size))
            self._fresh_bytes += size
            while self._fresh_bytes > self._shard.settings.fresh_bytes:
                self._fresh_bytes -= self._fresh.popleft()[2]

    def on_config(self) -> None:
        """Know the backups of the own segment: the other members."""
        own = self._shard.own()
        segment = own.id if own else 0
        if segment != self._of:
            self._of = segment
            self._backups.clear()
            self._fresh.clear()
            self._fresh_bytes = 0
        members = {member.server: member.address for member in self._shard.others()} if own else {}
        for server in self._backups.keys() - members.keys():
            del self._backups[server]
        for server, address in members.items():
            backup = self._backups.get(server)
            if backup is None or backup.address != address:
                self._backups[server] = backup = Backup(address, self._shard.settings.resend_ns)
                if own is not None:
                    self._greet(own, backup)

    def _greet(self, own: SegmentReplica, backup: Backup) -> None:
        """Ask how far a backup has got."""
        backup.since = self._shard.now
        message = Replicate(self._shard.number, own.id, own.durable)
        self._shard.out.append(Send(backup.address, message))

    def on_durable(self, own: SegmentReplica) -> None:
        """More of the own segment is durable: send it on. Those that stand at the same place get the same message."""
        ready: dict[int, tuple[Replicate, int, int]] = {}
        for backup in self._backups.values():
            if backup.acked is not None and not (backup.probing and backup.flight):
                self._fill(own, backup, ready)
        self._drop_sent(own)

    def _fill(self, own: SegmentReplica, backup: Backup, ready: dict[int, tuple[Replicate, int, int]]) -> None:
        settings, out = self._shard.settings, self._shard.out
        if backup.acked == backup.sent:
            backup.since = self._shard.now
        while backup.sent < own.durable and backup.bytes < settings.window_bytes:
            first = backup.sent
            if first < own.base:
                return  # its copy will begin anew, at the base that its next configuration says
            entry = ready.get(first)
            if entry is None:
                entry = self._from_memory(own, first)
                if entry is not None:
                    ready[first] = entry
            if entry is not None:
                message, end, size = entry
                out.append(Send(backup.address, message))
            else:
                end = own.reach(first, settings.batch_bytes)
                if self._fresh and first < self._fresh[0][0] < end:
                    end = self._fresh[0][0]
                size = own.bytes_between(first, end)
                message = Replicate(self._shard.number, own.id, first)
                out.append(SendStored(backup.address, message, own.journal, first, end))
            backup.sent = end
            backup.flight.append((end, size))
            backup.bytes += size
            if size > PROMPT_BYTES:
                backup.since = self._shard.now
            if backup.probing:
                break

    def _from_memory(self, own: SegmentReplica, first: int) -> tuple[Replicate, int, int] | None:
        """A message with durable records from `first` on, its end and size; None if they are not in memory."""
        fresh = self._fresh
        if not fresh or first < fresh[0][0]:
            return None
        durable, limit = own.durable, self._shard.settings.batch_bytes
        records: list[Record] = []
        size, end = 0, first
        for begin, batch, batch_bytes in fresh:
            if begin + len(batch) <= first:
                continue
            if begin >= durable or size >= limit:
                break
            if begin < end or begin + len(batch) > durable:
                batch = batch[max(0, end - begin) : durable - begin]
                batch_bytes = record_bytes(batch)
            records = records + batch if records else batch
            size += batch_bytes
            end += len(batch)
        news = own.sessions.news
        settled = tuple(news.items())
        news.clear()
        return Replicate(self._shard.number, own.id, first, settled, records), end, size

    def _drop_sent(self, own: SegmentReplica) -> None:
        """Forget fresh records that every backup that answers has been sent."""
        fresh = self._fresh
        heard = [backup.sent for backup in self._backups.values() if backup.acked is not None and not backup.probing]
        sent = min(heard, default=own.durable)
        while fresh and fresh[0][0] + len(fresh[0][1]) <= sent:
            self._fresh_bytes -= fresh.popleft()[2]

    def on_replicate_ack(self, message: ReplicateAck, sender: Address) -> None:
        """A member says how far its copy goes: open its window, or serve it what it asks for."""
        shard = self._shard
        copy = shard.copies.get(message.segment)
        if copy is None or message.shard != shard.number:
            return
        if message.segment != self._of or message.server not in self._backups:
            first = message.end
            if message.again and copy.base <= first < copy.durable:
                end = copy.reach(first, shard.settings.batch_bytes)
                shard.out.append(SendStored(sender, Replicate(shard.number, copy.id, first), copy.journal, first, end))
            return
        end = message.end
        if end > copy.durable:
            raise ProtocolViolation(f"SCA-2: server {message.server} has {end} of segment {copy.id}, I {copy.durable}")
        backup = self._backups[message.server]
        acked = backup.acked
        if acked is None or end > acked:
            backup.since, backup.wait_ns, backup.probing = shard.now, shard.settings.resend_ns, False
            backup.acked = end
            if acked is None or end > backup.sent:
                backup.back_to(end)
            flight = backup.flight
            while flight and flight[0][0] <= end:
                backup.bytes -= flight.popleft()[1]
        if message.again and backup.acked == end and shard.now >= backup.since + transfer_ns(backup.bytes):
            backup.back_to(end)
        if not (backup.probing and backup.flight):
            self._fill(copy, backup, {})
            self._drop_sent(copy)

    # ---- the backup's end

    def on_replicate(self, message: Replicate, sender: Address) -> None:
        """Take records where the copy ends, and nowhere else."""
        shard = self._shard
        copy = shard.copies.get(message.segment)
        if copy is None or message.shard != shard.number or copy.id == self._of:
            return
        first, records = message.first, message.records
        for client, settled in message.settled:
            copy.sessions.settle(client, settled)
        if first > copy.end:
            self._held(copy, sender, again=True)
            return
        copy.source = sender
        skipped = copy.end - first
        if skipped >= len(records):
            self._held(copy, sender, again=False)
            return
        if skipped:
            records = records[skipped:]
        first = copy.take(records, record_bytes(records))
        copy.learn(records, first)
        copy.since = shard.now
        shard.out.append(Persist(copy.journal, first, records))

    def on_backup_durable(self, copy: SegmentReplica) -> None:
        """What was taken is durable: say so, and ask on if it did not come from the primary."""
        if copy.source:
            again = copy.durable == copy.end and copy.durable < self._target(copy) and not self._is_primary(copy)
            self._shard.out.append(Send(copy.source, self._message(copy, again=again)))

    def _held(self, copy: SegmentReplica, to: Address, *, again: bool) -> None:
        """Acknowledge; ask for a repetition only once in a while, as much may be under way."""
        if again:
            if self._shard.now < copy.asked_again + self._shard.settings.resend_ns:
                return
            copy.asked_again = self._shard.now
            again = copy.durable == copy.end
        self._shard.out.append(Send(to, self._message(copy, again=again)))

    def _message(self, copy: SegmentReplica, *, again: bool) -> ReplicateAck:
        copy.told = copy.durable
        return ReplicateAck(self._shard.number, self._shard.server, copy.id, copy.durable, again)

    def _target(self, copy: SegmentReplica) -> int:
        """How far the copy must go, as far as this member knows."""
        return copy.sealed if copy.sealed is not None else self._shard.chain.ends.get(copy.id, 1)

    def _is_primary(self, copy: SegmentReplica) -> bool:
        """Whether the last records came from the primary of an open segment, which sends more by itself."""
        if copy.sealed is not None:
            return False
        return any(m.server == copy.primary and m.address == copy.source for m in self._shard.others())

    # ---- what a copy that began late cannot know from its records

    def on_ask_sessions(self, message: SessionsRequest, sender: Address) -> None:
        """Tell which records of clients were before another one's copy; only who knows all of it and where they are."""
        shard = self._shard
        copy = shard.copies.get(message.segment)
        if copy is None or message.shard != shard.number or not copy.whole:
            return
        if message.before <= shard.chain.ends.get(copy.id, 1):
            copy.sessions.fix(message.before, partial(shard.gsns_of, copy.id))
            known = copy.sessions.known_before(message.before)
            shard.out.append(Send(sender, SessionsResponse(shard.number, copy.id, message.before, *known)))

    def on_sessions(self, message: SessionsResponse) -> bool:
        """Learn it. Returns whether it was news."""
        copy = self._shard.copies.get(message.segment)
        if copy is None or message.shard != self._shard.number or copy.whole or message.before != copy.began:
            return False
        copy.sessions.merge(message.marks, message.runs)
        copy.whole = True
        return True

    # ---- time passes

    def on_tick(self) -> None:
        """Send again what was not acknowledged; fetch what the primary does not deliver."""
        shard = self._shard
        own = shard.copies.get(self._of)
        if own is not None:
            for backup in self._backups.values():
                self._try_again(own, backup)
        others = [] if shard.is_replaced else shard.sources()
        for copy in shard.copies.values():
            if not copy.whole and others:
                member = shard.rng.choice(others)
                shard.out.append(Send(member.address, SessionsRequest(shard.number, copy.id, copy.began)))
            if copy.id == self._of or not others or copy.end != copy.durable or copy.end >= self._target(copy):
                continue
            patience = shard.settings.ask_ns if copy.sealed is not None else shard.settings.suspect_after_ns
            if shard.now >= copy.since + patience:
                copy.since = shard.now
                member = shard.rng.choice(others)
                shard.out.append(Send(member.address, self._message(copy, again=True)))

    def _try_again(self, own: SegmentReplica, backup: Backup) -> None:
        shard = self._shard
        if backup.acked == own.durable or shard.now < backup.since + backup.wait_ns + transfer_ns(backup.bytes):
            return
        backup.since = shard.now
        backup.wait_ns = min(max(2 * backup.wait_ns, shard.settings.resend_ns), shard.settings.suspect_after_ns)
        if backup.acked is None or backup.acked < own.base:
            self._greet(own, backup)
        else:
            backup.probing = True
            backup.back_to(backup.acked)
            self._fill(own, backup, {})
            self._drop_sent(own)

    def check(self) -> None:
        """SCA-2: nobody has been sent, or has acknowledged, more than is durable here."""
        own = self._shard.copies.get(self._of)
        if own is None:
            return
        for backup in self._backups.values():
            assert backup.sent <= own.durable, "SCA-2: a backup was sent what is not durable at the primary"
            assert backup.acked is None or backup.acked <= own.durable, "SCA-2: a backup has more than its primary"
