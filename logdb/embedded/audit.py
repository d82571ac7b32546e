"""Deciding every commit of a log again, and comparing with what had been decided."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from logdb.embedded.aside import replayed_aside
from logdb.embedded.host import EmbeddedHost
from logdb.log.contract import LogRecord
from logdb.store.records import DECISION, Commit, TxnId, decode_decision
from logdb.txn.validation import Verdict


class Audit(NamedTuple):
    """What an audit found. `trusted`: commits that stand before a compaction, decided by what it has dropped since.

    `difference`: the first commit that was decided differently, None if there is none.
    """

    commits: int
    aborted: int
    trusted: int
    through: int
    difference: str | None


class _Declared:
    """What the decision records of a log say."""

    def __init__(self, host: EmbeddedHost, oldest: int, through: int) -> None:
        self.aborted: list[int] = []
        self.through = 0
        for record in host.log.scan(oldest, through + 1):
            if record.tag == DECISION:
                decision = decode_decision(record.payload)
                self.aborted += decision.aborted
                self.through = max(self.through, decision.through)

    def is_aborted(self, gsn: int) -> bool:
        at = bisect_left(self.aborted, gsn)
        return at < len(self.aborted) and self.aborted[at] == gsn


def audit_log(host: EmbeddedHost, progress: Callable[[int, int], None] | None = None) -> Audit:
    """Decide again every commit up to the newest version of `host`, and compare with its state and decision records."""
    through = host.version()
    oldest = host.log.left_by_trim(host.log.oldest())
    declared = _Declared(host, oldest, through)
    trusted_through = declared.through if oldest > 1 else 0
    commits = aborted = trusted = 0
    difference: str | None = None

    def compare(record: LogRecord, commit: Commit, verdict: Verdict) -> None:
        nonlocal commits, aborted, trusted, difference
        gsn = record.lsn
        commits += 1
        aborted += not verdict.committed
        if gsn <= trusted_through:
            trusted += 1
        if difference is not None:
            return
        then = []
        if gsn <= declared.through:
            then.append(("its decision record says", not declared.is_aborted(gsn)))
        if gsn > host.coordinator.floor:
            then.append(("the database holds", not host.coordinator.ledger.is_aborted(gsn)))
        for who, committed in then:
            if committed != verdict.committed:
                said = "committed" if committed else "aborted"
                difference = (
                    f"transaction {TxnId(commit.client, commit.sequence)} at version {gsn}"
                    f"{f' ({commit.label})' if commit.label else ''}: {who} {said}, "
                    f"but the log decides: {verdict.reason.value}"
                )
                return

    with replayed_aside(host.log, host.log_id, through, on_verdict=compare, progress=progress):
        return Audit(commits, aborted, trusted, through, difference)
