"""Bytes on a page."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb import keys
from logdb.dashboard import notation


@given(st.binary(max_size=60))
def test_every_key_can_be_typed(key: bytes) -> None:
    text = notation.text_of(key)
    assert text.isprintable()
    assert notation.bytes_of(text) == key


@given(st.text(max_size=30))
def test_text_is_read_or_refused(text: str) -> None:
    try:
        key = notation.bytes_of(text)
    except ValueError:
        return
    assert notation.bytes_of(notation.text_of(key)) == key


def test_the_notation() -> None:
    assert notation.text_of(b"user/1") == "user/1"
    assert notation.text_of("Grüße".encode()) == "Grüße"
    assert notation.text_of(b"a\\b\x00\xff\n") == r"a\\b\x00\xff\x0a"
    assert notation.text_of("\u202ereversed".encode()) == r"\xe2\x80\xaereversed"
    for wrong in ("\\", "\\z", "a\\x1", "\\xzz"):
        with pytest.raises(ValueError, match="backslash"):
            notation.bytes_of(wrong)


def test_tuples_are_recognized() -> None:
    assert notation.tuple_of(keys.pack(("stock", 7))) == "('stock', 7)"
    assert notation.tuple_of(b"user/1") == ""


def test_values_are_shown_as_what_they_seem_to_be() -> None:
    assert notation.view_of(b'{"a":[1]}').kind == "JSON"
    assert json.loads(notation.view_of(b'{"a":[1,1.50]}').text) == {"a": [1, 1.5]}
    assert notation.view_of(b"{no json")[:2] == ("text", "{no json")
    assert notation.view_of(b"\x00\x01") == ("bytes", f"000000  {'00 01':47}  ..", 2, False)
    long = "é".encode() * notation.VIEW_BYTES
    assert notation.view_of(long) == ("text", "é" * (notation.VIEW_BYTES // 2), len(long), True)
    assert notation.view_of(b"a" + long).text == "a" + "é" * (notation.VIEW_BYTES // 2 - 1)  # not cut within a letter


@pytest.mark.parametrize(
    "value", [b"[" * 8_000, b"[" * 900 + b"1," * 7_000 + b"1" + b"]" * 900, b"[" + b"9" * 10_000 + b"]", b'"\\ud800"']
)
def test_a_hostile_value_has_a_small_view(value: bytes) -> None:
    view = notation.view_of(value)
    assert len(view.text) <= notation.VIEW_CHARACTERS
    view.text.encode()


@pytest.mark.parametrize(
    "value", [b'{"a":1,"a":2}', b'{"a":0.12345678901234567890}', b"[1e400]", b"[NaN]", b"[1e-" + b"9" * 30 + b"]"]
)
def test_json_that_indents_would_change_is_shown_as_text(value: bytes) -> None:
    assert notation.view_of(value) == ("text", value.decode(), len(value), False)


def test_previews() -> None:
    assert notation.preview_of(b"a\nb\x00\xff") == "a b·\\xff"
    assert notation.size_of(12) == "12 B"
    assert notation.size_of(3 << 19) == "1.5 MiB"
