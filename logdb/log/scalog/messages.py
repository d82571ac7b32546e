"""The messages of Scalog, with sender, receiver and meaning. `PROTOCOL.md` describes the protocol as a whole.

All are immutable, use integers for positions, and carry batches. Each is valid on its own: messages may be lost,
duplicated and reordered.
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
    count: int  # type: ignore[assignment]  # hides an unused method of tuple
    first_gsn: int


class Segment(NamedTuple):
    """A log segment: written by one primary, backed up by the other members of its shard.

    `base`: members keep every record from this LSN on, and a new member's copy begins here; it follows trims, at marks
    that the ordering layer keeps. `sealed`: None while the primary accepts appends; else the LSN at which the segment
    ends: records from there on were not ordered and never will be.
    """

    id: int
    primary: int
    base: int
    sealed: int | None


class Member(NamedTuple):
    """A storage server of a shard. `server`: the id that the ordering layer gave it."""

    server: int
    address: Address


class ShardConfig(NamedTuple):
    """The configuration of a shard.

    `epoch` grows with every change of members, segments or state. `quorum`: number of members that must have a record
    (or a link) durably before it counts as durable: all of them, or f + 1 of 2f + 1 where failures are masked.
    `reports_to`: the aggregator that collects its reports, or "" for the ordering layer. `joining`: members that still
    copy records that were ordered before they were added (`CaughtUp`). While there are joining members, no other member
    can be replaced, and former members (`replaced`) stay: they count for no quorum, but serve reads and copies.
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
    """Whether `sender` is the address of this member of the shard."""
    return any(member.server == server and member.address == sender for member in config.members)


class View(NamedTuple):
    """The configuration of the whole log. `version` grows with each change. `oldest`: the oldest readable GSN.

    `next_shard`: the number of the next shard; lower ones that are not in `shards` were trimmed away. `aggregators`:
    (address, parent's address or "" for the ordering layer). `spares`: storage servers without a shard.
    """

    version: int
    shards: tuple[ShardConfig, ...]
    next_shard: int
    oldest: int
    aggregators: tuple[tuple[Address, Address], ...]
    spares: tuple[Member, ...]


# ---- client and storage server


class Append(NamedTuple):
    """Client to primary: append `records`, which have the client's numbers from `sequence` on, to `segment`.

    `settled`: the client never asks for lower numbers again. The server may drop them from its sessions, and must not
    append them.
    """

    client: int
    sequence: int
    settled: int
    segment: int
    records: Sequence[Record]


class Appended(NamedTuple):
    """Primary to client: records are ordered and durable. `ranges`: (first sequence, count, first GSN). `leaving`: the
    shard is being finalized; append to another one from now on."""

    client: int
    segment: int
    ranges: tuple[tuple[int, int, int], ...]
    leaving: bool


class RejectReason(Enum):
    """The reason of a rejection. BUSY: the segment may accept the records later. SEALED: it never will; whether earlier
    copies of the records are in it is decided by `AppendStatus`. NOT_PRIMARY: it is not a segment of this server."""

    BUSY = "busy"
    SEALED = "sealed"
    NOT_PRIMARY = "not primary"


class Rejected(NamedTuple):
    """Server to client: the append of (`client`, `sequence`) to `segment` was rejected."""

    client: int
    sequence: int
    segment: int
    why: RejectReason


class AppendStatusRequest(NamedTuple):
    """Client to any server of the shard: request the results of sequence numbers of `client` in `segment`.

    `sequences`: (first, count).
    """

    client: int
    segment: int
    sequences: tuple[tuple[int, int], ...]


class AppendStatus(NamedTuple):
    """Server to client: results of sequence numbers. `ordered`: (first sequence, count, first GSN); GSN 0: the record
    is in the log, or was before a trim, but this server does not have its GSN. `never`: (first, count): not in the
    segment, which is sealed. Numbers in neither list have no result yet, or not at this server."""

    client: int
    segment: int
    ordered: tuple[tuple[int, int, int], ...]
    never: tuple[tuple[int, int], ...]


class ReadRequest(NamedTuple):
    """Client to any server of the shard: read the record at `gsn`. A parked request is replaced by one with the same
    number of the same sender."""

    request: int
    shard: int
    gsn: int


class ReadResponse(NamedTuple):
    """Server to client: the record, one (tag, payload), in its stored form (`unwrap`). `time`: of its cut (ns)."""

    request: int
    gsn: int
    time: int
    records: Sequence[Record] = ()


class ReadError(Enum):
    """The reason of a failed read. HERE: not at this server; another one may have it. SHARD: not of this shard.
    TRIMMED: trimmed away. READABLE: damaged at this server; another one may have it."""

    HERE = "here"
    SHARD = "shard"
    TRIMMED = "trimmed"
    READABLE = "readable"


class ReadFailed(NamedTuple):
    """Server to client: the request cannot be answered. `oldest`: the oldest readable GSN."""

    request: int
    why: ReadError
    oldest: int
    explanation: str = ""


class Pull(NamedTuple):
    """Client to any server of the shard: read records from `gsn` on with these tags (None: all), at most about
    `max_bytes`. Answered when the log has reached `gsn`, so a subscription is a sequence of pulls. A parked request is
    replaced by one with the same number of the same sender."""

    request: int
    shard: int
    gsn: int
    tags: frozenset[int] | None
    max_bytes: int


class Pulled(NamedTuple):
    """Server to client: `owned` lists all GSNs from `first` to `end` - 1 that belong to this shard: (first GSN, count).

    `records`: those of them with the requested tags, in the order of GSNs; `lsn` is the GSN, payloads are in the stored
    form. `final`: this shard will never own a GSN from `end` on.
    """

    request: int
    shard: int
    first: int
    end: int
    owned: tuple[tuple[int, int], ...]
    final: bool
    records: Sequence[LogRecord] = ()


class TimeRequest(NamedTuple):
    """Client to any server of the shard: request its newest GSN that was ordered at `time` (ns) or before."""

    request: int
    shard: int
    time: int


class TimeResponse(NamedTuple):
    """Server to client: the newest GSN at a time, or the one before the oldest readable one if that is larger. `known`:
    the result covers the log up to this GSN; `END` if the shard is finalized and its chain is complete at the
    server."""

    request: int
    gsn: int
    known: int


# ---- between the members of a shard


class Replicate(NamedTuple):
    """Server to another server of the shard: records of `segment` from `first` on, durable at the sender. Without
    records: a request for `ReplicateAck`.

    `settled`: (client, settled number) pairs that are new.
    """

    shard: int
    segment: int
    first: int
    settled: tuple[tuple[int, int], ...] = ()
    records: Sequence[Record] = ()


class ReplicateAck(NamedTuple):
    """Server to another server of the shard: the sender's copy of `segment` is durable up to `end` - 1.

    `again`: to the primary: records after `end` did not arrive, send them again. To another server: the primary does
    not deliver records after `end`, send a batch of them.
    """

    shard: int
    server: int
    segment: int
    end: int
    again: bool


class SessionsRequest(NamedTuple):
    """Server to another server of the shard: request the clients of the records of `segment` before LSN `before`, where
    the sender's copy begins."""

    shard: int
    segment: int
    before: int


class SessionsResponse(NamedTuple):
    """The clients from `first` to before `following` (0: to the last one) of the records before LSN `before`, complete.
    The others come in messages of their own, in order. `marks`: (client, settled number). `runs`: (client, first
    sequence number, count, LSN, first GSN; -1 if the server does not have it)."""

    shard: int
    segment: int
    before: int
    first: int
    following: int
    marks: tuple[tuple[int, int], ...]
    runs: tuple[tuple[int, int, int, int, int], ...]


class PlacementsRequest(NamedTuple):
    """Server to another server of the shard: request the links after number `after`."""

    shard: int
    server: int
    after: int


class PlacementsResponse(NamedTuple):
    """Server to another server of the shard: links in the order of the chain. `complete`: there are no later ones.

    Records that links up to `trimmed` placed are no longer readable (`oldest`: the oldest readable GSN). At `trimmed`
    the segments were ordered up to `ends`: (segment, LSN after the last record). A chain may begin there.
    """

    shard: int
    trimmed: int
    ends: tuple[tuple[int, int], ...]
    oldest: int
    entries: tuple[ShardCut, ...]
    complete: bool


# ---- storage servers, aggregators and the ordering layer


class ShardCut(NamedTuple):
    """The part of a cut for one shard: a link of the shard's chain.

    `number`: of the cut. `previous`: the number of the link before it (0: this is the first), which reveals missing
    links. `ranges` contain absolute LSNs and GSNs, so a link is applied without earlier cuts. `time`: of the cut (ns).
    """

    number: int
    previous: int
    time: int
    ranges: tuple[Range, ...]


class Register(NamedTuple):
    """Storage server without a shard to the ordering layer. `token`: drawn when the disk was formatted, so a server
    that has lost its disk is a new server."""

    token: int
    address: Address


class RegisterAggregator(NamedTuple):
    """Aggregator that is not in the tree to the ordering layer."""

    address: Address


class Update(NamedTuple):
    """Ordering layer to the servers of a shard, directly or through aggregators: new links and configurations.

    `config`: the newest configuration, or None if the receiver should have it (`epoch`). `links`: in the order of the
    chain. `head`: the number of the chain's newest link. `last`: the newest GSN of the log, which counts only for
    servers that have the chain up to `head`. A server whose chain `links` do not follow, or that lacks the
    configuration of `epoch`, sends `UpdateRequest`. `oldest`: the oldest readable GSN.
    """

    shard: int
    epoch: int
    config: ShardConfig | None
    links: tuple[ShardCut, ...]
    head: int
    last: int
    oldest: int


class Updates(NamedTuple):
    """A batch of updates to a server or an aggregator. `view`: the version of the newest view; an aggregator with an
    older one requests it."""

    view: int
    updates: tuple[Update, ...]


class UpdateRequest(NamedTuple):
    """Storage server to the ordering layer: request updates of its shard after link `after`. `token`: the sender's."""

    token: int
    address: Address
    after: int


class RegistrationReply(NamedTuple):
    """Ordering layer to the storage server with this token. `server`: its id; 0: not registered. `update`: everything
    new for it, with the configuration; None: it has no shard.

    `gone`: the server was removed, because its shard was trimmed away, or because it was replaced and its successor has
    caught up. The token distinguishes a server that has lost its disk from its predecessor at the same address.
    """

    token: int
    server: int
    gone: bool
    update: Update | None


class Report(NamedTuple):
    """Member to its aggregator or the ordering layer: its local cut. Complete and cumulative.

    `ends`: (segment, LSN after the last record that is durable at the member), for every segment that is not sealed.
    `placed`: the number of the last link that is durable at the member, with all before it.
    """

    shard: int
    epoch: int
    server: int
    placed: int
    ends: tuple[tuple[int, int], ...]


class ShardTally(NamedTuple):
    """The positions that are durable on a quorum of the shard as configured in `epoch`. Never becomes false.

    `ends`: (segment, LSN after the last durable record). `placed`: as in `Report`.
    """

    shard: int
    epoch: int
    placed: int
    ends: tuple[tuple[int, int], ...]


class Tally(NamedTuple):
    """Aggregator to its parent: the tallies of the shards below it."""

    address: Address
    shards: tuple[ShardTally, ...]


class Suspect(NamedTuple):
    """Aggregator to the ordering layer: `server` of `shard` is silent (`silent`), or lags behind the others. Of the
    server itself: it cannot read records of its segment that the others lack."""

    shard: int
    epoch: int
    server: int
    silent: bool = True


class ReportRequest(NamedTuple):
    """Leader to a member whose reports are missing, directly and through the other replicas: report to all replicas of
    the ordering layer. A member whose disk is stuck does not answer."""

    shard: int
    server: int


class Unreachable(NamedTuple):
    """Client to the ordering layer: `server` does not answer. A hint for the status, which decides nothing."""

    server: int


class Recovered(NamedTuple):
    """Aggregator to the ordering layer: `server` of a live `shard`, whose segment is sealed, reports again."""

    shard: int
    epoch: int
    server: int


class CaughtUp(NamedTuple):
    """Joining member to the ordering layer, repeated until the configuration confirms it. The sender durably has the
    chain up to the head of an update that had it as a member, every record that the chain places from each segment's
    base on, and the clients of the records before."""

    shard: int
    server: int


class SuspectAggregator(NamedTuple):
    """Child of an aggregator to the ordering layer: the aggregator is suspected."""

    address: Address


# ---- clients, aggregators and the ordering layer


class ViewRequest(NamedTuple):
    """To any replica of the ordering layer: request the view."""

    request: int


class ViewResponse(NamedTuple):
    """Replica of the ordering layer: its view, which may not be the newest."""

    request: int
    view: View


class TailRequest(NamedTuple):
    """To the leader: request a GSN at or after every append that has returned. `allow_follower`: a replica that follows
    the leader may answer, after it has asked the leader."""

    request: int
    allow_follower: bool = False


class TailResponse(NamedTuple):
    """Leader, after it has confirmed that it still leads, or a follower of it, if allowed. `last`: the newest GSN of
    the log. `oldest`: the oldest readable GSN. `view`: the version of the newest view.

    For the status only: `cut`: number of the newest cut. Of the leader: `unreachable`: members that clients reported
    lately; `interval_ns`: minimum time between two cuts.
    """

    request: int
    last: int
    oldest: int
    view: int
    cut: int = 0
    unreachable: tuple[int, ...] = ()
    interval_ns: int = 0


class ChangeRequest(NamedTuple):
    """Client to the leader: carry out `change`. Requests with the same `id`, a random number, are carried out once."""

    id: int
    change: Reconfiguration


class ChangeResponse(NamedTuple):
    """Ordering layer to client: the change was carried out with this result, or rejected with this error."""

    id: int
    result: int
    error: str


class NotLeader(NamedTuple):
    """Replica of the ordering layer to the sender of a request that only the leader answers. `request`: the number of
    the request, or the id of the change. `leader`: "" if unknown."""

    request: int
    leader: Address


# ---- changes of the configuration, in addition to those of `logdb.log.requests`


class TrimLog(NamedTuple):
    """Trim the records before `gsn`. Result: the oldest readable GSN."""

    gsn: int


class SealSegment(NamedTuple):
    """Seal a segment at its ordered end: its primary has failed, and the shard masks that. Result: the segment."""

    segment: int


class OpenSegment(NamedTuple):
    """Open a new segment for a server whose segment was sealed. Result: the segment."""

    server: int


class SetParent(NamedTuple):
    """Let an aggregator report to another one, or to the ordering layer (""). Result: 0."""

    aggregator: Address
    parent: Address


class AssignShard(NamedTuple):
    """Let a shard report to an aggregator, or to the ordering layer (""). Result: the shard."""

    shard: int
    aggregator: Address


class DropAggregator(NamedTuple):
    """Remove a failed aggregator. Its shards report to another leaf, or to its parent. Result: 0."""

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
