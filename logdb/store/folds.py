"""Folds: changes of a number under a key that commute, so transactions that make them do not conflict with each other.

A value is a number as signed decimal text: it is read, exported and shown as it is. A fold is computed where the order
of commits is known. A database of one process computes it under the lock that orders records, and logs the result as a
plain write. In a cluster the commit record has the fold, and each mapping server computes the same value when it
applies the record, from the map just before it.

Invariant FLD-1: the value of a version that folds have written is `folded` of the value that the key had just before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from logdb.errors import NotANumber
from logdb.store.limits import check_key
from logdb.store.records import LAST_FOLD_OPERATOR, MAX_DIGITS, Commit, Fold, Range, Value, number_in

ADD: Final = 1
MIN: Final = 2
MAX: Final = LAST_FOLD_OPERATOR
OPERATORS: Final[Mapping[int, Callable[[int, int], int]]] = {ADD: lambda a, b: a + b, MIN: min, MAX: max}

_LIMIT: Final[int] = 10**MAX_DIGITS


def check_fold(fold: Fold) -> None:
    """Raises TypeError, ValueError, KeyTooLarge for a fold that no caller can have meant."""
    operator, key, operand = fold
    check_key(key)
    if operator not in OPERATORS:
        raise ValueError(f"unknown fold {operator!r}")
    if type(operand) is not int:
        raise TypeError(f"only an int can be added or compared, not {type(operand).__name__}")
    if abs(operand) >= _LIMIT:
        raise ValueError(f"a number to add or to compare has at most {MAX_DIGITS} digits")


def folded(folds: Iterable[Fold], before: Callable[[bytes], Value]) -> dict[bytes, bytes]:
    """The values that the folds write, one after another; `before`: the value of a key before them. Raises
    NotANumber."""
    numbers: dict[bytes, int] = {}
    for operator, key, operand in folds:
        number = numbers.get(key)
        if number is None and (value := before(key)) is not None and (number := number_in(value)) is None:
            raise NotANumber(key)
        number = operand if number is None else OPERATORS[operator](number, operand)
        if abs(number) >= _LIMIT:
            raise NotANumber(key)
        numbers[key] = number
    return {key: b"%d" % number for key, number in numbers.items()}


def folded_commit(commit: Commit, before: Callable[[bytes], Value]) -> Commit:
    """The commit with plain writes instead of its folds, which follow its range deletes. Raises NotANumber."""
    if not commit.folds:
        return commit
    deletes = commit.deletes

    def after_deletes(key: bytes) -> Value:
        return None if _is_deleted(key, deletes) else before(key)

    return commit._replace(writes={**folded(commit.folds, after_deletes), **commit.writes}, folds=())


def _is_deleted(key: bytes, deletes: Iterable[Range]) -> bool:
    return any(start <= key and (end is None or key < end) for start, end in deletes)


def joined_fold(folds: list[Fold], fold: Fold) -> None:
    """Add a fold to those of its key, joined with the last one if it has the same operator and the sum is in bounds."""
    if folds and folds[-1].operator == fold.operator:
        operand = OPERATORS[fold.operator](folds[-1].operand, fold.operand)
        if abs(operand) < _LIMIT:
            folds[-1] = fold._replace(operand=operand)
            return
    folds.append(fold)
