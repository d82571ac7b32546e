"""Tuples as keys: `pack` makes bytes of a tuple and `unpack` the tuple of the bytes. The bytes order as the tuples do.

    from logdb import keys

    db.put(keys.pack(("user", 7)), b"Ada")
    for key, value in db.scan(*keys.Subspace("user").range()):
        _, number = keys.unpack(key)

The encoding is that of FoundationDB's tuple layer (`design/tuple.md` of apple/foundationdb), so its other
implementations read these keys. Items order by kind first, in this order, and then by value:

    None                     0x00
    bytes                    0x01
    str                      0x02          by code point
    tuple                    0x05          item by item; a tuple comes after its prefixes
    int                      0x0b to 0x1d  any size up to 65,535 bytes; from 256 bytes on (no other implementation
                                           has these) 0x0a and 0x1e
    float                    0x21          by IEEE 754's total order: -nan, -inf, ..., -0.0, 0.0, ..., inf, nan
    bool                     0x26, 0x27    False before True
    UUID                     0x30
    datetime with a zone     0x40          the instant, in microseconds; unpacked with the zone UTC
    datetime without a zone  0x41          what the clock shows

The last two are of the codes that FoundationDB reserves for its users. So the int 1, the float 1.0 and True are three
keys: give each position of your keys one type. `Item` is the type of an element.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias
from uuid import UUID

from logdb.store.limits import check_key
from logdb.store.ranges import after_prefix

__all__ = ["Item", "Subspace", "pack", "prefix_range", "unpack"]

Item: TypeAlias = "bytes | str | int | float | bool | dt.datetime | UUID | tuple[Item, ...] | None"
"""An element of a tuple that can be packed."""

NULL, BYTES, TEXT, NESTED = 0x00, 0x01, 0x02, 0x05
HUGE_NEGATIVE, LARGE_NEGATIVE, ZERO, LARGE_POSITIVE, HUGE_POSITIVE = 0x0A, 0x0B, 0x14, 0x1D, 0x1E
DOUBLE, FALSE, TRUE, IDENTIFIER, INSTANT, CLOCK_TIME = 0x21, 0x26, 0x27, 0x30, 0x40, 0x41

SMALL_INT_BYTES: Final = 8
"""Maximum size of an int whose size is in its type code."""
LARGE_INT_BYTES: Final = 0xFF
HUGE_INT_BYTES: Final = 0xFFFF

END: Final = b"\x00"
ESCAPED: Final = b"\x00\xff"
"""A zero byte in bytes and text, and None in a nested tuple."""

_DOUBLE: Final = struct.Struct(">d")
SIGN: Final = 1 << 63
ALL_BITS: Final = (1 << 64) - 1
EPOCH: Final = dt.datetime(1970, 1, 1)
EPOCH_UTC: Final = EPOCH.replace(tzinfo=dt.UTC)
MICROSECOND: Final = dt.timedelta(microseconds=1)
FIRST_US, LAST_US = ((bound - EPOCH) // MICROSECOND for bound in (dt.datetime.min, dt.datetime.max))


def pack(items: tuple[Item, ...]) -> bytes:
    """The key of the tuple `items`: for two tuples a < b, pack(a) < pack(b), by the order of this module.

    Items of a subclass, such as an IntEnum or a named tuple, are packed as their base. The result of an empty tuple is
    empty, and not a key of a database; that of others is limited by `logdb.MAX_KEY_BYTES` when it is used.

    Raises TypeError for an item of another type; ValueError for text without a UTF-8 encoding (lone surrogates), an int
    of more than 65,535 bytes, a datetime whose instant is not in the years 1 to 9999 of UTC, and tuples that are nested
    too deeply for Python's stack.
    """
    if not isinstance(items, tuple):
        raise TypeError(f"what is packed must be a tuple, not {type(items).__name__}; for one item x write (x,)")
    try:
        try:
            return b"".join([_PACKED[item.__class__](item) for item in items])
        except KeyError:  # subclasses
            return b"".join(map(_packed, items))
    except RecursionError:
        raise ValueError("the tuples in the key are nested too deeply") from None


def unpack(key: bytes) -> tuple[Item, ...]:
    """The tuple that `pack` has made `key` of: pack(unpack(key)) == key.

    Raises TypeError, and ValueError for bytes that `pack` does not return: cut off, with an unknown type code, or not
    the shortest form.
    """
    _check_packed(key)
    return _unpacked(key, 0)


def prefix_range(prefix: bytes) -> tuple[bytes, bytes | None]:
    """(start, end) of the keys that begin with the bytes `prefix`, for `scan` and `multi_scan`; None: no end.

    Raises TypeError, ValueError, KeyTooLarge for bytes that no key begins with.
    """
    check_key(prefix)
    return prefix, after_prefix(prefix)


class Subspace:
    """The keys of the tuples that begin with `prefix`, a tuple: packs and unpacks what comes after it.

    Two subspaces have no key in common unless the prefix of one begins with that of the other. `key`: the bytes of the
    prefix.
    """

    __slots__ = ("key", "prefix")

    def __init__(self, *prefix: Item) -> None:
        self.prefix: tuple[Item, ...] = prefix
        self.key = pack(prefix)

    def pack(self, items: tuple[Item, ...] = ()) -> bytes:
        """The key of the tuple `items` after the prefix. Raises as `logdb.keys.pack`."""
        return self.key + pack(items)

    def unpack(self, key: bytes) -> tuple[Item, ...]:
        """The tuple after the prefix in `key`. Raises ValueError for a key that is not in the subspace, and as
        `logdb.keys.unpack`.
        """
        _check_packed(key)
        if key not in self:
            raise ValueError(f"the key {key!r:.100} is not in {self!r:.100}")
        return _unpacked(key, len(self.key))

    def range(self, items: tuple[Item, ...] = ()) -> tuple[bytes, bytes]:
        """(start, end) of the keys of all tuples that continue `items` after the prefix, for `scan` and `multi_scan`.

        The tuple `items` itself is not among them. Raises as `logdb.keys.pack`.
        """
        key = self.pack(items)
        return key + b"\x00", key + b"\xff"

    def subspace(self, *items: Item) -> Subspace:
        """The subspace of the tuples that begin with `items` after the prefix. Raises as `logdb.keys.pack`."""
        return Subspace(*self.prefix, *items)

    def __contains__(self, key: bytes) -> bool:
        """Whether `key` is one of the subspace. A prefix of the bytes is not enough: they can end within a text."""
        end = len(self.key)
        return key.startswith(self.key) and key[end : end + 1] != b"\xff"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subspace) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Subspace({', '.join(map(repr, self.prefix))})"


# ---- packing


def _packed(item: Any) -> bytes:
    if packed := _PACKED.get(item.__class__):
        return packed(item)
    for kind, packed in _PACKED.items():
        if isinstance(item, kind):
            return packed(item)
    raise TypeError(
        f"a key is made of None, bytes, str, int, float, bool, datetime, UUID and tuples of these, not of"
        f" {type(item).__name__}"
    )


_SIZES: Final = [bytes((ZERO + size,)) for size in range(SMALL_INT_BYTES + 1)]


def _text(item: str) -> bytes:
    return b"\x02%b\x00" % item.encode().replace(END, ESCAPED)


def _bytes(item: bytes) -> bytes:
    return b"\x01%b\x00" % item.replace(END, ESCAPED)


def _nested(items: tuple[Item, ...]) -> bytes:
    parts = [ESCAPED if item is None else _packed(item) for item in items]
    return b"\x05%b\x00" % b"".join(parts)


def _int(item: int) -> bytes:
    if item >= 0:
        size = (item.bit_length() + 7) >> 3
        if size <= SMALL_INT_BYTES:
            return _SIZES[size] + item.to_bytes(size, "big")
        head, code, mask = size, (LARGE_POSITIVE, HUGE_POSITIVE), 0
    else:
        size = ((-item).bit_length() + 7) >> 3
        item += (1 << 8 * size) - 1  # ones' complement: negative numbers order as the bits do
        if size <= SMALL_INT_BYTES:
            return bytes((ZERO - size,)) + item.to_bytes(size, "big")
        head, code, mask = ~size, (LARGE_NEGATIVE, HUGE_NEGATIVE), HUGE_INT_BYTES
    if size <= LARGE_INT_BYTES:
        return bytes((code[0], head & LARGE_INT_BYTES)) + item.to_bytes(size, "big")
    if size > HUGE_INT_BYTES:
        raise ValueError(f"an int in a key has at most {HUGE_INT_BYTES:,} bytes, not {size:,}")
    return bytes((code[1],)) + (size ^ mask).to_bytes(2, "big") + item.to_bytes(size, "big")


def _float(item: float) -> bytes:
    bits = int.from_bytes(_DOUBLE.pack(item))
    return b"\x21" + (bits ^ ALL_BITS if bits & SIGN else bits | SIGN).to_bytes(8, "big")


def _bool(item: bool) -> bytes:
    return b"\x27" if item else b"\x26"


def _identifier(item: UUID) -> bytes:
    return b"\x30" + item.bytes


def _time(item: dt.datetime) -> bytes:
    if item.utcoffset() is None:
        return b"\x41" + ((item.replace(tzinfo=None) - EPOCH) // MICROSECOND + SIGN).to_bytes(8, "big")
    since = (item - EPOCH_UTC) // MICROSECOND
    if not FIRST_US <= since <= LAST_US:
        raise ValueError(f"the datetime {item!r} is not in the years 1 to 9999 of UTC")
    return b"\x40" + (since + SIGN).to_bytes(8, "big")


_PACKED: Final[dict[type, Callable[[Any], bytes]]] = {
    str: _text,
    bool: _bool,  # a bool is an int, too
    int: _int,
    bytes: _bytes,
    UUID: _identifier,
    float: _float,
    type(None): lambda _: b"\x00",
    dt.datetime: _time,
    tuple: _nested,
}


# ---- unpacking


def _check_packed(key: bytes) -> None:
    if type(key) is not bytes:
        raise TypeError(f"what is unpacked must be bytes, not {type(key).__name__}")


def _unpacked(key: bytes, at: int) -> tuple[Item, ...]:
    """The items from the position `at` on."""
    items = []
    try:
        while at < len(key):
            item, at = _item(key, at)
            items.append(item)
    except RecursionError:
        raise _refused(key, at, "the tuples are nested too deeply") from None
    return tuple(items)


def _item(key: bytes, at: int) -> tuple[Any, int]:
    """The item that begins at the position `at`, and the position after it."""
    code = key[at]
    at += 1
    if code in (BYTES, TEXT):
        raw, at = _terminated(key, at)
        return (raw if code == BYTES else _decoded(raw)), at
    if HUGE_NEGATIVE <= code <= HUGE_POSITIVE:
        return _unpacked_int(key, code, at)
    if code in _CONSTANTS:
        return _CONSTANTS[code], at
    if code == NESTED:
        return _unpacked_nested(key, at)
    if code == DOUBLE:
        bits = int.from_bytes(_cut(key, at, 8))
        raw = (bits ^ SIGN if bits & SIGN else bits ^ ALL_BITS).to_bytes(8, "big")
        return _DOUBLE.unpack(raw)[0], at + 8
    if code == IDENTIFIER:
        return UUID(bytes=_cut(key, at, 16)), at + 16
    if code in (INSTANT, CLOCK_TIME):
        since = int.from_bytes(_cut(key, at, 8)) - SIGN
        if not FIRST_US <= since <= LAST_US:
            raise _refused(key, at, "the datetime is not in the years 1 to 9999")
        return (EPOCH_UTC if code == INSTANT else EPOCH) + dt.timedelta(microseconds=since), at + 8
    raise _refused(key, at - 1, f"unknown type code {code:#04x}")


_CONSTANTS: Final = {NULL: None, FALSE: False, TRUE: True}


def _unpacked_nested(key: bytes, at: int) -> tuple[tuple[Any, ...], int]:
    items: list[Any] = []
    while (code := _cut(key, at, 1)) != END or key[at : at + 2] == ESCAPED:
        if code == END:
            item, at = None, at + 2
        else:
            item, at = _item(key, at)
        items.append(item)
    return tuple(items), at + 1


def _unpacked_int(key: bytes, code: int, at: int) -> tuple[int, int]:
    size, least = abs(code - ZERO), 0
    is_negative = code < ZERO
    if size > SMALL_INT_BYTES:
        width, least = (1, SMALL_INT_BYTES) if code in (LARGE_NEGATIVE, LARGE_POSITIVE) else (2, LARGE_INT_BYTES)
        size = int.from_bytes(_cut(key, at, width))
        if is_negative:
            size ^= (1 << 8 * width) - 1
        at += width
    number = int.from_bytes(_cut(key, at, size))
    if is_negative:
        number -= (1 << 8 * size) - 1
    if (least and size <= least) or (number.bit_length() + 7) >> 3 != size:
        raise _refused(key, at, "an int that is not in its shortest form")
    return number, at + size


def _terminated(key: bytes, at: int) -> tuple[bytes, int]:
    """The bytes up to the next zero byte that is not escaped, and the position after it."""
    start = at
    while (end := key.find(END, at)) >= 0:
        if key[end + 1 : end + 2] != b"\xff":
            return key[start:end].replace(ESCAPED, END), end + 1
        at = end + 2
    raise _refused(key, start, "bytes or text without an end")


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"the key has text that is not UTF-8: {raw!r:.100}") from error


def _cut(key: bytes, at: int, size: int) -> bytes:
    if at + size > len(key):
        raise _refused(key, at, "the key is cut off")
    return key[at : at + size]


def _refused(key: bytes, at: int, why: str) -> ValueError:
    """The error for bytes that `pack` does not return."""
    return ValueError(f"no packed tuple: {why}, at byte {at} of {key!r:.100}")
