"""What the clients asked and were told, in real (virtual) order: the evidence that `checks.py` judges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from logdb.log.contract import Record


@dataclass(slots=True)
class Operation:
    """One call. `invoked` and `returned` number the moments of a history; `returned` is 0 while it is open.

    `result`: a value, an exception, or `KILLED` when its client was. `reads`: what a read should find, "wrong" if
    nothing on that shard; of an append `SCATTERED`, when the policy sends its records to several shards.
    """

    request: Any
    client: str
    invoked: int
    returned: int = 0
    result: Any = None
    reads: Any = None


@dataclass(slots=True)
class Following:
    """One subscription: what it asked for and what it was given. `reached`: the GSN that comes next."""

    client: str
    start: int
    tags: frozenset[int] | None
    reached: int
    records: list[tuple[int, int, Record]] = field(default_factory=list)
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
        self.problems: list[tuple[str, str]] = []

    def invoke(self, request: Any, client: str) -> Operation:
        """A call is put."""
        self.moment += 1
        operation = Operation(request, client, self.moment)
        self.operations.append(operation)
        return operation

    def complete(self, operation: Operation, result: Any) -> None:
        """A call is answered, or its client killed."""
        self.moment += 1
        operation.returned, operation.result = self.moment, result

    def problem(self, check: str, detail: str) -> None:
        """Something that must not happen was seen while it happened."""
        self.problems.append((check, detail))
