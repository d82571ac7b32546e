"""The commands of the MMS, as JSON: the values of `logdb.log.paxos`. `time`: of the leader, ns since the epoch."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from logdb.cores.effects import Address, ProtocolViolation


class Register(NamedTuple):
    """A server with a new disk: give it a number, unless another one was registered at its address with or after the
    change `since`; None: in any case."""

    time: int
    nonce: int
    address: Address
    since: int | None = None


class AddShard(NamedTuple):
    """Make a shard of spare servers. `request`: of the client."""

    time: int
    request: int
    servers: tuple[int, ...]


class FinalizeShard(NamedTuple):
    """The shard leaves the set and never returns."""

    time: int
    request: int
    shard: int


class ReplaceServer(NamedTuple):
    """The next view of its shard is without `server`, and with the spare server `by`."""

    time: int
    request: int
    server: int
    by: int


class AddReplica(NamedTuple):
    """The next view of a shard that accepts no appends has one member more: the spare server `server`."""

    time: int
    request: int
    shard: int
    server: int


class SetInterval(NamedTuple):
    """Set the time between two epochs."""

    time: int
    request: int
    interval_ns: int


class Trim(NamedTuple):
    """Records before `gsn` may go."""

    time: int
    request: int
    gsn: int


class Recover(NamedTuple):
    """Begin the next view of a shard with what its source has. `stable`: as it reported. `members`: the source first.
    `is_first`: the source need not be frozen, since the shard has not been in the set yet."""

    time: int
    shard: int
    view: int
    stable: int
    members: tuple[int, ...]
    is_first: bool = False


class Synced(NamedTuple):
    """A member has all that earlier views have."""

    time: int
    shard: int
    view: int
    server: int


class Drained(NamedTuple):
    """The order of a shard that has left is stable up to there."""

    time: int
    shard: int
    view: int


class NextEpoch(NamedTuple):
    """Begin an epoch. `rates`: (shard, rate)."""

    time: int
    rates: tuple[tuple[int, int], ...]


class Open(NamedTuple):
    """All members noted for versions up to `version` have entered it."""

    time: int
    version: int


Command = (
    Register
    | AddShard
    | FinalizeShard
    | ReplaceServer
    | AddReplica
    | SetInterval
    | Trim
    | Recover
    | Synced
    | Drained
    | NextEpoch
    | Open
)
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in Command.__args__}


def encode(command: Command) -> bytes:
    """The bytes of a command."""
    return json.dumps([type(command).__name__, *command], separators=(",", ":")).encode()


def decode(value: bytes) -> Command:
    """The command of a value. Raises ProtocolViolation."""
    try:
        name, *fields = json.loads(value)
        command: Command = _KINDS[name](*map(_tuples, fields))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProtocolViolation(f"a value of {len(value)} bytes is not a command: {error}") from error
    return command


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
