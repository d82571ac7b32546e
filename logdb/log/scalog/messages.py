"""Every message of Scalog, who sends it and what it promises. `PROTOCOL.md` tells how they work together.

All are immutable, hold positions as integers and carry batches. None relies on another to have arrived, or to arrive
once, or in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from logdb.cores.effects import Address
from logdb.log.contract import LogRecord, Record
from logdb.log.requests import AddReplica, AddShard, FinalizeShard, ReplaceServer, SetCutInterval, ShardState

# ---- positions and configuration


class Range(NamedTuple):
    """Records `first_lsn` to `first_lsn` + `count` - 1 of a segment have the GSNs from `first_gsn` on."""

    segment: int
    first_lsn: int
    count: int  # type: ignore[assignment]  # a tuple has a method of that name, which nobody calls
    first_gsn: int


class Segment(NamedTuple):
    """A log segment: written by one primary, backed up by the other members of its shard.

    `base`: members keep every record from here on, and a new member's copy begins here; it follows trims, as near as
    the ordering layer remembers. `sealed`: None while the primary may append; else the LSN at which it ends: records
    from there on were never ordered and never will be.
    """

    id: int
    primary: int
    base: int
    sealed: int | None


class Member(NamedTuple):
    """A storage server of a shard. `server` is the id that the ordering layer gave it, `address` where it is."""

    server: int
    address: Address


class ShardConfig(NamedTuple):
    """A shard as the ordering layer has it.

    `epoch` grows with every change of members, segments or state. `quorum`: so many members must hold a record (or a
    placement) before it counts as durable: all of them, or f + 1 of 2f + 1 where failures are masked. `reports_to`:
    the aggregator that collects its reports, or "" for the ordering layer itself. `joining`: members that have still to
    copy what was ordered before they came (`CaughtUp`); while there are any, nobody else can be replaced, and those
    that were (`replaced`) stay: they count for nothing, but what they hold can be read and copied.
    """

    shard: int
    epoch: int
    state: ShardState
    quorum: int
    members: tuple[Member, ...]
    segments: tuple[Segment, ...]
    reports_to: Address
    joining: tuple[int, ...] = ()
    replaced: tuple[Member, ...] = ()

    @property
    def holders(self) -> tuple[Member, ...]:
        """All servers that have records of the shard."""
        return self.members + self.replaced


def is_of(config: ShardConfig, server: int, sender: Address) -> bool:
    """Whether the sender is this server of the shard."""
    return any(member.server == server and member.address == sender for member in config.members)


class View(NamedTuple):
    """The whole log's configuration. `version` grows with each change; `oldest` is the oldest GSN that can be read.

    `next_shard`: shards from this number on have never existed; those below it that are not in `shards` were
    trimmed away. `aggregators`: (its address, its parent's or "" for the ordering layer). `spares`: storage servers
    that wait for a shard.
    """

    version: int
    shards: tuple[ShardConfig, ...]
    next_shard: int
    oldest: int
    aggregators: tuple[tuple[Address, Address], ...]
    spares: tuple[Member, ...]


# ---- client and storage server


class Append(NamedTuple):
    """Client to primary: append `records` to `segment`; they have the client's numbers from `sequence` on.

    The client has settled everything below `settled`: the server may forget it and must refuse it.
    """

    client: int
    sequence: int
    settled: int
    segment: int
    records: Sequence[Record]


class Appended(NamedTuple):
    """Primary to client: ordered and durable. `ranges`: (first sequence, count, first GSN). `leaving`: the shard is
    being finalized, go elsewhere with what comes next."""

    client: int
    segment: int
    ranges: tuple[tuple[int, int, int], ...]
    leaving: bool


class RejectReason(Enum):
    """Why an append was not taken. BUSY: the same segment may take it later. SEALED: it never will, and the records
    were not and will never be ordered there unless a fate says otherwise. NOT_PRIMARY: not its segment."""

    BUSY = "busy"
    SEALED = "sealed"
    NOT_PRIMARY = "not primary"


class Rejected(NamedTuple):
    """Server to client: the append of (`client`, `sequence`) to `segment` was not taken."""

    client: int
    sequence: int
    segment: int
    why: RejectReason


class AppendStatusRequest(NamedTuple):
    """Client to any member: what became of these of my records in `segment`? `sequences`: (first, count) runs."""

    client: int
    segment: int
    sequences: tuple[tuple[int, int], ...]


class AppendStatus(NamedTuple):
    """Member to client. `ordered`: (first sequence, count, first GSN); GSN 0: it is in the log, or was before a trim,
    and this member does not know where. `never`: (first, count): not in the segment, which is sealed. What is in
    neither is not decided yet, or not known here."""

    client: int
    segment: int
    ordered: tuple[tuple[int, int, int], ...]
    never: tuple[tuple[int, int], ...]


class ReadRequest(NamedTuple):
    """Client to any member: the record at `gsn`. A parked one is replaced by the same request of the same sender."""

    request: int
    shard: int
    gsn: int


class ReadResponse(NamedTuple):
    """The record asked for (one (tag, payload)), as it is stored: `unwrap` it. `time`: its cut's."""

    request: int
    gsn: int
    time: int
    records: Sequence[Record] = ()


class ReadError(Enum):
    """Why there is no record. HERE: this replica lacks it, ask another one. SHARD: it is not of this shard.
    TRIMMED: it is gone. READABLE: its bytes are damaged here, ask another one."""

    HERE = "here"
    SHARD = "shard"
    TRIMMED = "trimmed"
    READABLE = "readable"


class ReadFailed(NamedTuple):
    """There is no record to give. `oldest`: the oldest GSN that can be read."""

    request: int
    why: ReadError
    oldest: int
    explanation: str = ""


class Pull(NamedTuple):
    """Client to any member: records of this shard from `gsn` on, of these tags (None: all), about `max_bytes` of
    them, or less. Answered when the log has got to `gsn`, so a subscription is one pull after another. A parked one is
    replaced by the same request of the same sender."""

    request: int
    shard: int
    gsn: int
    tags: frozenset[int] | None
    max_bytes: int


class Pulled(NamedTuple):
    """Member to client: `owned` says which GSNs `first` <= gsn < `end` are this shard's: (first GSN, count).

    `records`: those of them with the tags that were asked for, by GSN, which is their `lsn`; payloads as they are
    stored. `final`: this shard will never own a GSN from `end` on.
    """

    request: int
    shard: int
    first: int
    end: int
    owned: tuple[tuple[int, int], ...]
    final: bool
    records: Sequence[LogRecord] = ()


class TimeRequest(NamedTuple):
    """Client to any member: the newest GSN of this shard that was ordered at `time` or before."""

    request: int
    shard: int
    time: int


class TimeResponse(NamedTuple):
    """`gsn`, 0 if there is none; right for the log up to `known`, which is `END` when the shard is finalized and its
    chain is complete here."""

    request: int
    gsn: int
    known: int


# ---- between the members of a shard


class Replicate(NamedTuple):
    """Records of `segment` from `first` on, which are durable at whoever sends them. Without records: what have you?

    `settled`: (client, everything below this has been settled in this segment), as far as it is news.
    """

    shard: int
    segment: int
    first: int
    settled: tuple[tuple[int, int], ...] = ()
    records: Sequence[Record] = ()


class ReplicateAck(NamedTuple):
    """Member to member: my copy of `segment` is durable up to `end` - 1. What follows may be sent.

    `again`: what was sent after `end` has not come (to the primary), or: I cannot get it from the primary (to others,
    which send a batch of what they have, whether the segment is sealed or not).
    """

    shard: int
    server: int
    segment: int
    end: int
    again: bool


class SessionsRequest(NamedTuple):
    """Member to member: which records of clients are in `segment` before LSN `before`, where my copy begins?"""

    shard: int
    segment: int
    before: int


class SessionsResponse(NamedTuple):
    """All that can be known of them. `marks`: (client, everything below this has been settled). `runs`: (client, first
    sequence number, count, LSN, first GSN or -1 if that is not known here)."""

    shard: int
    segment: int
    before: int
    marks: tuple[tuple[int, int], ...]
    runs: tuple[tuple[int, int, int, int, int], ...]


class PlacementsRequest(NamedTuple):
    """Member to member: the placements of our shard with the numbers after `after`."""

    shard: int
    server: int
    after: int


class PlacementsResponse(NamedTuple):
    """Entries of the shard's chain in their order; `complete`: there were no more.

    Nothing that links up to `trimmed` placed can be read any more (`oldest` is the oldest GSN that can); with them, the
    segments had been ordered up to `ends`: (segment, LSN after the last one). A chain may begin there.
    """

    shard: int
    trimmed: int
    ends: tuple[tuple[int, int], ...]
    oldest: int
    entries: tuple[ShardCut, ...]
    complete: bool


# ---- storage servers, aggregators and the ordering layer


class ShardCut(NamedTuple):
    """One cut, as far as it concerns one shard: a link of the shard's chain.

    `number`: the cut's. `previous`: the number of the link before it (0: this is the first), so one that was missed
    shows. The ranges say their LSNs and GSNs themselves, so no memory of earlier cuts is needed to place them.
    """

    number: int
    previous: int
    time: int
    ranges: tuple[Range, ...]


class Register(NamedTuple):
    """A storage server that has no shard yet, to the ordering layer. `token`: drawn when its disk was formatted: a
    server that has lost its disk is a new one."""

    token: int
    address: Address


class RegisterAggregator(NamedTuple):
    """An aggregator that waits for work, to the ordering layer."""

    address: Address


class Update(NamedTuple):
    """Ordering layer to a shard (down the tree of aggregators): what is new.

    `config`: the shard's newest one, or None if it is still the one of `epoch`. `links`: in the order of the chain.
    `head`: the number of the chain's newest link: only who has the chain up to it may take `last`, the newest GSN of
    the log, for what it knows. Who cannot link `links` to what it has, or lacks the config of `epoch`, asks with
    `UpdateRequest`. `oldest`: the oldest readable GSN.
    """

    shard: int
    epoch: int
    config: ShardConfig | None
    links: tuple[ShardCut, ...]
    head: int
    last: int
    oldest: int


class Updates(NamedTuple):
    """A batch of updates on its way down. `view`: its version; an aggregator without that view asks for it."""

    view: int
    updates: tuple[Update, ...]


class UpdateRequest(NamedTuple):
    """Member to the ordering layer: what is new for my shard after link `after`? `token` says who I am."""

    token: int
    address: Address
    after: int


class RegistrationReply(NamedTuple):
    """Ordering layer to the storage server with this token: you are server `server`; 0: not registered. `update`:
    all that is new for it, with the config; None: it has no shard.

    `gone`: its shard was trimmed away, or it was replaced and its successor has caught up: it is nobody any more. (The
    token tells a server that has lost its disk from its predecessor at the same address.)
    """

    token: int
    server: int
    gone: bool
    update: Update | None


class Report(NamedTuple):
    """Storage server to aggregator or ordering layer: my local cut. Self-sufficient, cumulative.

    `ends`: (segment, the LSN after the last record of it that is durable here), for every segment that is not sealed.
    `placed`: the number of the last link that is durable here, with all before it.
    """

    shard: int
    epoch: int
    server: int
    placed: int
    ends: tuple[tuple[int, int], ...]


class ShardTally(NamedTuple):
    """What is durable on a quorum of the shard as it was configured in `epoch`. A true statement for ever.

    `ends`: (segment, LSN after the last durable record).
    """

    shard: int
    epoch: int
    placed: int
    ends: tuple[tuple[int, int], ...]


class Tally(NamedTuple):
    """Aggregator to its parent: the merged local cuts of its shards."""

    address: Address
    shards: tuple[ShardTally, ...]


class Suspect(NamedTuple):
    """Aggregator to the ordering layer: `server` of `shard` has reported nothing for long (`silent`), or lags far."""

    shard: int
    epoch: int
    server: int
    silent: bool = True


class ReportRequest(NamedTuple):
    """Leader to a member that its leaf has not heard for long, directly and by the other replicas: report to all
    replicas of the ordering layer. A member whose disk is stuck does not."""

    shard: int
    server: int


class Unreachable(NamedTuple):
    """Client to the ordering layer: `server` does not answer me. A hint for people: nothing is decided by it."""

    server: int


class Recovered(NamedTuple):
    """Leaf to the ordering layer: `server` of a live `shard`, its segment sealed, reports again without lagging."""

    shard: int
    epoch: int
    server: int


class CaughtUp(NamedTuple):
    """Joining member to the ordering layer, again until the configuration shows it: my chain is durable up to the head
    of an update that had me as a member, and so is every record that it places, from each segment's base on; and I
    know which records of clients were before that."""

    shard: int
    server: int


class SuspectAggregator(NamedTuple):
    """A child to the ordering layer: its aggregator seems to have failed."""

    address: Address


# ---- anybody and the ordering layer


class ViewRequest(NamedTuple):
    """The newest configuration, please."""

    request: int


class ViewResponse(NamedTuple):
    """The configuration as this replica of the ordering layer has it."""

    request: int
    view: View


class TailRequest(NamedTuple):
    """A GSN at or after every append that has returned, please."""

    request: int


class TailResponse(NamedTuple):
    """`last`: the newest GSN of the log. `oldest`: the oldest readable one. `view`: the version of the newest view.
    All as a leader has them that was asked, and made sure that it leads, after the question was put. `cut`: the number
    of the newest cut, for people: two answers tell the rate. `unreachable`: members that clients did not reach lately,
    though the ordering layer does; `interval_ns`: the least time between two cuts; both for people, too."""

    request: int
    last: int
    oldest: int
    view: int
    cut: int = 0
    unreachable: tuple[int, ...] = ()
    interval_ns: int = 0


class ChangeRequest(NamedTuple):
    """A client to the ordering layer: carry out `change`, once, whatever happens. `id` is a random number."""

    id: int
    change: Reconfiguration


class ChangeResponse(NamedTuple):
    """The change was carried out, with this result, or refused with an error."""

    id: int
    result: int
    error: str


class NotLeader(NamedTuple):
    """A replica of the ordering layer to who asked it for what only the leader does. `request`: the question's, or
    the id of the change. `leader`: "" if not known."""

    request: int
    leader: Address


# ---- changes of the configuration beside those of `logdb.log.requests`, which clients ask for and the ordering layer
# decides


class TrimLog(NamedTuple):
    """Records before `gsn` are needed no more. Result: the oldest readable GSN."""

    gsn: int


class SealSegment(NamedTuple):
    """The primary of a segment has failed and its shard masks that: end the segment as it is ordered. Result: it."""

    segment: int


class OpenSegment(NamedTuple):
    """Server `server`, whose segment was sealed while it was away, is back: a new segment for it. Result: it."""

    server: int


class SetParent(NamedTuple):
    """Have an aggregator report to another one ("" the ordering layer). Result: 0."""

    aggregator: Address
    parent: Address


class AssignShard(NamedTuple):
    """Have a shard report to an aggregator ("" the ordering layer). Result: the shard."""

    shard: int
    aggregator: Address


class DropAggregator(NamedTuple):
    """The aggregator has failed: what reported to it reports to a spare one, or to its parent. Result: 0."""

    aggregator: Address


Reconfiguration = (
    AddShard
    | FinalizeShard
    | ReplaceServer
    | AddReplica
    | TrimLog
    | SealSegment
    | OpenSegment
    | SetParent
    | AssignShard
    | DropAggregator
    | SetCutInterval
)
