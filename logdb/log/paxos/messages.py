"""The messages between replicas. `PROTOCOL.md` describes how they work together.

Messages may be lost, duplicated and reordered. `ballot` identifies the leader or the candidate. Members send all
messages in a `MemberEnvelope`, except for `JoinReply`; replicas that are not members yet send `JoinRequest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Ballot(NamedTuple):
    """The leadership of the replica with the index `member` in round `round`. Ballots are ordered and unique."""

    round: int
    member: int


NO_BALLOT = Ballot(0, 0)
"""Lower than every ballot."""

Entry = tuple[Ballot, bytes]
"""An accepted value, with the ballot for which it was accepted."""


class PreVote(NamedTuple):
    """Asks whether the receiver would promise `ballot`; has no effect on it. The sender knows that the slots up to
    `commit` are chosen."""

    ballot: Ballot
    commit: int


class PreVoted(NamedTuple):
    """The sender would promise `ballot`: its election timeout has expired, and it knows no more chosen slots than the
    candidate."""

    ballot: Ballot


class Prepare(NamedTuple):
    """Asks for a promise to accept nothing for a lower ballot, and for the values accepted from slot `first` on."""

    ballot: Ballot
    first: int


class Promise(NamedTuple):
    """The sender will accept nothing for a lower ballot. It has accepted values up to slot `last`.

    `entries`: the accepted values from `first` on, as many as fit; the candidate requests the rest by another
    `Prepare`.
    """

    ballot: Ballot
    first: int
    entries: Sequence[Entry]
    last: int


class Accept(NamedTuple):
    """Asks to accept `values` for the slots from `first` on. The slots up to `commit` are chosen.

    Without values, it is a heartbeat; the receiver should have all slots before `first`.
    """

    ballot: Ballot
    first: int
    values: Sequence[bytes]
    commit: int


class Accepted(NamedTuple):
    """The sender has durably accepted for `ballot`, or knows to be chosen, all slots up to `matched`.

    `again`: the received values left a gap; the leader must continue after `matched`. `awaits_commit`: the sender needs
    a `Learn` when the leader knows that more of these slots are chosen.
    """

    ballot: Ballot
    matched: int
    again: bool
    awaits_commit: bool = False


class Learn(NamedTuple):
    """The slots up to `commit` are chosen. From the leader of `ballot` to a replica that awaits it; without an answer,
    because the next `Accept` repeats it."""

    ballot: Ballot
    commit: int


class Install(NamedTuple):
    """A chunk of a snapshot that replaces the slots up to `slot`: its bytes from `offset` on. `size`: of the whole
    snapshot."""

    ballot: Ballot
    slot: int
    size: int
    offset: int
    data: bytes


class Installed(NamedTuple):
    """The sender has the bytes of the snapshot before `offset`. It sends `Accepted` once the whole snapshot is
    durable."""

    ballot: Ballot
    slot: int
    offset: int


class Rejected(NamedTuple):
    """The sender rejects `ballot`, because it has promised `promised`."""

    ballot: Ballot
    promised: Ballot


class Probe(NamedTuple):
    """Asks whether the receiver has promised a higher ballot. `number`: of the probe."""

    ballot: Ballot
    number: int


class Probed(NamedTuple):
    """The sender had promised no higher ballot when it received the probe `number`."""

    ballot: Ballot
    number: int


class ReadIndex(NamedTuple):
    """A follower asks its leader, that of `ballot`, which slots were chosen. It has promised no higher ballot.
    `number`: of the question."""

    ballot: Ballot
    number: int


class ReadIndexed(NamedTuple):
    """Every slot that was known to be chosen when the sender of the `ReadIndex` asked is at most `slot`, which is
    chosen."""

    ballot: Ballot
    number: int
    slot: int


Message = (
    PreVote
    | PreVoted
    | Prepare
    | Promise
    | Accept
    | Accepted
    | Install
    | Installed
    | Rejected
    | Probe
    | Probed
    | ReadIndex
    | ReadIndexed
    | Learn
)


class MemberEnvelope(NamedTuple):
    """A `message` of a member of `cluster`. `roster`: the newest incarnations that the sender knows, including its own;
    messages of former incarnations do not count together with this one."""

    cluster: int
    roster: Sequence[int]
    message: Message


class JoinRequest(NamedTuple):
    """The sender is not a member. `nonces`: its own nonce and those that it has received from other replicas that are
    not members, 0 for the others.

    `cluster`, `incarnation`: the cluster that it has found and the incarnation that it requests there, 0 if it has
    none yet. Without nonces: it has that incarnation, and requests the leader's ballot and end of log.
    """

    nonces: Sequence[int]
    cluster: int
    incarnation: int


class JoinReply(NamedTuple):
    """The sender is a member of the cluster with these `founders`, and has durably stored the incarnations in `roster`.
    It will accept nothing for a ballot lower than `promised`. `leads`: it is the leader in that ballot; `last`: the
    last slot of its log."""

    founders: Sequence[int]
    roster: Sequence[int]
    promised: Ballot
    leads: bool
    last: int
