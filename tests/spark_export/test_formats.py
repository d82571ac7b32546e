"""Values as Avro, msgpack and protobuf: the columns are the fields, exactly, or the job fails and names the key."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgpack
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

import logdb
from spark_export.formats import ProtobufValues, _message_class
from spark_export.source import LogDBSource
from tests.spark_export import planning

NOON = dt.datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
AVRO = json.dumps(
    {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
            {"name": "before", "type": ["null", "shop.State"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "raw", "type": ["null", "bytes"]},
            {"name": "mixed", "type": ["null", "long", "string"]},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Line"]}],
                    },
                },
            },
            {"name": "tags", "type": {"type": "map", "values": "double"}},
        ],
    }
)
ORDER: dict[str, Any] = {
    "id": 2**60,
    "state": "PAID",
    "before": "OPEN",
    "at": NOON,
    "price": Decimal("12.30"),
    "day": dt.date(2026, 5, 1),
    "raw": b"\xff\0",
    "mixed": "text",
    "lines": [{"n": 1, "next": {"n": 2, "next": None}}, {"n": 3, "next": None}],
    "tags": {"a": 0.5},
}


def encoded(order: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(json.loads(AVRO)), order)
    return content.getvalue()


def test_avro_values_have_the_columns_of_their_schema(tmp_path: Path) -> None:
    other = {**ORDER, "id": -1, "before": None, "raw": None, "mixed": 7, "lines": [], "tags": {}}
    with logdb.open(tmp_path / "db") as db:
        db.multi_put({b"o/1": encoded(ORDER), b"o/2": encoded(other)})
    (tmp_path / "order.avsc").write_text(AVRO)
    for schema in (AVRO, f"file:{tmp_path}/order.avsc"):
        first, second = planning.read(str(tmp_path / "db"), codec="avro", avroSchema=schema)
        lines = [{"n": 1, "next": '{"n": 2, "next": null}'}, {"n": 3, "next": None}]
        shown = {**ORDER, "mixed": '"text"', "lines": lines, "tags": [("a", 0.5)]}
        assert first == {**shown, "key": b"o/1", "version": 1}
        assert second["mixed"] == "7"
        assert second["lines"] == second["tags"] == []
    (row,) = planning.read(
        str(tmp_path / "db"), "id STRING, at TIMESTAMP", codec="avro", avroSchema=AVRO, startKey="o/2"
    )
    assert row == {"id": "-1", "at": NOON}


def test_an_avro_decimal_of_more_digits_than_spark_has_is_json(tmp_path: Path) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
    schema = {"type": "record", "name": "Bill", "fields": [{"name": "total", "type": kind}]}
    content, total = io.BytesIO(), Decimal(10**40).scaleb(-2)
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), {"total": total})
    with logdb.open(tmp_path) as db:
        db.put(b"k", content.getvalue())
    (row,) = planning.read(str(tmp_path), codec="avro", avroSchema=json.dumps(schema))
    assert Decimal(json.loads(row["total"])) == total


def test_a_field_with_the_name_of_a_fixed_column_is_rescued(tmp_path: Path) -> None:
    fields = [{"name": "Key", "type": "string"}, {"name": "n", "type": "int"}]
    schema, content = {"type": "record", "name": "R", "fields": fields}, io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), {"Key": "inner", "n": 1})
    with logdb.open(tmp_path) as db:
        db.put(b"k", content.getvalue())
    (row,) = planning.read(str(tmp_path), codec="avro", avroSchema=json.dumps(schema))
    assert row == {"key": b"k", "n": 1, "_rescued_data": '{"Key": "inner"}', "version": 1}


def test_msgpack_values_are_inferred_from_all_of_them(tmp_path: Path) -> None:
    path, many = str(tmp_path), 1_500
    with logdb.open(path) as db:
        rows = {b"%05d" % number: {"n": number, "raw": b"\xff", "at": NOON} for number in range(many)}
        db.multi_put({key: msgpack.packb(row, datetime=True) for key, row in rows.items()})
        db.put(b"x", msgpack.packb({"n": 0.5, "late": [1, {"a": b"z"}]}))
    *_, before, last = planning.read(path, codec="msgpack")
    assert (before["n"], before["raw"], before["at"]) == (1499.0, b"\xff", NOON)
    assert (last["n"], json.loads(last["late"]), last["_rescued_data"]) == (0.5, [1, {"a": {"base64": "eg=="}}], None)
    last = planning.read(path, codec="msgpack", sampleValues="1000")[-1]
    assert (last["n"], json.loads(last["_rescued_data"])["n"]) == (None, 0.5)


def test_a_msgpack_time_of_nanoseconds_is_kept(tmp_path: Path) -> None:
    """No TIMESTAMP holds it."""
    path, time = str(tmp_path), msgpack.Timestamp(1_700_000_000, 123_456_789)
    with logdb.open(path) as db:
        db.put(b"a", msgpack.packb({"at": NOON, "some": [time]}, datetime=True))
        db.put(b"b", msgpack.packb({"at": time}))
    text = "2023-11-14T22:13:20.123456789+00:00"
    first, second = planning.read(path, codec="msgpack", sampleValues="1")
    assert (first["at"], json.loads(first["some"]), first["_rescued_data"]) == (NOON, [text], None)
    assert (second["at"], json.loads(second["_rescued_data"])) == (None, {"at": text})
    first, second = planning.read(path, codec="msgpack")
    assert [json.loads(one["at"]) for one in (first, second)] == [NOON.isoformat(), text]
    with pytest.raises(ValueError, match=f"the field 'at' of key b'b' should be timestamp.*, not {text[:-6]}"):
        planning.read(path, "at TIMESTAMP", codec="msgpack")


def descriptors() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("OPEN", "PAID")):
        state.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    for name, kind, label, of in (
        ("id", Field.TYPE_UINT64, Field.LABEL_OPTIONAL, None),
        ("price", Field.TYPE_FLOAT, Field.LABEL_OPTIONAL, None),
        ("raw", Field.TYPE_BYTES, Field.LABEL_OPTIONAL, None),
        ("state", Field.TYPE_ENUM, Field.LABEL_OPTIONAL, ".shop.State"),
        ("at", Field.TYPE_MESSAGE, Field.LABEL_OPTIONAL, ".google.protobuf.Timestamp"),
        ("parts", Field.TYPE_MESSAGE, Field.LABEL_REPEATED, ".shop.Order"),
        ("tags", Field.TYPE_MESSAGE, Field.LABEL_REPEATED, ".shop.Order.TagsEntry"),
    ):
        order.field.add(name=name, number=len(order.field) + 1, type=kind, label=label, type_name=of)
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(file)
    return files.SerializeToString()


def test_protobuf_values_have_the_columns_of_their_message(tmp_path: Path) -> None:
    (tmp_path / "order.desc").write_bytes(descriptors())
    kind = _message_class(descriptors(), "shop.Order")
    order = kind(id=2**64 - 1, price=0.1, raw=b"\xff", state=1, parts=[kind(id=7)], tags={5: "five"})
    order.at.FromDatetime(NOON)
    with logdb.open(tmp_path / "db") as db:
        db.multi_put({b"o/1": order.SerializeToString(), b"o/2": kind().SerializeToString()})
    options = {"codec": "protobuf", "descriptorFile": str(tmp_path / "order.desc"), "messageName": "shop.Order"}
    first, second = planning.read(str(tmp_path / "db"), **options)
    part = {"id": 7, "price": 0.0, "raw": {"base64": ""}, "state": "OPEN", "parts": [], "tags": {}}
    assert [json.loads(one) for one in first.pop("parts")] == [part]
    assert first == {
        "key": b"o/1",
        "id": 2**64 - 1,
        "price": pytest.approx(0.1),
        "raw": b"\xff",
        "state": "PAID",
        "at": NOON,
        "tags": [("5", "five")],
        "version": 1,
    }
    assert (second["id"], second["state"], second["at"], second["parts"]) == (0, "OPEN", None, [])
    with pytest.raises(ValueError, match=r"has no message 'shop.Bill'; it has google.protobuf.Timestamp, shop.Order"):
        ProtobufValues(descriptors(), "shop.Bill").fields()
    with pytest.raises(ValueError, match="not a complete set of descriptors"):
        ProtobufValues(b"\xff", "shop.Order").fields()


@pytest.mark.parametrize("seconds", [253_402_300_800, 1 << 62])
def test_a_protobuf_time_that_python_has_not_is_an_error_of_its_key(tmp_path: Path, seconds: int) -> None:
    (tmp_path / "order.desc").write_bytes(descriptors())
    order = _message_class(descriptors(), "shop.Order")()
    order.at.seconds = seconds
    with logdb.open(tmp_path / "db") as db:
        db.put(b"k", order.SerializeToString())
    options = {"codec": "protobuf", "descriptorFile": str(tmp_path / "order.desc"), "messageName": "shop.Order"}
    with pytest.raises(ValueError, match=r"value of key b'k' is not protobuf .*the time of the field 'at'"):
        planning.read(str(tmp_path / "db"), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "avro", "avroSchema": AVRO}, "value of key b'k' is not Avro"),
        ({"codec": "msgpack"}, "value of key b'k' is not (a )?msgpack"),
        ({"codec": "avro"}, "the codec avro needs the option avroSchema"),
        ({"codec": "avro", "avroSchema": "{"}, "avroSchema is not an Avro schema"),
        ({"codec": "avro", "avroSchema": '{"type": "array", "items": "int"}'}, "avroSchema must be that of a record"),
        ({"codec": "json", "avroSchema": AVRO}, "avroSchema goes with another codec"),
        ({"codec": "protobuf", "descriptorFile": "/none", "messageName": "a"}, "descriptorFile cannot be read"),
        ({"codec": "xml"}, "codec must be json or msgpack or avro or protobuf, not 'xml'"),
    ],
)
@pytest.mark.parametrize("value", [b"\xff\xff\xff\xff", msgpack.packb([1]), b""])
def test_errors_name_the_key_or_the_option(tmp_path: Path, options: dict[str, str], message: str, value: bytes) -> None:
    with logdb.open(tmp_path) as db:
        db.put(b"k", value)
    with pytest.raises(ValueError, match=message):
        planning.read(str(tmp_path), **options)


def test_bytes_after_a_value_are_refused_and_rows_are_written_as_json_only(tmp_path: Path) -> None:
    with logdb.open(tmp_path) as db:
        db.put(b"k", encoded(ORDER) + b"\0")
    with pytest.raises(ValueError, match="is not Avro \\(1 bytes follow the record\\)"):
        planning.read(str(tmp_path), codec="avro", avroSchema=AVRO)
    with pytest.raises(ValueError, match="rows are written with the codec json, not msgpack"):
        LogDBSource({"path": str(tmp_path), "codec": "msgpack"}).writer(planning.struct("key STRING, n INT"), False)
