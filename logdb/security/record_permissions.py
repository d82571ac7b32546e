"""The records that a client may append to the log of a database: valid transactions, values, pins and placements.

Mapping servers stop at a record that they cannot read, or that contradicts their state: all of them, permanently. So
the storage servers of a cluster with mapping servers check every record of clients, which costs some microseconds each;
only servers write the other kinds (decisions, compactions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from logdb.cluster.messages import COLD_SHARD
from logdb.cluster.placement import MAX_BYTES, decode_placement
from logdb.errors import AccessDenied
from logdb.log.contract import Record
from logdb.log.engine import all_engines
from logdb.log.requests import END
from logdb.store.conditions import check as check_condition
from logdb.store.folds import check_fold
from logdb.store.limits import INLINE_VALUE_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, check_key, check_label, check_pin
from logdb.store.ranges import MAX_BOUND_BYTES
from logdb.store.records import COMMIT, PIN, PLACEMENT, VALUE, Place, decode_commit, decode_pin


def check_messages(messages: Iterable[Any]) -> None:
    """Check the messages of a client. Raises AccessDenied."""
    for message in messages:
        if message.__class__ in _APPENDS:
            records: Sequence[Record] = message.records
            check_kinds(records)
            for tag, payload in records:
                try:
                    _CHECKS[tag](payload)
                except ValueError as error:
                    raise AccessDenied(f"no record of kind {tag} for the log of a database: {error}") from error


def check_kinds(records: Iterable[Record]) -> None:
    """Raises AccessDenied for kinds of records that clients do not write."""
    for tag, _ in records:
        if tag not in _CHECKS:
            raise AccessDenied(
                f"this log is that of a database, and clients write no records of kind {tag} there: a program that"
                " wants a log for itself needs a cluster without mapping servers"
            )


def _check_commit(payload: bytes) -> None:
    commit = decode_commit(payload, 0)
    if not commit.sequence:
        raise ValueError("its transaction has no number")
    _check_position(commit.sequence)
    _check_position(commit.snapshot)
    for key, value in commit.writes.items():
        if not 0 < len(key) <= MAX_KEY_BYTES:
            check_key(key)
        if value.__class__ is Place:
            _check_place(value)
        elif value is not None and len(value) > INLINE_VALUE_BYTES:
            raise ValueError(f"a value of {len(value):,} bytes is in it, the limit is {INLINE_VALUE_BYTES:,}")
    if commit.label:
        check_label(commit.label)
    for key in commit.reads:
        check_key(key)
    for start, end in (*commit.ranges, *commit.deletes):
        if len(start) > MAX_BOUND_BYTES or len(end or b"") > MAX_BOUND_BYTES:
            raise ValueError(f"a range is bounded by more than {MAX_BOUND_BYTES:,} bytes")
    for condition in commit.conditions:
        check_condition(condition)
    for fold in commit.folds:
        check_fold(fold)


def _check_place(place: Place) -> None:
    _check_position(place.gsn)
    if place.shard == COLD_SHARD:
        raise ValueError("a value that it writes is in the cold tier")
    if place.length > MAX_VALUE_BYTES:
        raise ValueError(f"a value that it writes has more than {MAX_VALUE_BYTES:,} bytes")


def _check_position(number: int) -> None:
    if number > END:
        raise ValueError(f"{number} is neither a version nor the number of a transaction")


def _check_value(payload: bytes) -> None:
    if len(payload) > MAX_VALUE_BYTES:
        raise ValueError(f"it has {len(payload):,} bytes, the limit is {MAX_VALUE_BYTES:,}")


def _check_pin(payload: bytes) -> None:
    name, version = decode_pin(payload)
    check_pin(name)
    _check_position(version)


def _check_placement(payload: bytes) -> None:
    if len(payload) > MAX_BYTES:
        raise ValueError(f"it has {len(payload):,} bytes, the limit is {MAX_BYTES:,}")
    decode_placement(payload)


_APPENDS: Final[set[Any]] = {kind for engine in all_engines() for kind in engine.wire.appends}
_CHECKS: Final[dict[int, Callable[[bytes], None]]] = {
    COMMIT: _check_commit,
    VALUE: _check_value,
    PIN: _check_pin,
    PLACEMENT: _check_placement,
}
