"""Import and export: rows of a file to keys and values, and back."""

from __future__ import annotations

import base64
import datetime as dt
import importlib
import json
import math
import string
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from logdb import Database, LogDBError
from logdb.store.limits import check_key, check_value

from . import rendering
from .encoding import from_csv, from_json
from .failing import FAILED, INTERRUPTED, BadInput, Failure
from .interrupts import Interrupts
from .rendering import counted
from .session import Moment, Session, as_json, database, label, moment, moment_of, snapshot
from .sinks import published, write_csv, write_fields, write_json_lines, write_json_values, write_parquet
from .sources import FORMATS, ParquetSource, Row, Source, format_of, open_source

BATCH_BYTES: Final = 8 << 20
EXPORTED_FORMATS: Final = (*FORMATS, "delta")
EXPORTED_COLUMNS: Final = {"key", "value", "version"}

Entry = Callable[[int, Row], tuple[bytes, bytes]]
"""Makes the key and the value of a row from its number and content. Raises BadInput."""


# ---- import


@click.command("import")
@click.argument("file")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="The file's format (default: by its suffix).")
@click.option("--key", "key_columns", metavar="COL[,COL...]", help="The columns that form the key, joined with /.")
@click.option("--key-template", metavar="TEXT", help="The key with columns filled in: '{year}-{month:02d}-{carrier}'.")
@click.option("--prefix", default="", metavar="P", help="Prefix every key with P.")
@click.option("--batch", type=click.IntRange(min=1), default=1000, show_default=True, help="Rows in one transaction.")
@click.option("--skip", type=click.IntRange(min=0), default=0, metavar="N", help="Skip the first N rows.")
@label
@as_json
@database
@click.pass_obj
def import_(
    session: Session,
    file: str,
    kind: str | None,
    key_columns: str | None,
    key_template: str | None,
    prefix: str,
    batch: int,
    skip: int,
    label: str,
    as_json: bool,
) -> None:
    """Import the rows of FILE (CSV with a header, JSON lines, Parquet; .csv and .jsonl also .gz or .zip;
    `-`: standard input).

    With --key or --key-template every row becomes a JSON object under the key that its columns form. A CSV cell
    in the usual form of a number (7, -1.5, but not 007) becomes a number, an empty cell null. Without these
    options the file must have the columns key and value, as `logdb export` writes them; those keys and values
    are restored byte for byte.

    Each transaction writes --batch rows. After Ctrl-C or an error all complete batches are stored, and the
    message gives the --skip to continue with.

    A directory that `logdb export` has written with Spark is imported into an empty database: its state or, if
    it was exported with --history, every transaction. After Ctrl-C the same command continues.
    """
    if key_columns is not None and key_template is not None:
        raise click.UsageError("use --key or --key-template, but not both")
    if key_columns is None and key_template is None and _is_export(file):
        if prefix or skip:
            raise click.UsageError("--prefix and --skip do not apply to an export")
        _import_export(session, file, batch, label, as_json)
        return
    kind = kind or format_of(file)
    if kind is None:
        raise click.UsageError(f"the suffix of {file} names no format: use --format {'|'.join(FORMATS)}")
    makes_key = key_columns is not None or key_template is not None
    source = open_source(file, kind, typed=makes_key)
    entry = _restored(source, kind) if not makes_key else _composed(source, _template(key_columns, key_template))
    with session.open(read_only=False, create=True) as db:
        work = Import(db, source, entry, prefix.encode("utf-8", "surrogateescape"), batch, label, skip)
        version = work.run()
    rows = work.done - skip
    rendering.answer(
        as_json,
        {"rows": rows, "version": version},
        f"{counted(rows, 'row')} imported, version {version}" if rows else "no rows to import",
    )


def _is_export(file: str) -> bool:
    manifest = Path(file) / "_manifest.json"
    try:
        fields = json.loads(manifest.read_bytes())
    except (OSError, ValueError):
        return False
    except RecursionError:
        return True  # reading the export says what is wrong
    return isinstance(fields, dict) and "format" in fields


def _import_export(session: Session, file: str, batch: int, label: str, as_json: bool) -> None:
    restoring = _spark_export("restoring", f"{file} is an export of Spark's")
    with session.open(read_only=False, create=True) as db, rendering.progress("importing", "rows") as tick:
        rows = restoring.import_export(db, file, batch_rows=batch, label=label, progress=tick)
        version = db.version
    sentence = f"{counted(rows, 'row')} imported, version {version}"
    rendering.answer(as_json, {"rows": rows, "version": version}, sentence)


def _spark_export(module: str, reason: str) -> Any:
    """A module of `spark_export`. Raises Failure with what to install."""
    try:
        return importlib.import_module(f"spark_export.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pyspark", "pyarrow", "pandas", "numpy"):
            raise
        raise Failure(f"{reason}: pip install 'logdb[spark]'", FAILED) from error


class Import:
    """An import under way. `done`: the rows of the file that are in the database, or were skipped."""

    def __init__(
        self, db: Database, source: Source, entry: Entry, prefix: bytes, batch: int, label: str, skip: int
    ) -> None:
        self._db, self._source, self._entry, self._prefix = db, source, entry, prefix
        self._batch, self._label, self._skip = batch, label, skip
        self.done = skip

    def run(self) -> int | None:
        """Write all rows; returns the last version. Raises a Failure with the command to continue."""
        try:
            with Interrupts() as interrupts:
                return self._run(interrupts)
        except KeyboardInterrupt:
            raise Failure(f"interrupted; {self._how_to_go_on()}", INTERRUPTED) from None
        except BadInput as error:
            raise BadInput(f"{error.message}; {self._how_to_go_on()}") from error
        except (LogDBError, OSError) as error:
            raise Failure(f"{error}; {self._how_to_go_on()}", FAILED) from error

    def _how_to_go_on(self) -> str:
        if not self.done:
            return "no rows are in yet"
        return f"{self.done:,} rows are in: go on with --skip {self.done}"

    def _run(self, interrupts: Interrupts) -> int | None:
        version: int | None = None
        source, prefix = self._source, self._prefix
        items: dict[bytes, bytes | None] = {}
        count = size = 0
        with rendering.progress("importing", "rows", is_bytes=source.is_in_bytes) as tick:

            def put() -> None:
                nonlocal version, count, size
                with interrupts.delayed():
                    version = self._db.multi_put(items, label=self._label)
                    self.done += count
                tick(source.position(), source.total)
                items.clear()
                count = size = 0

            for number, row in islice(source.rows(), self._skip, None):
                key, value = self._entry(number, row)
                key = prefix + key
                try:
                    check_key(key)
                    check_value(key, value)
                except ValueError as error:
                    raise BadInput(f"{source.where(number)}: {error}") from error
                items[key] = value
                count += 1
                size += len(key) + len(value)
                if count >= self._batch or size >= BATCH_BYTES:
                    put()
            if count:
                put()
        return version


def _restored(source: Source, kind: str) -> Entry:
    """Rows with the columns key and value, as exported."""

    def bytes_of(value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        return from_csv(value) if kind == "csv" else from_json(value)

    def entry(number: int, row: Row) -> tuple[bytes, bytes]:
        if not {"key", "value"} <= row.keys() <= EXPORTED_COLUMNS:
            names = ", ".join(row)
            raise BadInput(
                f"{source.where(number)}: which of the columns {names} make the key? give --key or --key-template"
            )
        try:
            column = "key"
            key = bytes_of(row["key"])
            column = "value"
            return key, bytes_of(row["value"])
        except ValueError as error:
            raise BadInput(f"{source.where(number, column)}: {error}") from error

    return entry


def _composed(source: Source, template: list[tuple[str, str, str]]) -> Entry:
    """Rows as JSON objects, under the keys that `template` (text, column, format) makes."""

    nulls = isinstance(source, ParquetSource)

    def entry(number: int, row: Row) -> tuple[bytes, bytes]:
        parts = []
        for text, column, spec in template:
            parts.append(text)
            if not column:
                continue
            if column not in row:
                raise BadInput(f"{source.where(number)}: there is no column {column!r} (there are {', '.join(row)})")
            cell = row[column]
            if cell is None:
                raise BadInput(f"{source.where(number, column)}: it is empty, and the key needs it")
            try:
                parts.append(format(cell if spec else _as_text(cell), spec))
            except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
                reason = str(error) or "it is too long"
                raise BadInput(f"{source.where(number, column)}: {cell!r:.40} as {spec!r}: {reason}") from error
        try:
            return "".join(parts).encode("utf-8", "surrogatepass"), _json_object(row, nulls)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{source.where(number)}: {error}") from error

    return entry


def _template(columns: str | None, text: str | None) -> list[tuple[str, str, str]]:
    """(text, column, format) in turn; the last may have no column. Raises UsageError."""
    if text is None:
        assert columns is not None
        return [("/" if position else "", column, "") for position, column in enumerate(columns.split(","))]
    try:
        parts = [(before, column or "", spec or "") for before, column, spec, _ in string.Formatter().parse(text)]
    except ValueError as error:
        raise click.UsageError(f"the key template {text!r} is wrong: {error}") from error
    if not any(column for _, column, _ in parts):
        raise click.UsageError(f"the key template {text!r} names no column: every row would have the same key")
    return parts


def _as_text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "backslashreplace")
    return json.dumps(cell, default=_plain, ensure_ascii=False) if isinstance(cell, bool | list | dict) else str(cell)


def _json_object(row: Row, nulls: bool) -> bytes:
    """`nulls`: for NaN and infinities, which Parquet has and JSON has not. Raises ValueError, RecursionError."""
    try:
        text = _ENCODER.encode(row)
    except ValueError:
        if not nulls:
            raise ValueError("a number is too large") from None
        text = _ENCODER.encode(_finite(row))
    return text.encode("utf-8", "surrogatepass")


def _finite(thing: Any) -> Any:
    """With null for NaN and infinities."""
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else None
    if isinstance(thing, dict):
        return {name: _finite(one) for name, one in thing.items()}
    return [_finite(one) for one in thing] if isinstance(thing, list | tuple) else thing


def _plain(thing: Any) -> Any:
    """JSON for values of types that Parquet has and JSON lacks."""
    if isinstance(thing, bytes):
        return {"base64": base64.b64encode(thing).decode()}
    return thing.isoformat() if isinstance(thing, dt.date | dt.time) else str(thing)


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)


# ---- export


@click.command()
@click.option("--to", required=True, metavar="PATH", help="The file to write; for Spark's Parquet a new directory.")
@click.option(
    "--format", "kind", type=click.Choice(EXPORTED_FORMATS), help="The format (default: by the suffix of PATH)."
)
@click.option("--prefix", metavar="P", help="Only keys that begin with P.")
@click.option(
    "--json-values",
    is_flag=True,
    help="The values are JSON objects: write their fields (CSV) or the objects (jsonl).",
)
@click.option("--base", metavar="DIR", help="An earlier export by Spark: read only the changes since then.")
@click.option("--history", is_flag=True, help="With Spark: also every change since the oldest retained version.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@moment
@as_json
@database
@click.pass_obj
def export(
    session: Session,
    to: str,
    kind: str | None,
    prefix: str | None,
    json_values: bool,
    base: str | None,
    history: bool,
    force: bool,
    at: int | None,
    at_time: dt.datetime | None,
    as_json: bool,
) -> None:
    """Export the database at one version to a file, or with Spark to a directory of Parquet files.

    CSV and JSON lines have a key and a value; bytes that are not UTF-8 are written as base64:... in CSV and
    {"base64": "..."} in JSON. The suffix .gz compresses the file. --json-values reverses `import --key`: it
    writes the imported rows, without keys. A PATH with the suffix .parquet is one file, any other PATH with
    --format parquet is a new directory that Spark writes, with a manifest. A file appears complete or not at all.

    --format delta creates a Delta table in the directory, or adds a version to the table that it has created.
    An export by Spark that was killed continues when it is run again, at the version at which it began.
    """
    kind = kind or format_of(to)
    if kind is None:
        raise click.UsageError(f"the suffix of {to} names no format: use --format {'|'.join(EXPORTED_FORMATS)}")
    if kind in ("parquet", "delta") and json_values:
        raise click.UsageError("--json-values goes with csv and jsonl")
    when, begin = (
        moment_of(at, at_time),
        None if prefix is None else prefix.encode("utf-8", "surrogateescape"),
    )
    path = Path(to)
    if kind == "delta" or (kind == "parquet" and path.suffix != ".parquet"):
        if history and (base is not None or kind == "delta"):
            raise click.UsageError("--history goes with --format parquet, without --base")
        options = {"prefix": begin, "base": base, "history": history, "format": kind}
        keys, version = _export_with_spark(session, path, when, options)
    elif base is not None or history:
        raise click.UsageError("--base and --history go with a directory that Spark writes")
    else:
        _check_target(path, force)
        with session.open(read_only=True) as db:
            view = snapshot(db, when)
            version = view.version

            def rows() -> Iterator[tuple[bytes, bytes]]:
                return view.scan(prefix=begin)

            with rendering.progress("exporting", "keys") as tick, published(path) as file:
                shown = _shown(rows(), tick)
                if kind == "parquet":
                    keys = write_parquet(file, shown)
                elif kind == "jsonl":
                    keys = write_json_values(file, shown) if json_values else write_json_lines(file, shown)
                else:
                    keys = write_fields(file, rows, shown) if json_values else write_csv(file, shown)
    rendering.answer(
        as_json,
        {"keys": keys, "version": version, "to": to},
        f"{counted(keys, 'key')} of version {version} exported to {to}",
    )


def _export_with_spark(session: Session, path: Path, when: Moment, options: dict[str, Any]) -> tuple[int, int]:
    """(rows, version)"""
    with session.open(read_only=True) as db:
        version = None if when == Moment(None, None) else snapshot(db, when).version
    reason = f"Spark writes a directory of Parquet files (one file would be {path}.parquet)"
    spark = _spark_export("export", reason)
    source = session.directory if session.endpoints is None else _servers(session)
    with rendering.progress("exporting with Spark", "bytes", is_bytes=True) as tick:
        exported = spark.export_snapshot(source, path, version=version, progress=tick, **options)
    return exported.rows, exported.version


def _servers(session: Session) -> Any:
    from spark_export.endpoints import Endpoints

    return Endpoints.of(session.endpoints or "", **session.credentials)


def _check_target(path: Path, force: bool) -> None:
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} exists and is not a file; choose another name")
    if path.exists() and not force:
        raise BadInput(f"{path} exists; choose another name, or replace it with --force")


def _shown(rows: Iterator[tuple[bytes, bytes]], tick: rendering.Tick) -> Iterator[tuple[bytes, bytes]]:
    for done, row in enumerate(rows, 1):
        yield row
        if done % 1000 == 0:
            tick(done, None)
