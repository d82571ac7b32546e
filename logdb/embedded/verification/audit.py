"""The audit: decides every commit of a log again, and compares the decisions with the recorded ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from logdb.embedded.backend import EmbeddedBackend
from logdb.embedded.verification.examination import Examination, first_difference
from logdb.log.local.local_log import LocalLog


class Audit(NamedTuple):
    """The result of an audit. `trusted`: commits before a compaction, whose decisions follow from records that it has
    dropped.

    `difference`: the first commit that was decided differently, None if there is none.
    """

    commits: int
    aborted: int
    trusted: int
    through: int
    difference: str | None


def audit_log(host: EmbeddedBackend, progress: Callable[[int, int], None] | None = None) -> Audit:
    """Decide again every commit up to the newest version of `host`, and compare with its state and decision records."""
    log, through = host.log, host.version()
    assert isinstance(log, LocalLog)
    size = sum(segment.length for segment in log.store.segments)
    read = 0

    def report(done: int) -> None:
        if progress is not None:
            progress(through * done // (2 * size), through)

    def reading(more: int) -> None:
        nonlocal read
        read += more
        report(min(read, size))

    with Examination(log, host.log_id, size) as examination:
        _, _, damage, _ = examination.read(through, reading, maps=False)
        if damage:
            raise damage[0]
        ledger, floor = host.machine.coordinator.ledger, host.machine.coordinator.floor
        decided, _, _ = examination.decide(
            ledger.aborted, floor, lambda done, of_all: report(size + size * done // of_all), maps=False
        )
    claims = (
        ("its decision record says", decided.declared, 0, decided.declared_through),
        ("the database holds", ledger.aborted, floor, through),
    )
    difference = first_difference(log, decided, claims)
    return Audit(decided.commits, len(decided.aborted), decided.trusted, through, difference)
