"""Checks of the arguments of a database's methods, before anything is read or written. All raise TypeError,
ValueError."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from logdb.store.conditions import check as check_condition
from logdb.store.limits import MAX_KEY_BYTES, MAX_VALUE_BYTES, check_key, check_size, check_value
from logdb.store.records import Condition

T = TypeVar("T")

LONGEST_WAIT_S: Final = 1e9
"""A longer timeout, in seconds, counts as no timeout."""


def listed(things: Iterable[T], name: str) -> list[T]:
    """The items of an argument called `name`, as a list. A string is rejected: its items are characters or numbers."""
    if isinstance(things, str | bytes | bytearray) or not isinstance(things, Iterable):
        raise TypeError(f"{name} must be a list or another iterable of {name}, not {_kind(things)}")
    return list(things)


def checked_keys(keys: Iterable[bytes]) -> list[bytes]:
    """The keys as a list. Raises KeyTooLarge."""
    checked = listed(keys, "keys")
    for key in checked:
        if key.__class__ is not bytes or not 0 < len(key) <= MAX_KEY_BYTES:
            check_key(key)
    return checked


def checked_items(items: Mapping[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    """A copy of the items to write. Raises LimitExceeded."""
    check_items(items)
    size = 0
    for key, value in items.items():
        if key.__class__ is not bytes or not 0 < len(key) <= MAX_KEY_BYTES:
            check_key(key)
        size += len(key)
        if value is not None:
            if value.__class__ is not bytes or len(value) > MAX_VALUE_BYTES:
                check_value(key, value)
            size += len(value)
    check_size(size)
    return dict(items)


def check_items(items: Mapping[bytes, bytes | None]) -> None:
    """Check that `items` is a mapping. Its keys and values are not checked."""
    if items.__class__ is not dict and not isinstance(items, Mapping):
        raise TypeError(f"what is written must be a mapping of keys to values, not {_kind(items)}")


def checked_conditions(conditions: Iterable[Condition]) -> list[Condition]:
    """The conditions of a test-and-multi-put. Raises KeyTooLarge."""
    tested = listed(conditions, "conditions")
    for condition in tested:
        check_condition(condition)
    return tested


def checked_version(version: int) -> int:
    """A version number; it need not exist."""
    if type(version) is not int:
        raise TypeError(f"a version must be an int, not {_kind(version)}")
    if version < 0:
        raise ValueError(f"a version must not be negative: {version}")
    return version


def watched_keys(prefix: bytes | None, keys: Iterable[bytes] | None) -> frozenset[bytes] | None:
    """The keys to watch; None: all, or those with the prefix. Raises KeyTooLarge."""
    if prefix is not None and type(prefix) is not bytes:
        raise TypeError(f"prefix must be bytes, not {_kind(prefix)}")
    if prefix:
        check_key(prefix)
    return None if keys is None else frozenset(checked_keys(keys))


def checked_wait(timeout: float | None) -> float | None:
    """A timeout in seconds; None: without limit."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds or None, not {_kind(timeout)}")
    if not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds from 0 on, not {timeout}")
    return None if timeout > LONGEST_WAIT_S else timeout


def check_flag(name: str, flag: bool) -> None:
    """Check a boolean argument called `name`."""
    if flag is not True and flag is not False:
        raise TypeError(f"{name} must be True or False, not {flag!r:.100}")


def check_progress(progress: Callable[[int], None] | None) -> None:
    """Check a callback that maintenance calls with its progress."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be a function of a number, or None, not {_kind(progress)}")


def check_body(body: object) -> None:
    """Check the function that runs in a transaction."""
    if not callable(body):
        raise TypeError(f"what runs in a transaction must be a function of the transaction, not {_kind(body)}")


def check_attempts(attempts: int) -> None:
    """Check the maximum number of attempts of a transaction."""
    if type(attempts) is not int:
        raise TypeError(f"attempts must be an int, not {_kind(attempts)}")
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, not {attempts}")


def _kind(thing: object) -> str:
    return type(thing).__name__
