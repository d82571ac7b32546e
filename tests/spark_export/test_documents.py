"""JSON values as columns: the fields are those of `json.loads`, or the job fails and names the key."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

import logdb
from spark_export.documents import JSON_TEXT, RESCUED
from spark_export.source import LogDBSource
from tests.spark_export import planning

TEXT = st.text(st.characters(codec=None), max_size=4)
SOME = ["a", "b", "A", "key", "value", "version", "VERSION", RESCUED, "", "`x`", "a.b", "_commit_version"]
NAMES = st.sampled_from(SOME)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.integers(-9, 9) | st.floats() | TEXT,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(NAMES | TEXT, some, max_size=3),
    max_leaves=5,
)
DOCUMENTS = st.dictionaries(NAMES | TEXT, VALUES, max_size=5)
STRANGE = st.sampled_from(
    [
        b"",
        b"{}{}",
        b'{"a":1}\n{"a":2}',
        b'{"a":1},"z":2',
        b"[1]",
        b'"a"',
        b'{"a":1,"a":2}',
        b'{"b":{"a":1,"a":2}}',
        b'{"a":1e999}',
        b'{"a":01}',
        b'{"a":Inf}',
        b'{"a":"\xff"}',
        b'{"a":"\n"}',
        b'{"a":"\\ud800"}',
        b"\xff\xfe{\0}\0",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"9" * 5_000 + b"}",
        b'{"a":1' + b"0" * 400 + b"}",
    ]
)


def is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, whatever the type of a number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float | Decimal) and isinstance(other, int | float | Decimal):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    return type(one) is type(other) and bool(one == other)


def without_nulls(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in document.items() if item is not None}


def together(row: Mapping[str, Any], schema: StructType) -> dict[str, Any]:
    """The document of the columns of a row."""
    document = {}
    for field in schema.fields:
        item = row[field.name]
        if field.name not in ("key", "version", RESCUED) and item is not None:
            document[field.name] = json.loads(item) if field.metadata.get(JSON_TEXT) else item
    return {**document, **without_nulls(json.loads(row[RESCUED] or "{}"))}


def is_sound(value: bytes) -> bool:
    """Whether a value is one JSON object without duplicate names and with finite numbers only."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def finite(text: str) -> float:
        assert math.isfinite(float(text))
        return float(text)

    try:
        return isinstance(json.loads(value.decode(), object_pairs_hook=unique, parse_float=finite), dict)
    except (ValueError, RecursionError, AssertionError):
        return False


def written(path: str, values: list[bytes]) -> dict[bytes, bytes]:
    rows = {b"k%02d" % number: value for number, value in enumerate(values)}
    with logdb.open(path) as db:
        db.multi_put(rows)
    return rows


ENCODED = DOCUMENTS.map(lambda document: json.dumps(document).encode()) | DOCUMENTS.map(
    lambda document: json.dumps(document, ensure_ascii=False).encode(errors="replace")
)
RELAXED = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@RELAXED
@given(first=st.lists(ENCODED, min_size=1, max_size=3), later=st.lists(ENCODED | STRANGE, max_size=3))
@example([b'{"a":1}'], [b'{"a":1.5}'])
@example([b'{"a":1.5}'], [b'{"a":9007199254740993}'])
@example([b'{"a":1}'], [b'{"a":true,"b":[1]}', b'{"a":"1"}'])
@example([b'{"a":true}'], [b'{"a":1}'])
@example([b'{"key":1,"value":2,"version":3}'], [])
@example([b'{"a":[1]}'], [b'{"a":"[1]"}', b'{"a":"x"}'])
@example([b'{"a":null}', b'{"a":18446744073709551615}'], [b'{"a":-1e300}'])
@example([b"{}"], [b'{"a":"\\ud800"}'])
def test_columns_and_values_are_converted_without_loss(first: list[bytes], later: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as path:
        values = written(path, [*first, *later])
        unsound = [key for key, value in values.items() if not is_sound(value)]
        options = {"codec": "json", "sampleValues": str(len(first))}
        schema = LogDBSource({"path": path, **options})
        if unsound:
            with pytest.raises(ValueError, match=f"value of key {unsound[0]!r}"):
                planning.read(path, **options)
            return
        assert isinstance(columns := schema.schema(), StructType)
        rows = planning.read(path, **options)
        assert [row["key"] for row in rows] == list(values)
        for row in rows:
            expected = without_nulls(json.loads(values[row["key"]]))
            assert is_same(together(row, columns), expected), (row, columns)


ASKED = ("BIGINT", "INT", "DOUBLE", "BOOLEAN", "STRING", "BINARY")
PYTHON: dict[str, Any] = {
    "BIGINT": int,
    "INT": int,
    "DOUBLE": (int, float),
    "BOOLEAN": bool,
    "STRING": str,
    "BINARY": str,
}


def is_shown(item: Any, shown: Any, kind: str) -> bool:
    """Whether a column of a type represents a JSON value without change."""
    if item is None:
        return shown is None
    if kind == "STRING" and not isinstance(item, str):
        return is_same(json.loads(shown), item)
    if kind == "BINARY":
        return isinstance(item, str) and bytes(shown) == item.encode()
    if isinstance(item, str) and kind != "STRING":  # text of a number, a date, ...
        item = json.loads(item.lower() if kind == "BOOLEAN" else item)
    return is_same(item, shown)


@RELAXED
@given(values=st.lists(ENCODED, min_size=1, max_size=3), a=st.sampled_from(ASKED), b=st.sampled_from(ASKED))
@example([b'{"a":1.5}'], "BIGINT", "INT")
@example([b'{"a":3000000000}'], "INT", "INT")
@example([b'{"a":"7","b":"true"}'], "BIGINT", "BOOLEAN")
@example([b'{"a":"7","b":7}', b'{"a":7}'], "BIGINT", "BIGINT")
def test_an_explicit_schema(values: list[bytes], a: str, b: str) -> None:
    with tempfile.TemporaryDirectory() as path:
        put = written(path, values)
        try:
            rows = planning.read(path, f"key BINARY, a {a}, b {b}", codec="json")
        except ValueError as error:
            culprit = next(key for key in put if f"key {key!r}" in str(error))
            name = "a" if "field 'a'" in str(error) else "b"
            item, kind = json.loads(put[culprit])[name], a if name == "a" else b
            assert not isinstance(item, PYTHON[kind]) or kind in ("BIGINT", "INT", "DOUBLE", "STRING", "BINARY")
            rows = []
        for row in rows:
            document = json.loads(put[row["key"]])
            assert is_shown(document.get("a"), row["a"], a)
            assert is_shown(document.get("b"), row["b"], b)
        for row in planning.read(path, f"key BINARY, a {a}, {RESCUED} STRING", codec="json"):
            rest, document = json.loads(row[RESCUED] or "{}"), json.loads(put[row["key"]])
            if "a" not in rest and row["a"] is not None:
                rest["a"] = row["a"].decode() if a == "BINARY" else row["a"]
            assert is_same(without_nulls(rest), without_nulls(document))


def test_a_later_value_is_not_narrowed(tmp_path: Path) -> None:
    path = str(tmp_path)
    with logdb.open(path) as db:
        db.multi_put({b"%05d" % number: b'{"n":1}' for number in range(1_000)})
        db.multi_put({b"x": b'{"n":1.5,"later":"here"}', b"y": b'{"n":"many"}', b"z": b'{"n":2.0}'})
    *_, x, y, z = planning.read(path, codec="json", sampleValues="1000")
    assert list(x) == ["key", "n", RESCUED, "version"]
    assert (x["n"], json.loads(x[RESCUED])) == (None, {"n": 1.5, "later": "here"})
    assert (y["n"], json.loads(y[RESCUED])) == (None, {"n": "many"})
    assert (z["n"], z[RESCUED]) == (2, None)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("FLOAT", "1e39"),
        ("ARRAY<FLOAT>", "[1e39]"),
        ("DECIMAL(10,2)", "1e-99999999999999999999"),
        ("TIME", '"12:00:00+02:00"'),
        ("TIME", '"12:00:00,1234567"'),
        ("TIMESTAMP", '"2024-05-01T12:00:00,1234567Z"'),
        ("TIMESTAMP_NTZ", '"2024-05-01T12:00:00,1234567"'),
    ],
)
def test_a_value_that_a_column_cannot_hold_is_not_changed(tmp_path: Path, kind: str, text: str) -> None:
    path = str(tmp_path)
    written(path, [f'{{"a":{text}}}'.encode()])
    (row,) = planning.read(path, f"a {kind}, {RESCUED} STRING", codec="json")
    assert row["a"] is None
    assert json.loads(row[RESCUED]) == {"a": json.loads(text)}
    with pytest.raises(ValueError, match="the field 'a' of key b'k00' should be"):
        planning.read(path, f"a {kind}", codec="json")
