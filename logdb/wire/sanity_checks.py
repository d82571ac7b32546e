"""Checks of the values in a message, before a core receives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from logdb.cluster.messages import EndTurn, Get, History, MultiScan, Reads, Scan, Section, SliceRequest, Turn
from logdb.log.engine import all_engines
from logdb.store.limits import MAX_KEY_BYTES
from logdb.store.ranges import MAX_BOUND_BYTES
from logdb.txn.ledger import ROW_KEY_BYTES
from logdb.wire.limits import WireError


def check_sense(messages: Iterable[Any]) -> None:
    """Raises WireError."""
    for message in messages:
        check = _CHECKS.get(message.__class__)
        if check is not None:
            check(message)


def _check_reads(reads: Reads) -> None:
    for read in reads.reads:
        question = read.question
        if question.__class__ is Get:
            for key in question.keys:
                _check_key(key)
        elif question.__class__ is History or question.__class__ is Turn:
            _check_key(question.key)
        elif question.__class__ is Scan:
            _check_scan(question)
        elif question.__class__ is MultiScan:
            for scan in question.scans:
                _check_scan(scan)


def _check_end_turn(end: EndTurn) -> None:
    _check_key(end.key)


def _check_scan(scan: Scan) -> None:
    if scan.rows < 1:
        raise WireError("a scan for no rows")
    for bound in (scan.start, scan.end):
        if bound is not None and len(bound) > MAX_BOUND_BYTES:
            raise WireError(f"a scan bounded by {len(bound):,} bytes, the limit is {MAX_BOUND_BYTES:,}")


def _check_key(key: bytes) -> None:
    if not 0 < len(key) <= MAX_KEY_BYTES:
        raise WireError(f"a read of a key of {len(key):,} bytes, keys have 1 to {MAX_KEY_BYTES:,}")


def _check_slice_request(request: SliceRequest) -> None:
    after = request.cursor.after if request.cursor is not None and request.cursor.section == Section.LEDGER else b""
    if after and len(after) != ROW_KEY_BYTES.get(after[:1]):
        raise WireError(f"a slice of the ledger from {after[:20]!r} on, which is not a row key")


def _check_runs(field: str) -> Callable[[Any], None]:
    """Of a request about the records of a client in (first, count) runs: they ascend and do not overlap, so the answer
    costs no more than the request and the records there are."""

    def check(request: Any) -> None:
        end = 0
        for first, count in getattr(request, field):
            if first < end or count < 1:
                raise WireError(f"a {type(request).__name__} whose runs of records overlap or do not ascend")
            end = first + count

    return check


_CHECKS: Final[dict[type, Callable[[Any], None]]] = {
    **{kind: _check_runs(field) for engine in all_engines() for kind, field in engine.wire.sliced_fields.items()},
    EndTurn: _check_end_turn,
    Reads: _check_reads,
    SliceRequest: _check_slice_request,
}
