"""Bytes on a page: a notation for keys that can be typed and read back, and views of values."""

from __future__ import annotations

import codecs
import json
import math
import re
from decimal import Decimal
from itertools import accumulate, takewhile
from typing import Any, Final, NamedTuple

from logdb import keys

VIEW_BYTES: Final = 16 << 10
"""A view shows the first bytes of a value, at most this number."""
VIEW_CHARACTERS: Final = 64 << 10
PREVIEW_BYTES: Final = 160
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(\\)|(?=.|$))")


def text_of(data: bytes) -> str:
    r"""`data` as text that `bytes_of` reads: `\xNN` for a byte that cannot be printed, `\\` for a backslash."""
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join([char if char.isprintable() and char != "\\" else _escaped(char) for char in text])


def _escaped(char: str) -> str:
    if char == "\\":
        return r"\\"
    return "".join([f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape")])


def bytes_of(text: str) -> bytes:
    """The inverse of `text_of`. Raises ValueError."""
    parts, end = [], 0
    for escape in _ESCAPE.finditer(text):
        parts.append(_encoded(text[end : escape.start()]))
        if escape[1] is not None:
            parts.append(bytes.fromhex(escape[1]))
        elif escape[2] is not None:
            parts.append(b"\\")
        else:
            raise ValueError(r"a backslash begins \xNN, a byte in hexadecimal, or is written \\")
        end = escape.end()
    return b"".join([*parts, _encoded(text[end:])])


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("the text is not UTF-8") from error


def tuple_of(key: bytes) -> str:
    """The parts of a key that `logdb.keys.pack` made, "" for another key."""
    try:
        items = keys.unpack(key)
    except (ValueError, TypeError, RecursionError):
        return ""
    return repr(items) if items else ""


class ValueView(NamedTuple):
    """A value on a page. `kind`: "JSON", "text" or "bytes"; `is_cut`: whether `text` is only the beginning."""

    kind: str
    text: str
    size_bytes: int
    is_cut: bool


def view_of(value: bytes) -> ValueView:
    """The view of a value, as what it seems to be."""
    shown, size = value[:VIEW_BYTES], len(value)
    if size <= VIEW_BYTES and value[:1] in (b"{", b"["):
        text = _indented(value)
        if text:
            return ValueView("JSON", text[:VIEW_CHARACTERS], size, len(text) > VIEW_CHARACTERS)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(shown, final=size <= VIEW_BYTES)
    except UnicodeDecodeError:
        return ValueView("bytes", _dump(shown), size, size > VIEW_BYTES)
    if any(not char.isprintable() and char not in "\n\t\r" for char in text):
        return ValueView("bytes", _dump(shown), size, size > VIEW_BYTES)
    return ValueView("text", text, size, size > VIEW_BYTES)


def _indented(value: bytes) -> str:
    """The JSON text with indents, up to a limit; "" for another text, and for JSON that Python cannot represent."""
    try:
        found = json.loads(value, parse_float=_exact, parse_constant=_exact, object_pairs_hook=_unique)
        parts = json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(found)
        lengths = accumulate(parts, lambda all_, part: (all_[0] + len(part), part), initial=(0, ""))
        text = "".join([part for _, part in takewhile(lambda one: one[0] <= 2 * VIEW_CHARACTERS, lengths)])
        text.encode()
    except (ValueError, ArithmeticError, RecursionError):
        return ""
    return text


def _exact(text: str) -> float:
    number = float(text)
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(text):
        raise ValueError
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _dump(data: bytes) -> str:
    """Lines of 16 bytes: where they begin, in hexadecimal, as ASCII."""
    lines = []
    for at in range(0, len(data), 16):
        line = data[at : at + 16]
        text = "".join([chr(byte) if 32 <= byte < 127 else "." for byte in line])
        lines.append(f"{at:06x}  {line.hex(' '):47}  {text}")
    return "\n".join(lines)


def preview_of(value: bytes) -> str:
    """The beginning of a value, in one line."""
    text = value[:PREVIEW_BYTES].decode("utf-8", "backslashreplace")
    return "".join([char if char.isprintable() else " " if char in "\n\t\r" else "·" for char in text])


def size_of(number: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"
