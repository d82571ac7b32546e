"""The calls of the clients of the database and their results: the evidence for `checks.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logdb.store.records import Commit, Condition, Fold, Range, TxnId, versioned_key
from logdb.txn.validation import Verdict

Versioned = tuple[int, bytes | None]
"""(version, value) of a key; (0, None): it never existed."""


@dataclass(slots=True)
class Op:
    """One operation of one client. `invoked` and `returned` number the events of a history, `times` are virtual (ns).

    `status`: "open"; "ok"; "fail": nothing of it was or will be applied; "info": unknown. `version`: of a commit its
    place in the log, of a read the version that it read. `snapshot`: the reads of a transaction. `session`: the newest
    version that its client had seen at the beginning. `floor`: the oldest version that any server might have had at the
    end. `seen`: values read through the interface for programs, which returns no versions; `is_speculative`: another
    transaction of the process wrote them. `histories`: of keys, newest first. `error`: the exception that it ended
    with; `has_deadline`: it may end because its deadline has passed. `appended`: the keys of `writes` that get the
    version of the commit; `folds`: what the commit adds to counters, beside `writes`. `followed`: (after, end, all
    commits between these versions, by version) of a follower of the cold tier.
    """

    what: str
    client: str
    invoked: int
    times: tuple[int, int]
    status: str = "open"
    returned: int = 0
    txn: TxnId | None = None
    label: str = ""
    snapshot: int = 0
    version: int = 0
    session: int = 0
    is_linearizable: bool = False
    reads: dict[bytes, Versioned] = field(default_factory=dict)
    scans: dict[Range, dict[bytes, bytes]] = field(default_factory=dict)
    histories: dict[bytes, list[Versioned]] = field(default_factory=dict)
    seen: dict[bytes, bytes | None] = field(default_factory=dict)
    is_speculative: bool = False
    writes: dict[bytes, bytes | None] = field(default_factory=dict)
    appended: tuple[bytes, ...] = ()
    folds: tuple[Fold, ...] = ()
    conditions: tuple[Condition, ...] = ()
    verdict: Verdict | None = None
    winner: str = ""
    result: Any = None
    error: Exception | None = None
    has_deadline: bool = False
    floor: int = 0
    followed: tuple[int, int, dict[int, Commit]] | None = None

    def committed_at(self, version: int) -> None:
        """Give the keys of appends their version."""
        for key in self.appended:
            self.writes[versioned_key(key, version)] = self.writes.pop(key)
        self.appended = ()


class History:
    """All operations of a simulation, in the order in which they began."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.moment = 0

    def invoke(self, what: str, client: str, now: int) -> Op:
        """Record the beginning of an operation."""
        self.moment += 1
        op = Op(what, client, self.moment, (now, 0))
        self.ops.append(op)
        return op

    def complete(self, op: Op, status: str, now: int) -> None:
        """Record its end, as its client sees it."""
        self.moment += 1
        op.status, op.returned, op.times = status, self.moment, (op.times[0], now)
