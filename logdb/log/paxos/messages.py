"""Every message between replicas, and what it promises. `PROTOCOL.md` tells how they work together.

None relies on another to have arrived, or to arrive once, or in order. `ballot` names the leader, or who wants to be.
What members say travels in `MemberEnvelope`; `JoinRequest` and `JoinReply` make members of those that are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Ballot(NamedTuple):
    """A leadership: the `member` with this index in round `round`. Ordered; no two replicas ever have the same one."""

    round: int
    member: int


NOBODY = Ballot(0, 0)
"""Before every ballot."""

Entry = tuple[Ballot, bytes]
"""A value that was accepted, and for whom."""


class PreVote(NamedTuple):
    """Would you promise me `ballot`? I know that the slots up to `commit` are chosen. Binds nobody."""

    ballot: Ballot
    commit: int


class PreVoted(NamedTuple):
    """I would: I have not heard of a leader for a while, and know no more than you."""

    ballot: Ballot


class Prepare(NamedTuple):
    """Accept nothing for less than `ballot` any more, and tell me what you have accepted from slot `first` on."""

    ballot: Ballot
    first: int


class Promise(NamedTuple):
    """I will accept nothing for less than `ballot`. What I have accepted is in the slots up to `last`.

    `entries`: those from `first` on, as many as fit; the rest is to be asked for by another `Prepare`.
    """

    ballot: Ballot
    first: int
    entries: Sequence[Entry]
    last: int


class Accept(NamedTuple):
    """Accept `values` for the slots from `first` on. The slots up to `commit` are chosen.

    Without values it says that the leader is there, and that you should have everything before `first`.
    """

    ballot: Ballot
    first: int
    values: Sequence[bytes]
    commit: int


class Accepted(NamedTuple):
    """I have accepted for `ballot`, or know to be chosen, all slots up to `matched`, durably.

    `again`: what was sent does not follow on that, send from there on.
    """

    ballot: Ballot
    matched: int
    again: bool


class Install(NamedTuple):
    """The bytes from `offset` on of the snapshot of `size` bytes that replaces the slots up to `slot`."""

    ballot: Ballot
    slot: int
    size: int
    offset: int
    data: bytes


class Installed(NamedTuple):
    """Of this snapshot I have the bytes before `offset`. When all have become durable, `Accepted` says so."""

    ballot: Ballot
    slot: int
    offset: int


class Rejected(NamedTuple):
    """I do nothing for `ballot`: I have promised `promised`."""

    ballot: Ballot
    promised: Ballot


class Probe(NamedTuple):
    """Do you still know of no higher ballot?"""

    ballot: Ballot
    number: int


class Probed(NamedTuple):
    """When the probe `number` came, I had promised nothing higher."""

    ballot: Ballot
    number: int


Message = PreVote | PreVoted | Prepare | Promise | Accept | Accepted | Install | Installed | Rejected | Probe | Probed


class MemberEnvelope(NamedTuple):
    """A member of `cluster` says `message`. `roster`: the newest incarnation of each replica that it knows, its own
    among them: what a former one has said does not count together with this."""

    cluster: int
    roster: Sequence[int]
    message: Message


class JoinRequest(NamedTuple):
    """I am no member. I have this nonce, among those that all others have told me who are none: 0 who has not.

    Who has found `cluster` wants to be the member with this `incarnation` there; 0: not yet. Without nonces: I have
    become that, and ask for what a leader knows.
    """

    nonces: Sequence[int]
    cluster: int
    incarnation: int


class JoinReply(NamedTuple):
    """I am a member of the cluster that those with the nonces `founders` have founded, and know these incarnations,
    durably. I will accept nothing for less than `promised`; if I lead (`leads`) then in that ballot, up to `last`."""

    founders: Sequence[int]
    roster: Sequence[int]
    promised: Ballot
    leads: bool
    last: int
