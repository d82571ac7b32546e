"""The state of consumers, and what a consumer's process remembers between transactions. Both faces share it.

The keys of the consumer `c` of the log `n` follow (None, "logdb.logs", n, 3, c):

    0               the owners of the partitions: a tuple with a member's id, or None, for each. Only of a group
    1 partition     the cursor: the position (12 bytes) of the last entry that took effect. Without a group: partition 0
    2 member        a heartbeat of the member of a group: a counter and the lease in milliseconds

The invariants:

CON-1  A transaction that has the effects of an entry of a partition reads the partition's cursor, which is before the
       entry with no other entry of the partition between, and moves it to the entry.
CON-2  That transaction reads the owners, and they name the consumer's member.

So an entry takes effect once, whatever members believe: of two transactions that hand out the same entry, the second
one to commit has read a cursor that has changed, and conflicts. A member that has lost a partition conflicts or finds
another owner. Clocks and heartbeats only decide when members write other owners.
"""

from __future__ import annotations

import threading
import zlib
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, takewhile
from typing import Final, NamedTuple, Protocol

from logdb.errors import LogDBError
from logdb.keys import Subspace, pack, unpack
from logdb.named_logs.layout import CONSUMERS, LOGS, Entry, Layout, Position
from logdb.store.limits import check_name
from logdb.store.records import INDEX_BYTES, VERSION_BYTES

OWNERS, CURSORS, HEARTBEATS = 0, 1, 2
START: Final = Position(0, 0)
"""Before every entry: the first version is 1."""
PAGE: Final = 128
"""Number of entries that a consumer reads together."""
MAX_PARTITIONS: Final = 1_000
MAX_NAME_BYTES: Final = 400
HEARTBEATS_PER_LEASE: Final = 3


class Writes(Protocol):
    """The writes of a transaction."""

    def put(self, key: bytes, value: bytes) -> None: ...


class ConsumerState(NamedTuple):
    """A partition of a consumer: the `name` of the consumer, the `partition` (0 if it is not a group), the `position`
    of the last entry that took effect (None: none has), `lag`, the number of entries behind it, and `owner`, the id of
    the group's member that has the partition (None: no member has)."""

    name: str
    partition: int
    position: Position | None
    lag: int
    owner: str | None


class ConsumerKeys:
    """The keys of one consumer, and their values. `all`: the range of all of them; `owners`: the key of the owners.
    Raises TypeError, ValueError for a name that no consumer can have."""

    def __init__(self, log: str, name: str) -> None:
        check_name("a consumer", name, MAX_NAME_BYTES)
        self.log, self.name = log, name
        self._space: Subspace = LOGS.subspace(log, CONSUMERS, name)
        self.all = self._space.range()
        self.owners = self._space.pack((OWNERS,))
        self.heartbeats = self._space.range((HEARTBEATS,))

    def cursor(self, partition: int) -> bytes:
        """The key of the cursor of a partition."""
        return self._space.pack((CURSORS, partition))

    def heartbeat(self, member: str) -> bytes:
        """The key of the heartbeat of a member."""
        return self._space.pack((HEARTBEATS, member))

    def member(self, key: bytes) -> str:
        """The inverse of `heartbeat`."""
        return str(self._space.unpack(key)[1])

    def cursors(self, partitions: int) -> list[bytes]:
        """The keys of the cursors of this number of partitions."""
        return [self.cursor(partition) for partition in range(partitions)]

    def moved(self, partitions: Iterable[int], position: Position | None) -> dict[bytes, bytes]:
        """The writes that move the cursors of partitions to a position; None: to the start."""
        return {self.cursor(partition): encode_position(position or START) for partition in partitions}

    def deleted(self) -> LogDBError:
        """The error of a consumer that was deleted while it was used."""
        return LogDBError(f"the consumer {self.name!r} of the log {self.log!r} was deleted while it was in use")


def consumer_in(key: bytes) -> str:
    """The name of the consumer that a key belongs to."""
    items = LOGS.unpack(key)
    return str(items[2])


def encode_position(position: Position) -> bytes:
    """The value of a cursor."""
    return position.version.to_bytes(VERSION_BYTES) + position.index.to_bytes(INDEX_BYTES)


def decode_position(value: bytes | None) -> Position:
    """The inverse of `encode_position`; None: START."""
    if value is None:
        return START
    return Position(int.from_bytes(value[:VERSION_BYTES]), int.from_bytes(value[VERSION_BYTES:]))


def partition_of(entry: Entry, partitions: int) -> int:
    """The partition of an entry: by its partition key, or by its position if it has none."""
    if partitions == 1:
        return 0
    return zlib.crc32(encode_position(entry.position) if entry.key is None else entry.key) % partitions


def check_partitions(partitions: int) -> None:
    """Raises TypeError, ValueError."""
    if type(partitions) is not int:
        raise TypeError(f"partitions must be an int, not {type(partitions).__name__}")
    if not 0 < partitions <= MAX_PARTITIONS:
        raise ValueError(f"a group has 1 to {MAX_PARTITIONS} partitions, not {partitions}")


def check_lease(lease: float) -> None:
    """Raises TypeError, ValueError."""
    if isinstance(lease, bool) or not isinstance(lease, int | float):
        raise TypeError(f"lease must be a number of seconds, not {type(lease).__name__}")
    if not 0.001 <= lease <= 1e6:
        raise ValueError(f"lease must be from 0.001 to 1,000,000 seconds, not {lease}")


def check_count(name: str, count: int | None) -> None:
    """Raises TypeError, ValueError."""
    if count is not None and type(count) is not int:
        raise TypeError(f"{name} must be an int, not {type(count).__name__}")
    if count is not None and count < 1:
        raise ValueError(f"{name} must be at least 1, not {count}")


class Owners(tuple[str | None, ...]):
    """The owners of a group's partitions: a member's id, or None, for each."""

    __slots__ = ()

    def encode(self) -> bytes:
        """The value of the owners' key."""
        return pack(tuple(self))

    @classmethod
    def decode(cls, value: bytes) -> Owners:
        """The inverse of `encode`."""
        return cls(None if each is None else str(each) for each in unpack(value))

    def of(self, member: str) -> list[int]:
        """The partitions of a member."""
        return [partition for partition, owner in enumerate(self) if owner == member]

    def balanced(self, live: Collection[str]) -> Owners:
        """Owners among the `live` members whose numbers of partitions differ by at most one, with as few changes of
        partitions that have a live owner as possible. A function of its arguments."""
        if not live:
            return Owners([None] * len(self))
        loads = {member: self.of(member) for member in sorted(live)}
        least, extra = divmod(len(self), len(loads))
        order = sorted(loads, key=lambda member: -len(loads[member]))
        sizes = {member: least + (rank < extra) for rank, member in enumerate(order)}
        kept: dict[int, str] = {part: member for member in order for part in loads[member][: sizes[member]]}
        free = iter([partition for partition in range(len(self)) if partition not in kept])
        for member in order:
            kept.update(dict.fromkeys(islice(free, max(sizes[member] - len(loads[member]), 0)), member))
        return Owners(kept[partition] for partition in range(len(self)))


class Heartbeats:
    """The heartbeats of a group's members as one of them observes them. A member is lost when its heartbeat has not
    changed for its lease, by the observer's clock: no clocks are compared."""

    def __init__(self, keys: ConsumerKeys, member: str, lease_s: float) -> None:
        self._keys, self._member, self.lease_s = keys, member, lease_s
        self._seen: dict[str, tuple[bytes, float]] = {}
        self._count = 0
        self.due = 0.0
        """When the next heartbeat is due."""

    def next(self, now: float) -> dict[bytes, bytes | None]:
        """The write of the next heartbeat."""
        self._count += 1
        self.due = now + self.lease_s / HEARTBEATS_PER_LEASE
        return {self._keys.heartbeat(self._member): pack((self._count, int(self.lease_s * 1_000)))}

    def observe(self, rows: Iterable[tuple[bytes, bytes]], now: float) -> tuple[set[str], set[str]]:
        """(live, lost): the members whose heartbeats are in these rows, and this one."""
        found = {self._keys.member(key): value for key, value in rows}
        unchanged = {member: seen for member, seen in self._seen.items() if found.get(member) == seen[0]}
        self._seen = {member: unchanged.get(member, (value, now)) for member, value in found.items()}
        lost = {member for member, (value, since) in self._seen.items() if now - since >= _lease_s(value)}
        lost.discard(self._member)
        return {*found, self._member} - lost, lost


def _lease_s(heartbeat: bytes) -> float:
    _, lease_ms = unpack(heartbeat)
    assert isinstance(lease_ms, int)
    return lease_ms / 1_000


def is_balanced(keys: ConsumerKeys, found: Mapping[bytes, bytes], live: Collection[str]) -> bool:
    """Whether the owners in `found` suit the live members. Raises LogDBError for a group that was deleted."""
    stored = found.get(keys.owners)
    if stored is None:
        raise keys.deleted()
    owners = Owners.decode(stored)
    return owners.balanced(live) == owners


def rebalanced(
    keys: ConsumerKeys,
    found: Mapping[bytes, bytes],
    partitions: int,
    live: Collection[str],
    lost: Iterable[str],
    *,
    is_joining: bool,
) -> dict[bytes, bytes | None]:
    """The writes that give the partitions of a group to its `live` members and remove the heartbeats of the `lost`
    ones; a member that is joining creates the group. `found`: the owners and the first cursor, which the transaction
    reads.

    Raises LogDBError for a group that was deleted, and for a consumer that is no group; ValueError for a group with
    another number of partitions.
    """
    stored = found.get(keys.owners)
    if stored is None:
        if not is_joining:
            raise keys.deleted()
        if keys.cursor(0) in found:
            raise LogDBError(f"the consumer {keys.name!r} of {keys.log!r} is not a group: use NamedLog.consumer")
    owners = Owners([None] * partitions) if stored is None else Owners.decode(stored)
    if len(owners) != partitions:
        raise ValueError(f"the group {keys.name!r} has {len(owners)} partitions, not {partitions}")
    writes: dict[bytes, bytes | None] = {keys.heartbeat(member): None for member in lost}
    becomes = owners.balanced(live)
    if becomes != owners or stored is None:
        writes[keys.owners] = becomes.encode()
    return writes


class Pick(NamedTuple):
    """Entries that take effect in one transaction. `expected`: the keys that it reads, and the values that they must
    have; `moved`: the cursors behind the entries."""

    entries: list[Entry]
    expected: dict[bytes, bytes | None]
    moved: dict[bytes, bytes]

    def holds(self, found: Mapping[bytes, bytes]) -> bool:
        """Whether the owners and the cursors are as they were when the entries were picked (CON-1, CON-2)."""
        return all(found.get(key) == value for key, value in self.expected.items())

    def move(self, txn: Writes) -> None:
        """Move the cursors in the transaction of the effects."""
        for key, value in self.moved.items():
            txn.put(key, value)


class Progress:
    """The memory of a consumer's process between transactions: owners and cursors as it has last seen them, and
    entries that it has read ahead. A transaction that finds others does nothing, and `refresh` follows.

    The entries are all those of the log behind `begin` up to `end`, but for some that no owned partition needs.
    """

    def __init__(self, layout: Layout, keys: ConsumerKeys, partitions: int = 1, member: str | None = None) -> None:
        self._layout, self._keys, self._partitions, self._member = layout, keys, partitions, member
        self._state: dict[bytes, bytes | None] = {}
        self.positions: dict[int, Position] = {}
        self._entries: deque[Entry] = deque()
        self.begin = self.end = START
        self.is_known = False
        """Whether `refresh` has been called since the last change by another process."""
        self._running = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """One run at a time has this memory. Raises LogDBError for a second one."""
        if not self._running.acquire(blocking=False):
            name, log = self._keys.name, self._keys.log
            raise LogDBError(f"this consumer {name!r} of the log {log!r} is running: make one for each thread or task")
        try:
            yield
        finally:
            self._running.release()

    @property
    def keys(self) -> list[bytes]:
        """The keys that `refresh` needs."""
        return [self._keys.owners, *self._keys.cursors(self._partitions)]

    @property
    def watched(self) -> list[bytes]:
        """The keys whose changes end what it knows: owners, and cursors of owned partitions."""
        return list(self._state)

    def confirm(self, found: Mapping[bytes, bytes]) -> bool:
        """Whether a snapshot has the owners and cursors that it knows. A consumer ends, or waits for changes, after
        that snapshot only: others may have changed them before."""
        self.is_known = all(found.get(key) == value for key, value in self._state.items())
        return self.is_known

    def refresh(self, found: Mapping[bytes, bytes]) -> None:
        """Continue with the owners and cursors that one snapshot has. Raises LogDBError if the consumer was deleted, or
        is a group and used as if it were not."""
        stored = found.get(self._keys.owners)
        owned = [0]
        if self._member is None and stored is not None:
            raise LogDBError(f"the consumer {self._keys.name!r} of {self._keys.log!r} is a group: use NamedLog.group")
        if self._member is not None:
            if stored is None:
                raise self._keys.deleted()
            owned = Owners.decode(stored).of(self._member)
        cursors = {partition: self._keys.cursor(partition) for partition in owned}
        if any(self._state.get(key) is not None and key not in found for key in cursors.values()):
            raise self._keys.deleted()
        self.positions = {partition: decode_position(found.get(key)) for partition, key in cursors.items()}
        self._state = {self._keys.owners: stored, **{key: found.get(key) for key in cursors.values()}}
        first = min(self.positions.values(), default=self.end)
        if first < self.begin or first > self.end:
            self._entries.clear()
            self.begin = self.end = first
        self.is_known = True

    def add(self, entries: Sequence[Entry]) -> None:
        """Add the next entries of the log behind `end`, without gaps."""
        self._entries += entries
        self.end = entries[-1].position

    def _is_due(self, entry: Entry) -> bool:
        position = self.positions.get(partition_of(entry, self._partitions))
        return position is not None and position < entry.position

    def pick(self, limit: int, through: Position | None = None) -> Pick:
        """The next entries of owned partitions, in the order of the log: at most `limit`, and none behind the position
        `through`."""
        entries = self._entries
        while entries and not self._is_due(entries[0]):
            self.begin = entries.popleft().position
        ahead = takewhile(lambda entry: through is None or entry.position <= through, entries)
        picked = list(islice(filter(self._is_due, ahead), limit))
        lasts = {self._keys.cursor(partition_of(entry, self._partitions)): entry.position for entry in picked}
        expected = {key: self._state[key] for key in (self._keys.owners, *lasts)} if picked else {}
        return Pick(picked, expected, {key: encode_position(position) for key, position in lasts.items()})

    def idle(self) -> Pick:
        """The move of the cursors of owned partitions that have no entry up to `end`, so that their next owner does not
        read from there."""
        busy = {partition_of(entry, self._partitions) for entry in self._entries}
        idle = [part for part, position in self.positions.items() if position < self.end and part not in busy]
        moved = self._keys.moved(idle, self.end)
        return Pick([], {key: self._state[key] for key in (self._keys.owners, *moved)} if idle else {}, moved)

    def done(self, pick: Pick) -> None:
        """The transaction of the pick has committed."""
        self._state.update(pick.moved)
        for partition in self.positions:
            moved = pick.moved.get(self._keys.cursor(partition))
            if moved is not None:
                position = decode_position(moved)
                assert position > self.positions[partition], f"the cursor of partition {partition} goes back"
                self.positions[partition] = position


def states_of(keys: ConsumerKeys, found: Mapping[bytes, bytes], entries: Iterable[Entry]) -> list[ConsumerState]:
    """The state of each partition of a consumer. `entries`: all of the log behind the first of its cursors."""
    stored = found.get(keys.owners)
    owners = Owners([None]) if stored is None else Owners.decode(stored)
    positions = [decode_position(found.get(key)) for key in keys.cursors(len(owners))]
    lags = [0] * len(owners)
    for entry in entries:
        partition = partition_of(entry, len(owners))
        lags[partition] += entry.position > positions[partition]
    return [
        ConsumerState(keys.name, partition, None if position == START else position, lag, owner)
        for partition, (position, lag, owner) in enumerate(zip(positions, lags, owners, strict=True))
    ]


def partitions_in(keys: ConsumerKeys, found: Mapping[bytes, bytes]) -> int:
    """The number of partitions of a consumer."""
    stored = found.get(keys.owners)
    return 1 if stored is None else len(Owners.decode(stored))


def first_position(keys: ConsumerKeys, found: Mapping[bytes, bytes]) -> Position:
    """The position of the first cursor of a consumer. `found`: its owners and cursors."""
    return min(decode_position(found.get(key)) for key in keys.cursors(partitions_in(keys, found)))
