"""How many commit records a process has decided, and why those that were not applied aborted."""

from __future__ import annotations

from typing import Final

from logdb.txn.validation import Reason

MAX_LABELS: Final = 200
"""Further labels are counted as `OTHERS`: a program may make a label of each argument."""
OTHERS: Final = "(others)"


class VerdictCounts:
    """Counts the verdicts since the process started, a replay included. `commits`: the records applied; `aborts`: the
    others, by reason and label. Written by one thread, and read by any."""

    def __init__(self) -> None:
        self.commits = 0
        self.aborts: dict[tuple[Reason, str], int] = {}
        self._labels: set[str] = set()

    def add_abort(self, reason: Reason, label: str) -> None:
        """Count a commit record that was not applied."""
        if label not in self._labels:
            if len(self._labels) >= MAX_LABELS:
                label = OTHERS
            self._labels.add(label)
        self.aborts[reason, label] = self.aborts.get((reason, label), 0) + 1

    def listed(self) -> list[tuple[str, str, int]]:
        """(name of the reason in small letters, label, number) of the aborts, the most frequent first."""
        found = [(reason.name.lower(), label, number) for (reason, label), number in list(self.aborts.items())]
        return sorted(found, key=lambda one: (-one[2], one))
