"""The commands of the ordering layer's replicated log, and their encoding.

A command contains what its proposer knew. Its effect is decided by `state.py` when it is applied, from the state that
all replicas have at that point. So an outdated command has no effect, and a command that is chosen twice has its effect
once.

Cuts are frequent and grow with the number of servers, so they are packed (integers are little-endian, 64 bits wide):

    cut := "C" time nshards npairs shards pairs
    shards := (shard epoch placed n)*        ascending by shard; n of the pairs are this shard's
    pairs := (segment end)*

All other commands are rare: "J" and the JSON of [name, field, ...].
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from enum import Enum
from operator import lt
from typing import Any, Final, NamedTuple, cast, get_type_hints

from logdb.cores.effects import Address, ProtocolViolation
from logdb.log import requests
from logdb.log.scalog import messages
from logdb.log.scalog.messages import Reconfiguration, Register, RegisterAggregator


class FailurePolicy(Enum):
    """The reaction to a failed storage server (table 3.2). With the first two, a shard has f + 1 members and a record
    is durable when all have it; with MASK it has 2f + 1 members, of which f + 1 are enough."""

    FINALIZE_AND_ADD = "finalize and add"
    REMOVE_AND_REPLACE = "remove and replace"
    MASK = "mask"


class Cut(NamedTuple):
    """Order the durable records. `time`: of the leader's clock, in ns since the epoch. `shards` and `pairs` are flat,
    as they are packed: (shard, epoch of the tally, its `placed`, number of pairs) and (segment, LSN after the last
    durable record)."""

    time: int
    shards: array[int]
    pairs: array[int]


class SetPolicy(NamedTuple):
    """Set the log's policy and f, for new shards and new failures."""

    policy: FailurePolicy
    f: int


class ChangeCommand(NamedTuple):
    """A client's change. `live`: spares from which the leader has received a message lately; they are preferred."""

    id: int
    change: Reconfiguration
    live: tuple[int, ...]


class ServerFailed(NamedTuple):
    """`server` of `shard` is suspected in `epoch` of the shard: carry out the policy. `live`: spares from which the
    leader has received a message lately; only these are used."""

    shard: int
    epoch: int
    server: int
    live: tuple[int, ...]


class ServerReturned(NamedTuple):
    """`server`, which has no open segment in the live `shard`, reports again in `epoch` of the shard."""

    shard: int
    epoch: int
    server: int


class Replenish(NamedTuple):
    """Add a shard for one that was finalized when there were not enough spares. `live` as in `ServerFailed`."""

    live: tuple[int, ...]


class ServerJoined(NamedTuple):
    """`server` has copied the records that were ordered before it became a member of `shard`."""

    shard: int
    server: int


class AggregatorFailed(NamedTuple):
    """The aggregator at `address` is suspected: the one that registered at or before view `version`."""

    address: Address
    version: int


Rare = (
    SetPolicy
    | Register
    | RegisterAggregator
    | ChangeCommand
    | ServerFailed
    | ServerReturned
    | Replenish
    | ServerJoined
    | AggregatorFailed
)
Command = Cut | Rare

_HEAD = struct.Struct("<cqqq")
_CUT, _JSON = b"C", b"J"
_LARGEST = (1 << 64) - 1
"""Tokens and the ids of changes are random numbers of up to 64 bits; all other integers are smaller."""

_CHANGES: Final[dict[str, Any]] = {
    "AddShard": requests.AddShard,
    "FinalizeShard": requests.FinalizeShard,
    "ReplaceServer": requests.ReplaceServer,
    "AddReplica": requests.AddReplica,
    "TrimLog": messages.TrimLog,
    "SealSegment": messages.SealSegment,
    "OpenSegment": messages.OpenSegment,
    "SetParent": messages.SetParent,
    "AssignShard": messages.AssignShard,
    "DropAggregator": messages.DropAggregator,
    "SetCutInterval": requests.SetCutInterval,
}
"""The names stored in journals and snapshots. They never change, even if a class is renamed."""
_COMMANDS: Final[dict[str, Any]] = {
    "SetPolicy": SetPolicy,
    "Register": Register,
    "RegisterAggregator": RegisterAggregator,
    "Changing": ChangeCommand,
    "Failed": ServerFailed,
    "Returned": ServerReturned,
    "Replenish": Replenish,
    "Joined": ServerJoined,
    "AggregatorFailed": AggregatorFailed,
}
_FIELDS = {kind: tuple(get_type_hints(kind).values()) for kind in (*_CHANGES.values(), *_COMMANDS.values())}
_NAMES = {kind: name for kinds in (_CHANGES, _COMMANDS) for name, kind in kinds.items()}


def encode(command: Command) -> bytes:
    """The bytes that Paxos chooses."""
    if isinstance(command, Cut):
        shards, pairs = command.shards, command.pairs
        if sys.byteorder == "big":
            shards, pairs = array("q", shards), array("q", pairs)
            shards.byteswap()
            pairs.byteswap()
        head = _HEAD.pack(_CUT, command.time, len(shards) // 4, len(pairs) // 2)
        return head + shards.tobytes() + pairs.tobytes()
    return _JSON + json.dumps(_to_json(command), separators=(",", ":")).encode()


def decode(value: bytes) -> Command:
    """The command in `value`. Raises ProtocolViolation if it contains none."""
    try:
        if value[:1] == _CUT:
            return _decode_cut(value)
        if value[:1] == _JSON:
            return cast(Command, _from_json(json.loads(value[1:]), _COMMANDS))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, struct.error) as error:
        raise ProtocolViolation(f"a chosen value is not a command: {error}: {value[:40]!r}") from error
    raise ProtocolViolation(f"a chosen value is not a command: {value[:40]!r}")


def _decode_cut(value: bytes) -> Cut:
    _, time, nshards, npairs = _HEAD.unpack_from(value)
    if nshards < 0 or npairs < 0 or len(value) != _HEAD.size + 32 * nshards + 16 * npairs:
        raise ValueError(f"a cut of {nshards} shards and {npairs} segments in {len(value)} bytes")
    shards, pairs = array("q"), array("q")
    until = _HEAD.size + 32 * nshards
    shards.frombytes(memoryview(value)[_HEAD.size : until])
    pairs.frombytes(memoryview(value)[until:])
    if sys.byteorder == "big":
        shards.byteswap()
        pairs.byteswap()
    ids, counts = shards[0::4], shards[3::4]
    if not all(map(lt, ids, ids[1:])) or sum(counts) != npairs or min(counts, default=0) < 0:
        raise ValueError("the shards of a cut are out of order, or a segment belongs to none of them")
    if min(pairs, default=0) < 0 or min(shards, default=0) < 0 or time < 0:
        raise ValueError("a cut with a negative position")
    return Cut(time, shards, pairs)


def _to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if type(value) in _FIELDS:
        return [_NAMES[type(value)], *map(_to_json, value)]
    return value


def _from_json(value: Any, kinds: dict[str, Any]) -> object:
    kind = kinds[value[0]]
    hints = _FIELDS[kind]
    if len(value) != len(hints) + 1:
        raise ValueError(f"{kind.__name__} with {len(value) - 1} fields")
    return kind(*map(_field, value[1:], hints))


def _field(value: Any, hint: Any) -> object:
    if hint is int:
        if type(value) is not int or not -_LARGEST <= value <= _LARGEST:
            raise ValueError(f"{value!r} is not a number")
        return value
    if hint is str:
        if type(value) is not str:
            raise ValueError(f"{value!r} is not an address")
        return value
    if hint is FailurePolicy:
        return FailurePolicy(value)
    if hint == tuple[int, ...]:
        return tuple(_field(item, int) for item in value)
    return _from_json(value, _CHANGES)
