"""The messages of Ziplog. `PROTOCOL.md` describes how they work together.

Messages may be lost, duplicated and reordered. Stored records have a header in front of their payload (`records.py`):
their GSN, client and sequence number. A (shard, view) pair in a message is the one for which the sender has sent it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from logdb.cores.effects import Address
from logdb.log.contract import LogRecord, Record
from logdb.log.requests import ShardState
from logdb.log.ziplog.epochs import NO_EPOCH, Epoch

# ---- the configuration


class Member(NamedTuple):
    """A server of a shard. `valid`: of what it had before the view began, it keeps records up to this GSN. `is_synced`:
    it has all that this view began with. `is_complete`: it was synced in this view, or in an earlier one since which no
    view was established, so the next view may begin from it (ZIP-10)."""

    server: int
    address: Address
    valid: int
    is_synced: bool
    is_complete: bool


class Spare(NamedTuple):
    """A server without a shard."""

    server: int
    address: Address


class ShardConfig(NamedTuple):
    """A shard in a view. `members`: the first is the primary. `since`: the version in which this view joined the set, 0
    if it has not; `first`: the base of its first epoch. `bound`: the shard has no records from this GSN on, unless it
    joins the set again; 0: it is in the set. `is_draining`: it never joins again. `former`: complete servers that are
    not members any more; they keep what they have until the view is established, which is when all members are synced.
    """

    shard: int
    view: int
    members: tuple[Member, ...]
    since: int
    first: int
    bound: int
    is_draining: bool
    is_drained: bool
    former: tuple[Member, ...] = ()

    @property
    def state(self) -> ShardState:
        """As `logdb.log.requests` describes it. A shard that is being drained accepts no appends any more."""
        return ShardState.FINALIZED if self.is_draining else ShardState.LIVE

    @property
    def is_established(self) -> bool:
        """Whether the view may acknowledge and refuse records, and make them stable (ZIP-10)."""
        return all(member.is_synced for member in self.members)

    @property
    def joining(self) -> tuple[int, ...]:
        """Members that still copy records."""
        return tuple([member.server for member in self.members if not member.is_synced])

    @property
    def replaced(self) -> tuple[Member, ...]:
        """Servers that were replaced, and keep what they have until the members have copied it."""
        return self.former

    @property
    def holders(self) -> tuple[Member, ...]:
        """Members have the records."""
        return self.members

    @property
    def is_in_set(self) -> bool:
        """Whether it may use the newest epoch."""
        return self.since > 0 and self.bound == 0

    @property
    def has_records(self) -> bool:
        """Whether it may have some: it has joined the set once."""
        return self.bound != 1


class View(NamedTuple):
    """The configuration. `version`: the number of decisions of the MMS that changed it. `set_version`: of the set of
    shards; `base`: the first GSN of its first epoch. `left`: shards that have left the set have no GSN above this one
    from then. `origin`: when the log began, ns since the epoch."""

    version: int
    shards: tuple[ShardConfig, ...]
    next_shard: int
    oldest: int
    spares: tuple[Spare, ...]
    set_version: int
    base: int
    left: int
    origin: int
    interval_ns: int


NO_VIEW = View(0, (), 1, 1, (), 0, 1, 0, 0, 0)


# ---- storage servers and the MMS


class Report(NamedTuple):
    """Storage server to all replicas of the MMS, with each heartbeat and when something changes: its state.

    `server`: its number, 0 before it has one; `nonce`: of its disk. `shard`, `view`: that it has adopted, 0 if none.
    `is_frozen`: it accepts nothing in this view; `stable`: how far it knows the order to be stable. `is_synced`: it has
    all that earlier views have. `epoch`, `version`: the base and version of the epoch that it has entered. `change`:
    the newest configuration that it has. `records`: that its shard, which it leads, was sent since the last report.
    `wanted`: a record waits for an epoch with a GSN above this one; 0: none does. `suspects`: silent members.
    `may_lack`: it has acknowledged records that it had not synced, and has restarted since (ZIP-12).
    """

    server: int
    nonce: int
    shard: int
    view: int
    is_frozen: bool
    is_synced: bool
    stable: int
    epoch: int
    version: int
    change: int
    records: int
    wanted: int
    suspects: tuple[int, ...]
    may_lack: bool = False


class Update(NamedTuple):
    """MMS leader to a storage server: the configuration after `change`, as far as it concerns this server.

    `server`: its number, 0 if it is not registered yet: it reports `change` then, so that it is (ZIP-11). `nonce`: of
    the disk. `config`: its shard, None if it has none. `opened`: shards that joined the set in this version or before
    may accept records. `left`: as in `View`.
    """

    change: int
    server: int
    nonce: int
    config: ShardConfig | None
    epoch: Epoch = NO_EPOCH
    opened: int = 0
    oldest: int = 1
    left: int = 0


class Freeze(NamedTuple):
    """MMS leader to a member: accept nothing in this view any more, and report."""

    shard: int
    view: int


# ---- inserting


class Placed(NamedTuple):
    """The GSNs of the record with the sequence number `first` and of those behind it."""

    first: int
    gsns: tuple[int, ...]


def placed_runs(places: Iterable[tuple[int, int]]) -> tuple[Placed, ...]:
    """(sequence number, GSN) of records, as runs of numbers that follow each other."""
    runs: list[tuple[int, list[int]]] = []
    for sequence, gsn in places:
        if runs and sequence == runs[-1][0] + len(runs[-1][1]):
            runs[-1][1].append(gsn)
        else:
            runs.append((sequence, [gsn]))
    return tuple([Placed(first, tuple(gsns)) for first, gsns in runs])


class Insert(NamedTuple):
    """Client to all members: place `records`, which have the sequence numbers from `sequence` on, behind `floor`.

    `version`: place nothing if a later version than this was entered; 0: in any. The client does not ask again for
    numbers below `settled`.
    """

    client: int
    shard: int
    view: int
    sequence: int
    settled: int
    floor: int
    version: int
    records: Sequence[Record]


class Inserted(NamedTuple):
    """Member to client: it has these records durably, in this view. `is_stable`: all members have them there."""

    client: int
    shard: int
    view: int
    placed: tuple[Placed, ...]
    is_stable: bool

    @property
    def places(self) -> list[tuple[int, int]]:
        """(sequence number, GSN) of each record."""
        return [place for first, gsns in self.placed for place in enumerate(gsns, first)]


class Refused(NamedTuple):
    """Primary to client: of an `Insert` for this `view`, which has ended: (first number, count) of its records that are
    not in this shard, and never will be."""

    client: int
    shard: int
    view: int
    numbers: tuple[tuple[int, int], ...]


class Stale(NamedTuple):
    """Member to client: it has entered `version`, and has placed nothing of the `Insert` with this number."""

    client: int
    sequence: int
    version: int


class FrontierRequest(NamedTuple):
    """Client to a member: its frontier."""

    request: int
    shard: int
    view: int


class FrontierResponse(NamedTuple):
    """`version`: that the member has entered; 0: it does not serve this view. `frontier`: no record that it places
    later has a GSN at or below it. `last`: the last GSN of a record; `stable`: how far a subscriber may have come.
    `is_open`: its shard is in the set and accepts records."""

    request: int
    shard: int
    version: int
    frontier: int
    last: int
    stable: int
    is_open: bool


class StatusRequest(NamedTuple):
    """Client to a primary: where are these records of `client`? `sequences`: (first sequence number, count)."""

    client: int
    sequences: tuple[tuple[int, int], ...]


class Status(NamedTuple):
    """Primary to client: the stable ones among them."""

    client: int
    shard: int
    placed: tuple[Placed, ...]


# ---- replication


class Replicate(NamedTuple):
    """Primary to backup: the order of the view between the GSNs `after` and `end`, as stored; `records` may have more
    of it on both sides. `stable`: the order is stable up to there. `version`: the primary has entered no later one."""

    shard: int
    view: int
    after: int
    end: int
    stable: int
    version: int
    records: Sequence[LogRecord] = ()


class Stored(NamedTuple):
    """Backup to primary: it has the order up to `end`, durably up to `durable`. `last`: of the GSNs that it gave."""

    shard: int
    view: int
    end: int
    durable: int
    last: int


class Sessions(NamedTuple):
    """Primary to a member that has the order up to `end`: which records are there of the clients from `first` to before
    `following` (0: to the last one). The others come in messages of their own, in order. If the client
    `following` is in this one, too, the next one has more of its records, and begins with the last one here."""

    shard: int
    view: int
    end: int
    first: int
    following: int
    sessions: str


# ---- reading


class ReadRequest(NamedTuple):
    """Client to a member of `shard`: the record at `gsn`. `is_reached`: other shards have records from there on."""

    request: int
    shard: int
    gsn: int
    is_reached: bool


class ReadResponse(NamedTuple):
    """Stable records, as stored, among which the one at `gsn` is if the shard has it."""

    request: int
    gsn: int
    records: Sequence[Record] = ()


class ReadError(Enum):
    """Why a server sends no record. BEHIND: it does not know that it is stable. TRIMMED: it is gone. UNREADABLE: its
    bytes are damaged here."""

    BEHIND = "behind"
    TRIMMED = "trimmed"
    UNREADABLE = "unreadable"


class ReadFailed(NamedTuple):
    """The answer to a `ReadRequest` or `Pull` without records. `oldest`: the oldest readable GSN."""

    request: int
    why: ReadError
    oldest: int
    explanation: str = ""


class Pull(NamedTuple):
    """Client to a member of `shard`: stable records from `gsn` on with these tags (None: all), about `max_bytes`.

    The primary answers when it has some, or is stable past `gsn`; other shards have records up to `wanted`. A second
    request with the same number replaces the first.
    """

    request: int
    shard: int
    gsn: int
    tags: frozenset[int] | None
    max_bytes: int
    wanted: int


class Pulled(NamedTuple):
    """The stable records with `first` <= GSN < `end` that have the requested tags, as stored; `records` may have others
    on both sides. `version`: the shard has entered no later one."""

    request: int
    first: int
    end: int
    version: int
    records: Sequence[LogRecord] = ()


# ---- the MMS and clients


class TailRequest(NamedTuple):
    """Operator to the leader of the MMS: the end of the log, as far as it knows."""

    request: int


class TailResponse(NamedTuple):
    """`last`: a GSN that the log has reached; `cut`: the number of epochs."""

    request: int
    last: int
    oldest: int
    cut: int
    interval_ns: int

    @property
    def unreachable(self) -> tuple[int, ...]:
        """Clients report no servers."""
        return ()


class ViewRequest(NamedTuple):
    """Anyone to the leader of the MMS: the configuration."""

    request: int


class ViewResponse(NamedTuple):
    """The configuration. The sender has confirmed, after the request came, that it leads."""

    request: int
    view: View


class ChangeRequest(NamedTuple):
    """Client to the leader of the MMS: make a change, once. `kind` and `numbers`: a change of `logdb.log.requests`, or
    "Trim", by its name and fields."""

    request: int
    kind: str
    numbers: tuple[int, ...]


class ChangeResponse(NamedTuple):
    """`result`: of the change; `error`: why it was rejected, "" if it was not."""

    request: int
    result: int
    error: str


class NotLeader(NamedTuple):
    """The answer to a request that reached a replica which does not lead. `leader`: "" if it is not known."""

    request: int
    leader: Address
