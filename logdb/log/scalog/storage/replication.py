"""Replication of segments from the primary to the other members, in the order of LSNs (PROTOCOL.md, SCA-2).

The primary sends only records that are durable in its own journal. For each backup it keeps a window: from the last
acknowledged record (`ReplicateAck`) to the last one sent. Records that are not acknowledged in time are sent again, at
first one batch, until the backup answers. A backup accepts records only at the end of its copy.

The newest records are kept in memory and sent to all backups in the same message; slower backups are served from the
journal.

Records that the primary does not deliver (it failed or is silent, or the segment is sealed) are requested from any
other member, a batch at a time, with `ReplicateAck` and `again`.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from logdb.cores.effects import Address, Persist, ProtocolViolation, Send, SendStored
from logdb.log.contract import Record
from logdb.log.requests import PROMPT_BYTES, record_bytes, transfer_ns
from logdb.log.scalog.messages import Replicate, ReplicateAck, SessionsRequest, SessionsResponse
from logdb.log.scalog.storage.member_state import MemberState
from logdb.log.scalog.storage.segment_replica import SegmentReplica


class Backup:
    """The primary's state for another member. `acked`: its durable end (None: not received yet). `sent`: the end of the
    records sent to it.

    `flight`: (end, bytes) of unacknowledged messages. `probing`: it has not answered in time, so it gets one batch at a
    time. `since`: time of its last progress or of the last attempt; `wait_ns`: time from then to the next attempt.
    """

    __slots__ = ("acked", "address", "bytes", "flight", "probing", "sent", "since", "wait_ns")

    def __init__(self, address: Address, wait_ns: int) -> None:
        self.address, self.wait_ns = address, wait_ns
        self.acked: int | None = None
        self.sent = self.since = self.bytes = 0
        self.flight: deque[tuple[int, int]] = deque()
        self.probing = False

    def rewind(self, end: int) -> None:
        """Restart sending at `end`."""
        self.sent = end
        self.flight.clear()
        self.bytes = 0


class Replication:
    """The primary's and the backups' part, for all segments of a member."""

    def __init__(self, shard: MemberState) -> None:
        self._shard = shard
        self._backups: dict[int, Backup] = {}
        self._own_id = 0
        self._recent: deque[tuple[int, list[Record], int]] = deque()
        self._recent_bytes = 0
        self._unreadable_at = 0

    # ---- the primary's part

    def on_appended(self, copy: SegmentReplica, first: int, records: list[Record], size: int) -> None:
        """The primary has written records of `size` bytes to its segment: keep them in memory for the backups."""
        if self._backups:
            self._recent.append((first, records, size))
            self._recent_bytes += size
            while self._recent_bytes > self._shard.settings.fresh_bytes:
                self._recent_bytes -= self._recent.popleft()[2]

    def on_config(self) -> None:
        """Update the backups of the own segment: the other members."""
        own = self._shard.own()
        segment = own.id if own else 0
        if segment != self._own_id:
            self._own_id = segment
            self._backups.clear()
            self._recent.clear()
            self._recent_bytes = self._unreadable_at = 0
        members = {member.server: member.address for member in self._shard.others()} if own else {}
        for server in self._backups.keys() - members.keys():
            del self._backups[server]
        for server, address in members.items():
            backup = self._backups.get(server)
            if backup is None or backup.address != address:
                self._backups[server] = backup = Backup(address, self._shard.settings.resend_ns)
                if own is not None:
                    self._request_ack(own, backup)

    def _request_ack(self, own: SegmentReplica, backup: Backup) -> None:
        """Request the durable end of a backup."""
        backup.since = self._shard.now
        message = Replicate(self._shard.number, own.id, own.durable)
        self._shard.out.append(Send(backup.address, message))

    def on_durable(self, own: SegmentReplica) -> None:
        """Send newly durable records of the own segment. Backups at the same position get the same message."""
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
                return  # the backup will restart its copy at the base in its next configuration
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
                if self._recent and first < self._recent[0][0] < end:
                    end = self._recent[0][0]
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
        recent = self._recent
        if not recent or first < recent[0][0]:
            return None
        durable, limit = own.durable, self._shard.settings.batch_bytes
        records: list[Record] = []
        size, end = 0, first
        for begin, batch, batch_bytes in recent:
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
        new_marks = own.sessions.new_marks
        settled = tuple(new_marks.items())
        new_marks.clear()
        return Replicate(self._shard.number, own.id, first, settled, records), end, size

    def _drop_sent(self, own: SegmentReplica) -> None:
        """Drop records from memory that were sent to every responsive backup."""
        recent = self._recent
        ends = [backup.sent for backup in self._backups.values() if backup.acked is not None and not backup.probing]
        sent = min(ends, default=own.durable)
        while recent and recent[0][0] + len(recent[0][1]) <= sent:
            self._recent_bytes -= recent.popleft()[2]

    def on_replicate_ack(self, message: ReplicateAck, sender: Address) -> None:
        """A member acknowledges records, or requests some: move its window, or send them."""
        shard = self._shard
        copy = shard.copies.get(message.segment)
        if copy is None or message.shard != shard.number:
            return
        if message.segment != self._own_id or message.server not in self._backups:
            first = message.end
            if message.again and copy.base <= first < copy.durable:
                end = copy.reach(first, shard.settings.batch_bytes)
                shard.out.append(SendStored(sender, Replicate(shard.number, copy.id, first), copy.journal, first, end))
            return
        end = message.end
        if end > copy.durable:
            raise ProtocolViolation(
                f"SCA-2: server {message.server} has segment {copy.id} up to {end}, the primary up to {copy.durable}"
            )
        backup = self._backups[message.server]
        acked = backup.acked
        if acked is None or end > acked:
            backup.since, backup.wait_ns, backup.probing = shard.now, shard.settings.resend_ns, False
            backup.acked = end
            if acked is None or end > backup.sent:
                backup.rewind(end)
            flight = backup.flight
            while flight and flight[0][0] <= end:
                backup.bytes -= flight.popleft()[1]
        if message.again and backup.acked == end and shard.now >= backup.since + transfer_ns(backup.bytes):
            backup.rewind(end)
        if not (backup.probing and backup.flight):
            self._fill(copy, backup, {})
            self._drop_sent(copy)

    def on_unreadable(self, effect: SendStored) -> None:
        """Records are damaged, and a backup gets them from another member, if one has them. If they are of the own
        segment, the backup is asked how far it has come, to continue from there."""
        own = self._shard.copies.get(self._own_id)
        if own is not None and effect.journal == own.journal:
            self._unreadable_at = effect.first
            for backup in self._backups.values():
                if backup.address == effect.to:
                    self._request_ack(own, backup)

    @property
    def is_unable(self) -> bool:
        """Whether the next records of the own segment to be ordered are damaged, so that no backup can get them."""
        return self._unreadable_at >= self._shard.chain.ends.get(self._own_id, 1)

    # ---- the backup's part

    def on_replicate(self, message: Replicate, sender: Address) -> None:
        """Accept records at the end of the copy. Records after a gap are rejected, known ones skipped."""
        shard = self._shard
        copy = shard.copies.get(message.segment)
        if copy is None or message.shard != shard.number or copy.id == self._own_id:
            return
        first, records = message.first, message.records
        for client, settled in message.settled:
            copy.sessions.settle(client, settled)
        if first > copy.end:
            self._acknowledge(copy, sender, again=True)
            return
        copy.source = sender
        skipped = copy.end - first
        if skipped >= len(records):
            self._acknowledge(copy, sender, again=False)
            return
        if skipped:
            records = records[skipped:]
        first = copy.extend(records, record_bytes(records))
        copy.add_to_sessions(records, first)
        copy.since = shard.now
        shard.out.append(Persist(copy.journal, first, records))

    def on_backup_durable(self, copy: SegmentReplica) -> None:
        """Acknowledge records that are now durable, and request more if they did not come from the primary.

        Cuts follow the reports. A primary needs acknowledgements only to move its window and to send lost records
        again, so it gets them with the next tick, or for a quarter of the window."""
        if not copy.source:
            return
        again = copy.durable == copy.end and copy.durable < self._target(copy) and not self._is_primary(copy)
        is_large = copy.bytes_between(copy.acknowledged, copy.durable) >= self._shard.settings.window_bytes // 4
        if again or is_large or not self._is_primary(copy):
            self._shard.out.append(Send(copy.source, self._ack(copy, again=again)))

    def _acknowledge(self, copy: SegmentReplica, to: Address, *, again: bool) -> None:
        """Acknowledge. A repetition is requested once in `resend_ns` only: many messages may be in flight."""
        if again:
            if self._shard.now < copy.repeat_requested_at + self._shard.settings.resend_ns:
                return
            copy.repeat_requested_at = self._shard.now
            again = copy.durable == copy.end
        self._shard.out.append(Send(to, self._ack(copy, again=again)))

    def _ack(self, copy: SegmentReplica, *, again: bool) -> ReplicateAck:
        copy.acknowledged = copy.durable
        return ReplicateAck(self._shard.number, self._shard.server, copy.id, copy.durable, again)

    def _target(self, copy: SegmentReplica) -> int:
        """The end that the copy must reach: the sealed end, or the ordered end in the chain."""
        return copy.sealed if copy.sealed is not None else self._shard.chain.ends.get(copy.id, 1)

    def _is_primary(self, copy: SegmentReplica) -> bool:
        """Whether the last records came from the primary of an open segment, which sends more without a request."""
        if copy.sealed is not None:
            return False
        return any(m.server == copy.primary and m.address == copy.source for m in self._shard.others())

    # ---- the clients of records before a copy

    def on_sessions_request(self, message: SessionsRequest, sender: Address) -> None:
        """Send the clients of the records before another member's copy, if they are complete here: a copy that
        lags lacks those of the records that it has not received."""
        shard = self._shard
        copy = shard.copies.get(message.segment)
        if copy is None or message.shard != shard.number or not copy.whole:
            return
        if message.before <= min(copy.end, shard.chain.ends.get(copy.id, 1)):
            copy.sessions.fix(message.before, partial(shard.gsns_of, copy.id))
            for part in copy.sessions.before(message.before):
                shard.out.append(Send(sender, SessionsResponse(shard.number, copy.id, message.before, *part)))

    def on_sessions(self, message: SessionsResponse) -> bool:
        """Add the clients to the sessions. Returns whether the copy has all of them now."""
        copy = self._shard.copies.get(message.segment)
        if copy is None or message.shard != self._shard.number or copy.whole or message.before != copy.began:
            return False
        if message.first not in (0, copy.next_client):
            return False
        copy.sessions.merge(message.marks, message.runs)
        copy.next_client, copy.whole = message.following, not message.following
        copy.clients_requested_at = self._shard.now
        return copy.whole

    # ---- time passes

    def on_tick(self) -> None:
        """Send unacknowledged records again; request records that the primary does not deliver."""
        shard = self._shard
        own = shard.copies.get(self._own_id)
        if own is not None:
            for backup in self._backups.values():
                self._retransmit(own, backup)
        others = [] if shard.is_replaced else shard.sources()
        for copy in shard.copies.values():
            if copy.source and copy.acknowledged < copy.durable:
                shard.out.append(Send(copy.source, self._ack(copy, again=False)))
            asked_at = copy.clients_requested_at
            is_due = asked_at is None or shard.now >= asked_at + shard.settings.ask_ns
            if not copy.whole and others and is_due:
                copy.clients_requested_at = shard.now
                member = shard.rng.choice(others)
                shard.out.append(Send(member.address, SessionsRequest(shard.number, copy.id, copy.began)))
            if copy.id == self._own_id or not others or copy.end != copy.durable or copy.end >= self._target(copy):
                continue
            timeout_ns = shard.settings.ask_ns if copy.sealed is not None else shard.settings.suspect_after_ns
            if shard.now >= copy.since + timeout_ns:
                copy.since = shard.now
                member = shard.rng.choice(others)
                shard.out.append(Send(member.address, self._ack(copy, again=True)))

    def _retransmit(self, own: SegmentReplica, backup: Backup) -> None:
        shard = self._shard
        if backup.acked == own.durable or shard.now < backup.since + backup.wait_ns + transfer_ns(backup.bytes):
            return
        backup.since = shard.now
        backup.wait_ns = min(max(2 * backup.wait_ns, shard.settings.resend_ns), shard.settings.suspect_after_ns)
        if backup.acked is None or backup.acked < own.base:
            self._request_ack(own, backup)
        else:
            backup.probing = True
            backup.rewind(backup.acked)
            self._fill(own, backup, {})
            self._drop_sent(own)

    def check(self) -> None:
        """SCA-2: no backup was sent, or has acknowledged, more than is durable here. Raises AssertionError."""
        own = self._shard.copies.get(self._own_id)
        if own is None:
            return
        for backup in self._backups.values():
            assert backup.sent <= own.durable, "SCA-2: a backup was sent records that are not durable at the primary"
            assert backup.acked is None or backup.acked <= own.durable, "SCA-2: a backup has more than its primary"
