"""The conditions of a test-and-multi-put: how a caller makes one, and the pure rule that decides it.

Scalog-Store, dissertation section 3.4.2 (after Corfu-Store). A condition looks at the newest version of one key as of
the commit's own place in the log. The version of a key that does not exist is 0.
"""

from __future__ import annotations

from typing import Final

from logdb.errors import ValueTooLarge, shown
from logdb.store.limits import INLINE_VALUE_BYTES, MAX_VALUE_BYTES, check_key, check_value
from logdb.store.records import FIRST_VERSION_OPERATOR, Condition, Place, Value, digest

EQUALS: Final = 1
ABSENT: Final = 2
EXISTS: Final = 3
VERSION_EQUALS: Final = FIRST_VERSION_OPERATOR
VERSION_LESS: Final = FIRST_VERSION_OPERATOR + 1
VERSION_GREATER: Final = FIRST_VERSION_OPERATOR + 2

NAMES: Final = {
    EQUALS: "equals",
    ABSENT: "absent",
    EXISTS: "exists",
    VERSION_EQUALS: "version_equals",
    VERSION_LESS: "version_less",
    VERSION_GREATER: "version_greater",
}


def equals(key: bytes, value: bytes) -> Condition:
    """The condition that `key` exists and holds `value`. Raises TypeError, ValueError, LimitExceeded."""
    check_key(key)
    check_value(key, value)
    if len(value) > INLINE_VALUE_BYTES:
        return Condition(EQUALS, key, Place(0, 0, len(value), digest(value)))
    return Condition(EQUALS, key, value)


def absent(key: bytes) -> Condition:
    """The condition that `key` does not exist. Raises TypeError, ValueError, KeyTooLarge."""
    check_key(key)
    return Condition(ABSENT, key)


def exists(key: bytes) -> Condition:
    """The condition that `key` exists. Raises as `absent`."""
    check_key(key)
    return Condition(EXISTS, key)


def version_equals(key: bytes, version: int) -> Condition:
    """The condition that the newest version of `key` is `version`; 0: the key does not exist. Raises as `absent`."""
    return _on_version(VERSION_EQUALS, key, version)


def version_less(key: bytes, version: int) -> Condition:
    """The condition that the newest version of `key` is before `version`, or that it does not exist. Raises as
    `absent`.
    """
    return _on_version(VERSION_LESS, key, version)


def version_greater(key: bytes, version: int) -> Condition:
    """The condition that `key` exists and its newest version is after `version`. Raises as `absent`."""
    return _on_version(VERSION_GREATER, key, version)


def check(condition: Condition) -> None:
    """Raises TypeError, ValueError, KeyTooLarge for a condition that none of the functions above can have made."""
    makers = "logdb.equals, absent, exists, version_equals, version_less, version_greater"
    if not isinstance(condition, Condition):
        raise TypeError(f"a condition is made by one of {makers}, not {condition!r}")
    operator, key, operand = condition
    check_key(key)
    if operator in (VERSION_EQUALS, VERSION_LESS, VERSION_GREATER):
        _on_version(operator, key, operand)  # type: ignore[arg-type]
    elif operator == EQUALS:
        if type(operand) is not bytes and not isinstance(operand, Place):
            raise TypeError(f"equals takes bytes, not {type(operand).__name__}: make conditions by one of {makers}")
        if isinstance(operand, Place) and operand.length > MAX_VALUE_BYTES:
            raise ValueTooLarge(operand.length, MAX_VALUE_BYTES, f" of key {shown(key)}")
    elif operator not in (ABSENT, EXISTS) or operand is not None:
        raise ValueError(f"unknown condition {operator!r} with operand {operand!r}: use one of {makers}")


def holds(condition: Condition, version: int, value: Value) -> bool:
    """Whether `condition` holds for a key whose newest version is `version` (0: none) with `value` (None: deleted)."""
    operator, _, operand = condition
    if operator == EQUALS:
        if isinstance(operand, Place) and isinstance(value, Place):
            return (operand.length, operand.digest) == (value.length, value.digest)
        return value is not None and operand == value
    if operator == ABSENT:
        return value is None
    if operator == EXISTS:
        return value is not None
    assert isinstance(operand, int), f"operator {operator} takes a version"
    found = version if value is not None else 0
    if operator == VERSION_EQUALS:
        return found == operand
    if operator == VERSION_LESS:
        return found < operand
    assert operator == VERSION_GREATER, f"unknown operator {operator}"
    return found > operand


def _on_version(operator: int, key: bytes, version: int) -> Condition:
    check_key(key)
    if type(version) is not int:
        raise TypeError(f"a version must be an int, not {type(version).__name__}")
    if not 0 <= version < 1 << 64:
        raise ValueError(f"a version must be between 0 and 2**64 - 1, not {version}")
    return Condition(operator, key, version)
