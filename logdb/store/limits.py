"""The limits of keys, values and transactions, checked before anything is written."""

from __future__ import annotations

from typing import Final

from logdb.errors import KeyTooLarge, TransactionTooLarge, ValueTooLarge, shown

MAX_KEY_BYTES: Final = 8 << 10
"""Maximum length of a key, in bytes."""
MAX_VALUE_BYTES: Final = 64 << 20
"""Maximum length of a value, in bytes."""
MAX_TRANSACTION_BYTES: Final = 256 << 20
"""Maximum size of all keys and values that a transaction writes, in bytes."""
MAX_LABEL_BYTES: Final = 1 << 10
MAX_PIN_BYTES: Final = 400
MAX_NAME_BYTES: Final = 1 << 10
"""Maximum length of the name of a named log, a table, an index or a field, in bytes: part of keys, where it may take
twice as much."""
INLINE_VALUE_BYTES: Final = 4 << 10
"""A longer value, in bytes, is a separate record, to which the commit record refers."""


def check_key(key: bytes) -> None:
    """Raises TypeError, ValueError (empty) or KeyTooLarge."""
    if type(key) is not bytes:
        raise TypeError(f"a key must be bytes, not {type(key).__name__}{_how_to_convert(key)}")
    if not key:
        raise ValueError("a key must not be empty")
    if len(key) > MAX_KEY_BYTES:
        raise KeyTooLarge(len(key), MAX_KEY_BYTES, f" {shown(key)}")


def check_value(key: bytes, value: bytes) -> None:
    """Raises TypeError or ValueTooLarge."""
    if type(value) is not bytes:
        raise TypeError(
            f"the value of key {shown(key)} must be bytes, not {type(value).__name__}{_how_to_convert(value)}"
        )
    if len(value) > MAX_VALUE_BYTES:
        raise ValueTooLarge(len(value), MAX_VALUE_BYTES, f" of key {shown(key)}")


def check_label(label: str) -> None:
    """Raises TypeError or ValueError."""
    if type(label) is not str:
        raise TypeError(f"a label must be a str, not {type(label).__name__}")
    if (size := _encoded_bytes("a label", label)) > MAX_LABEL_BYTES:
        raise ValueError(f"the label has {size:,} bytes, the limit is {MAX_LABEL_BYTES:,}; nothing was written")


def check_name(what: str, name: str, max_bytes: int = MAX_NAME_BYTES) -> None:
    """Check the name of `what`, for example "a pin". Raises TypeError, ValueError."""
    if type(name) is not str:
        raise TypeError(f"the name of {what} must be a str, not {type(name).__name__}")
    if not 0 < (size := _encoded_bytes(f"the name of {what}", name)) <= max_bytes:
        raise ValueError(f"the name of {what} must have 1 to {max_bytes:,} bytes, not {size:,}")


def check_pin(name: str) -> None:
    """Raises TypeError, ValueError."""
    check_name("a pin", name, MAX_PIN_BYTES)


def check_size(size: int) -> None:
    """`size`: bytes of all keys and values of one transaction. Raises TransactionTooLarge."""
    if size > MAX_TRANSACTION_BYTES:
        raise TransactionTooLarge(size, MAX_TRANSACTION_BYTES)


def _encoded_bytes(argument: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{argument} must be text that has a UTF-8 encoding, not {text!r:.100}") from error


def _how_to_convert(thing: object) -> str:
    if isinstance(thing, str):
        return "; encode it first, for example with .encode()"
    if isinstance(thing, bytearray | memoryview):
        return "; make a copy with bytes(...)"
    if thing is None:
        return "; use delete() to remove a key"
    return ""
