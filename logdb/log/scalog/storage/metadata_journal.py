"""The journal "meta" of a storage server: its identity, its shard's configuration, the links of the chain, checkpoints.

Links are collected and written many to a record. A checkpoint contains the whole state and replaces the records before
it. It is written when the journal has grown by the size of the last checkpoint (so the cost is proportional to the
bytes written), and before segment records are trimmed whose clients it must remember.

    tag 1  IDENTITY     u64 token
    tag 2  MEMBER       JSON: server, config
    tag 3  LINKS        links, one after another (`LINK`, then `RANGE` for each range)
    tag 4  CHECKPOINT   u32 length of the JSON, JSON: identity, config, the start of the chain, the copies' sessions and
                        sizes; then the links
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

from logdb.cores.effects import Create, Journal, Persist, ProtocolViolation, SetTimer, Trim
from logdb.log.contract import LogRecord
from logdb.log.requests import ShardState
from logdb.log.scalog.messages import Member, Range, Segment, ShardConfig, ShardCut
from logdb.log.scalog.storage.member_state import MemberState
from logdb.log.scalog.storage.segment_replica import RecordSizes, SegmentReplica
from logdb.log.scalog.storage.sessions import ClientSessions

META: Final = "meta"
IDENTITY, MEMBER, LINKS, CHECKPOINT = 1, 2, 3, 4
TOKEN: Final = Struct("<Q")
LENGTH: Final = Struct("<I")
LINK: Final = Struct("<QQQI")
RANGE: Final = Struct("<QQQQ")
MAX_BUFFERED_LINKS: Final = 256
"""Number of links after which they are written at once."""


class CheckpointedReplica(NamedTuple):
    """A copy in a checkpoint: sessions and sizes of its records before `end`. `whole`: as in `SegmentReplica`."""

    end: int
    whole: bool
    sessions: list[Any]
    sizes: list[list[int]]


class MetadataJournal:
    """Writes and recovers the journal. `placed`: the number of the last link that is durable, with all before it."""

    def __init__(self, shard: MemberState, journal: Journal | None) -> None:
        self._shard = shard
        self._missing = journal is None
        self._first = journal.first if journal else 1
        self._end = self.durable = journal.end if journal else 1
        self.placed = 0
        self._unwritten: list[ShardCut] = []
        self._written: deque[tuple[int, int]] = deque()
        self._bytes = self._checkpoint_bytes = 0
        self._checkpoints: deque[tuple[int, dict[int, int]]] = deque()

    @property
    def end(self) -> int:
        """The number of the next record."""
        return self._end

    # ---- writing

    def _write(self, tag: int, payload: bytes) -> int:
        if self._missing:
            self._missing = False
            self._shard.out.append(Create(META, self._end))
        self._shard.out.append(Persist(META, self._end, [(tag, payload)]))
        self._bytes += len(payload)
        self._end += 1
        return self._end

    def write_identity(self) -> int:
        """Write the token. Returns the end of the journal up to which it must be durable."""
        return self._write(IDENTITY, TOKEN.pack(self._shard.token))

    def write_member(self) -> None:
        """Write the configuration."""
        config = self._shard.config
        assert config is not None
        self._write(MEMBER, json.dumps([self._shard.server, config_state(config)]).encode())

    def add_link(self, link: ShardCut) -> None:
        """Write a link after at most `meta_ns`."""
        if not self._unwritten:
            self._shard.out.append(SetTimer(META, self._shard.now + self._shard.settings.meta_ns))
        self._unwritten.append(link)
        if len(self._unwritten) >= MAX_BUFFERED_LINKS:
            self.flush()

    def flush(self) -> None:
        """Write the collected links, and a checkpoint if the journal has grown enough."""
        if self._unwritten:
            end = self._write(LINKS, b"".join(encoded_links(self._unwritten)))
            self._written.append((end, self._unwritten[-1].number))
            self._unwritten.clear()
        if self._bytes > max(self._shard.settings.checkpoint_bytes, self._checkpoint_bytes):
            self.checkpoint()

    def checkpoint(self) -> int:
        """Write a checkpoint. When it is durable, the records before it are trimmed, in this journal and the segments'.
        Returns the end of the journal up to which it must be durable."""
        shard = self._shard
        chain = shard.chain
        head = {
            "token": shard.token,
            "server": shard.server,
            "config": config_state(shard.config) if shard.config else None,
            "oldest": shard.oldest,
            "trimmed": chain.trimmed,
            "ends": chain.ends_at_trimmed(),
            "copies": {
                copy.id: (copy.durable, copy.whole, copy.sessions.state(copy.durable), copy.sizes.state(copy.durable))
                for copy in shard.copies.values()
            },
        }
        text = json.dumps(head).encode()
        links = b"".join(encoded_links(chain.links(chain.trimmed, len(chain))))
        self._bytes = 0
        end = self._write(CHECKPOINT, LENGTH.pack(len(text)) + text + links)
        self._checkpoint_bytes = self._bytes
        self._bytes = 0
        self._unwritten.clear()
        self._written.append((end, chain.head))
        self._checkpoints.append((end, {copy.id: min(copy.base, copy.durable) for copy in shard.copies.values()}))
        return end

    def persisted(self, end: int) -> bool:
        """The journal is durable up to `end`. Returns whether `placed` has moved."""
        self.durable = max(self.durable, end)
        placed = self.placed
        while self._written and self._written[0][0] <= end:
            self.placed = self._written.popleft()[1]
        while self._checkpoints and self._checkpoints[0][0] <= end:
            at, bases = self._checkpoints.popleft()
            self._shard.out.append(Trim(META, at - 1))
            for segment, lsn in bases.items():
                copy = self._shard.copies.get(segment)
                if copy is not None and copy.first < lsn <= copy.base:
                    copy.first = lsn
                    self._shard.out.append(Trim(copy.journal, lsn))
        return self.placed != placed

    # ---- reading

    def recover(self, journal: Journal) -> dict[int, CheckpointedReplica]:
        """Restore the state from the journal. Returns the copies in its last checkpoint, by segment."""
        shard = self._shard
        records = journal.records
        last = max((record.lsn for record in records if record.tag == CHECKPOINT), default=journal.first)
        covered: dict[int, CheckpointedReplica] = {}
        for record in records[last - journal.first :]:
            covered = self._apply(record) or covered
        shard.refresh()
        self.placed = shard.chain.head
        return covered

    def _apply(self, record: LogRecord) -> dict[int, CheckpointedReplica] | None:
        shard, payload = self._shard, record.payload
        if record.tag == IDENTITY:
            (shard.token,) = TOKEN.unpack(payload)
        elif record.tag == MEMBER:
            shard.server, config = json.loads(payload)
            shard.config = config_of(config)
        elif record.tag == LINKS:
            for link in links_in(payload, 0):
                shard.chain.place(link)
            self._bytes += len(payload)
        elif record.tag == CHECKPOINT:
            (length,) = LENGTH.unpack_from(payload)
            head = json.loads(payload[LENGTH.size : LENGTH.size + length])
            shard.token, shard.server, shard.oldest = head["token"], head["server"], head["oldest"]
            shard.config = config_of(head["config"]) if head["config"] else None
            shard.chain.restart(head["trimmed"], [(segment, end) for segment, end in head["ends"]])
            for link in links_in(payload, LENGTH.size + length):
                shard.chain.place(link)
            self._checkpoint_bytes = len(payload)
            return {int(segment): CheckpointedReplica(*state) for segment, state in head["copies"].items()}
        else:
            raise ProtocolViolation(f"a record of kind {record.tag} in the journal {META}")
        return None


def recovered_copy(segment: Segment, journal: Journal, covered: CheckpointedReplica | None) -> SegmentReplica:
    """The copy of a segment, from its journal and the last checkpoint."""
    first, end = journal.first, journal.end
    if covered is None or covered.end < first:
        copy = SegmentReplica(segment, first, end, RecordSizes(first), ClientSessions(), first == 1)
        copy.recover(journal.records, first)
        return copy
    sessions, sizes = (
        ClientSessions.restored(covered.sessions, min(end, covered.end)),
        RecordSizes.restored(covered.sizes),
    )
    copy = SegmentReplica(segment, first, end, sizes, sessions, covered.whole)
    copy.recover(journal.records[covered.end - first :], covered.end)
    return copy


def encoded_links(links: Iterable[ShardCut]) -> Iterator[bytes]:
    """The bytes of each link."""
    for link in links:
        yield LINK.pack(link.number, link.previous, link.time, len(link.ranges))
        for part in link.ranges:
            yield RANGE.pack(*part)


def links_in(data: bytes, at: int) -> Iterator[ShardCut]:
    """Decode the links in `data`, from byte `at` on."""
    while at < len(data):
        number, previous, time, count = LINK.unpack_from(data, at)
        at += LINK.size
        ranges = tuple(Range(*RANGE.unpack_from(data, at + index * RANGE.size)) for index in range(count))
        at += count * RANGE.size
        yield ShardCut(number, previous, time, ranges)


def config_state(config: ShardConfig) -> list[Any]:
    """A configuration as JSON."""
    return list(config._replace(state=config.state.value))  # type: ignore[arg-type]


def config_of(state: list[Any]) -> ShardConfig:
    """The inverse of `config_state`."""
    config = ShardConfig(*state)
    return config._replace(
        state=ShardState(config.state),
        members=tuple(Member(*member) for member in config.members),
        segments=tuple(Segment(*segment) for segment in config.segments),
        joining=tuple(config.joining),
        replaced=tuple(Member(*member) for member in config.replaced),
    )
