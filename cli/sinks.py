"""Writing an export: CSV, JSON lines and Parquet, to a file that appears whole or not at all."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, cast

from .encoding import escaped, parsed_json, to_csv, to_json
from .failing import BadInput
from .sources import parquet_library

PARQUET_ROWS: Final = 20_000
GZIP_LEVEL: Final = 6
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

Rows = Iterator[tuple[bytes, bytes]]


@contextmanager
def published(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, beside `path` at first: synced and renamed to it at the end, removed after an
    exception.
    """
    staging = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with _naming(path, staging), staging.open("xb") as file:
        try:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", GZIP_LEVEL, fileobj=file, mtime=0) as packed:
                    yield cast("IO[bytes]", packed)
            else:
                yield file
            file.flush()
            os.fsync(file.fileno())
            staging.replace(path)
        except BaseException:
            staging.unlink(missing_ok=True)
            raise
    directory = os.open(path.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def _naming(path: Path, staging: Path) -> Iterator[None]:
    """Let errors of writing name `path`."""
    try:
        yield
    except OSError as error:
        if error.filename in (None, str(staging)):
            error.filename = str(path)
        raise


def write_csv(file: IO[bytes], rows: Rows) -> int:
    """The columns key and value. Returns the number of rows, as all these do."""
    with _text(file) as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("key", "value"))
        return _each(rows, lambda key, value: writer.writerow((to_csv(key), to_csv(value))))


def write_fields(file: IO[bytes], rows: Callable[[], Rows], counted: Rows) -> int:
    """The fields of values that are JSON objects; `rows` is read once before, to learn which fields there
    are.
    """
    fields: dict[str, None] = {}
    for key, value in rows():
        fields.update(dict.fromkeys(_json_object(key, value)))
    with _text(file) as text:
        writer = csv.writer(text, lineterminator="\n")
        if fields:
            writer.writerow(fields)

        def write(key: bytes, value: bytes) -> None:
            row = _json_object(key, value)
            writer.writerow([_cell(row.get(field)) for field in fields])

        return _each(counted, write)


def write_json_lines(file: IO[bytes], rows: Rows) -> int:
    """{"key": ..., "value": ...} a line."""

    def write(key: bytes, value: bytes) -> None:
        line = _ENCODER.encode({"key": to_json(key), "value": to_json(value)})
        file.write(line.encode() + b"\n")

    return _each(rows, write)


def write_json_values(file: IO[bytes], rows: Rows) -> int:
    """The values, JSON objects, one a line."""

    def write(key: bytes, value: bytes) -> None:
        file.write(_ENCODER.encode(_json_object(key, value)).encode() + b"\n")

    return _each(rows, write)


def write_parquet(file: IO[bytes], rows: Rows) -> int:
    """The binary columns key and value, compressed with zstd."""
    parquet = parquet_library()
    import pyarrow

    schema = pyarrow.schema([pyarrow.field(name, pyarrow.binary(), nullable=False) for name in ("key", "value")])
    count = 0
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while some := list(islice(rows, PARQUET_ROWS)):
            count += len(some)
            columns = [pyarrow.array(column, pyarrow.binary()) for column in zip(*some, strict=True)]
            writer.write_table(pyarrow.table(columns, schema))
    return count


def _each(rows: Rows, write: Callable[[bytes, bytes], object]) -> int:
    count = 0
    for key, value in rows:
        write(key, value)
        count += 1
    return count


@contextmanager
def _text(file: IO[bytes]) -> Iterator[io.TextIOWrapper]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        yield text
    finally:
        text.flush()
        text.detach()


def _json_object(key: bytes, value: bytes) -> dict[str, Any]:
    try:
        found = parsed_json(value.decode(json.detect_encoding(value), "surrogatepass"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadInput(f"the value of key {escaped(key)!r} is not a JSON object; export without --json-values")
    return found


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else _ENCODER.encode(value)
