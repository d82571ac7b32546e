"""The records in a replica's journal. Each record is a fact that remains true, so replay merges them in any order.

All integers are little-endian. The formats by tag:

    PROMISE    round=u64 member=u32                 no lower ballot was accepted after this record
    ACCEPTED   round=u64 member=u32 commit=u64 first=u64 count=u32 length=u32*count value*count
               for this ballot, the slots from `first` on; those up to `commit` were known to be chosen
    SNAPSHOT   slot=u64 snapshot                    the state after `slot`; all slots up to it are chosen
    FRESH      nonce=u64                            the nonce of a disk whose replica is not a member yet
    MEMBER     joined=u8 founder=u64*n incarnation=u64*n   the membership (membership.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, calcsize, pack, unpack_from

from logdb.log.contract import Record
from logdb.log.paxos.membership import Membership
from logdb.log.paxos.messages import Ballot

PROMISE, ACCEPTED, SNAPSHOT, FRESH, MEMBER = 1, 2, 3, 4, 5

_BALLOT = Struct("<QI")
_ACCEPTED = Struct("<QIQQI")
_SLOT = Struct("<Q")


def promise(ballot: Ballot) -> Record:
    return PROMISE, _BALLOT.pack(*ballot)


def accepted(ballot: Ballot, commit: int, first: int, values: Sequence[bytes]) -> Record:
    lengths = pack(f"<{len(values)}I", *map(len, values))
    return ACCEPTED, b"".join((_ACCEPTED.pack(*ballot, commit, first, len(values)), lengths, *values))


def snapshot(slot: int, state: bytes) -> Record:
    return SNAPSHOT, _SLOT.pack(slot) + state


def fresh(nonce: int) -> Record:
    return FRESH, _SLOT.pack(nonce)


def member(membership: Membership) -> Record:
    founders, roster, joined = membership
    return MEMBER, pack(f"<?{2 * len(founders)}Q", joined, *founders, *roster)


def read_promise(payload: bytes) -> Ballot:
    return Ballot(*_BALLOT.unpack(payload))


def read_accepted(payload: bytes) -> tuple[Ballot, int, int, list[bytes]]:
    """(ballot, commit, first slot, values)."""
    rnd, member, commit, first, count = _ACCEPTED.unpack_from(payload)
    lengths = f"<{count}I"
    at = _ACCEPTED.size + calcsize(lengths)
    values = []
    for length in unpack_from(lengths, payload, _ACCEPTED.size):
        values.append(payload[at : at + length])
        at += length
    return Ballot(rnd, member), commit, first, values


def read_snapshot(payload: bytes) -> tuple[int, bytes]:
    """(slot, snapshot)."""
    return _SLOT.unpack_from(payload)[0], payload[_SLOT.size :]


def read_fresh(payload: bytes) -> int:
    return int(_SLOT.unpack(payload)[0])


def read_member(payload: bytes) -> Membership:
    joined, *numbers = unpack_from(f"<?{len(payload) // 8}Q", payload)
    half = len(numbers) // 2
    return Membership(tuple(numbers[:half]), tuple(numbers[half:]), joined)
