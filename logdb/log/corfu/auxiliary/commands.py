"""The commands of the auxiliary, as JSON: the values of `logdb.log.paxos`."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from logdb.cores.effects import Address, ProtocolViolation


class Register(NamedTuple):
    """Give a number to the storage unit with this disk."""

    nonce: int
    address: Address


class NewEpoch(NamedTuple):
    """End `epoch`. `sealed`: the units that reject it, former ones too; `highest`, `last`, `time`: the maxima of the
    `Sealed` of those that are in a chain. `sequencer`, `nonce`: of the new epoch. `joins`: (shard, spare unit) for
    shards with too few units. `request`, `kind`, `numbers`: a change by an operator, 0 and "" if there is none.
    `decided`: as `Decided`, of some shards."""

    epoch: int
    sealed: tuple[int, ...]
    highest: int
    last: int
    time: int
    sequencer: Address
    nonce: int
    joins: tuple[tuple[int, int], ...]
    request: int
    kind: str
    numbers: tuple[int, ...]
    decided: tuple[tuple[int, int], ...] = ()


class Copied(NamedTuple):
    """The unit has all entries of its shard from before position `since`, at which it has joined."""

    server: int
    since: int


class Decided(NamedTuple):
    """All units of the chain of a shard have its entries before this position durably, each from where it joined."""

    shard: int
    position: int


class Trim(NamedTuple):
    """Allow the deletion of the records before `gsn`."""

    request: int
    gsn: int


class Reject(NamedTuple):
    """The change of a client is not possible."""

    request: int
    error: str


Command = Register | NewEpoch | Copied | Decided | Trim | Reject
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
