"""Bytes as people and programs write them: text, hexadecimal, files, and JSON.

In JSON, bytes that are UTF-8 are a string and others are `{"base64": "..."}`. In CSV, bytes that are not UTF-8 (or that
CSV readers are known to change) are `base64:...`.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from pathlib import Path
from typing import Any, Final

from .failing import BadInput

CSV_BASE64: Final = "base64:"
Json = str | int | float | bool | None | dict[str, Any] | list[Any]


class Notation:
    """How keys and values are written on the command line and in its output: as text, or in hexadecimal."""

    def __init__(self, *, is_hex: bool) -> None:
        self.is_hex = is_hex

    def read(self, text: str) -> bytes:
        """The bytes that `text` encodes. Raises BadInput."""
        if not self.is_hex:
            return text.encode("utf-8", "surrogateescape")
        try:
            return bytes.fromhex(text)
        except ValueError as error:
            raise BadInput(f"{text!r} is not hexadecimal ({error})") from error

    def read_value(self, text: str) -> bytes:
        """As `read`; `-` is the standard input, `@path` a file (both byte by byte), `@@...` is text that
        begins with @.
        """
        if text == "-":
            return sys.stdin.buffer.read()
        if text.startswith("@@"):
            return self.read(text[1:])
        if text.startswith("@"):
            return Path(text[1:]).read_bytes()
        return self.read(text)

    def show(self, data: bytes) -> str:
        """One line for people: what cannot be printed is escaped."""
        return data.hex() if self.is_hex else escaped(data)

    def json(self, data: bytes | None) -> Json:
        """For programs."""
        if data is None:
            return None
        return data.hex() if self.is_hex else to_json(data)


TEXT: Final = Notation(is_hex=False)
HEX: Final = Notation(is_hex=True)


def escaped(data: bytes, keep: str = "") -> str:
    """`data` as text, with \\xNN for bytes that are not UTF-8 and escapes for characters that cannot be printed."""
    text = data.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


def to_json(data: bytes) -> Json:
    """A string, or {"base64": ...} for bytes that are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json(value: Json) -> bytes:
    """The inverse of `to_json`. Raises ValueError."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        return _decoded(value["base64"])
    raise ValueError('it is neither a string nor {"base64": "..."}')


def _no_json(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON (write null, or a string)")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_json)


def parsed_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for NaN, infinities and values that are nested too deeply."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_csv(data: bytes) -> str:
    """A cell of a CSV file."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    else:
        if not text.startswith(CSV_BASE64) and "\r" not in text and "\0" not in text:
            return text
    return CSV_BASE64 + base64.b64encode(data).decode()


def from_csv(cell: str) -> bytes:
    """The inverse of `to_csv`. Raises ValueError."""
    return _decoded(cell[len(CSV_BASE64) :]) if cell.startswith(CSV_BASE64) else cell.encode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"it is not base64 ({error})") from error
