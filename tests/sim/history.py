"""The calls of the clients and their results, in the order of simulated time: the evidence for `checks.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logdb.log.contract import Record


@dataclass(slots=True)
class Operation:
    """One call. `invoked` and `returned` number the events of a history; `returned` is 0 while the call is open.

    `result`: a value, an exception, or `KILLED` if the client was killed. `reads`: what a read should return, "wrong"
    if the shard has no such record; of an append `SCATTERED`, if the policy sends its records to several shards.
    """

    request: Any
    client: str
    invoked: int
    returned: int = 0
    result: Any = None
    reads: Any = None


@dataclass(slots=True)
class Following:
    """One subscription: its parameters and the delivered records. `reached`: the next GSN. `trimmed`: records that were
    reported as trimmed one by one."""

    client: str
    start: int
    tags: frozenset[int] | None
    reached: int
    records: list[tuple[int, int, Record]] = field(default_factory=list)
    trimmed: set[int] = field(default_factory=set)
    ended: Any = None
    limit: int = 0


KILLED = "killed"
SCATTERED = "scattered"


class History:
    """All operations and subscriptions of a simulation."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.followings: list[Following] = []
        self.moment = 0
        self.highest_trim = 0
        self.trims: set[int] = set()
        """Records that were to be trimmed one by one."""
        self.trimmed: set[int] = set()
        """The part of `trims` for which that has returned."""
        self.problems: list[tuple[str, str]] = []

    def invoke(self, request: Any, client: str) -> Operation:
        """Record a new call."""
        self.moment += 1
        operation = Operation(request, client, self.moment)
        self.operations.append(operation)
        return operation

    def complete(self, operation: Operation, result: Any) -> None:
        """Record the result of a call, or the end of its client."""
        self.moment += 1
        operation.returned, operation.result = self.moment, result

    def problem(self, check: str, detail: str) -> None:
        """Record a violation that was observed while the simulation ran."""
        self.problems.append((check, detail))
