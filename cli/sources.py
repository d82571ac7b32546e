"""Reading the rows of a file to import: CSV, JSON lines and Parquet, compressed or not."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from logdb.system.disk import is_of_system

from .encoding import parsed_json
from .failing import BadInput, Failure
from .rendering import counted

FORMATS: Final = ("csv", "jsonl", "parquet")
_SUFFIXES: Final = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_LONGEST_CELL: Final = 1 << 30
PARQUET_ROWS: Final = 5000
STDIN: Final = "-"

Row = dict[str, Any]


def format_of(path: str) -> str | None:
    """The format of a file by its suffix: .csv, .jsonl, .ndjson or .parquet, also before .gz or .zip."""
    name = Path(path)
    if name.suffix in (".gz", ".zip"):
        name = name.with_suffix("")
    return _SUFFIXES.get(name.suffix)


class Source:
    """The rows of a file, each with its number. `unit`: what the number counts, `position` of `total`: for
    a progress bar.
    """

    unit = "line"
    is_in_bytes = True

    def __init__(self, path: str) -> None:
        self.path = path
        self.total: int | None = None

    def where(self, number: int, column: str | None = None) -> str:
        """A place for an error message."""
        place = f"{self.path}, {self.unit} {number}"
        return place if column is None else f"{place}, column {column!r}"

    def rows(self) -> Iterator[tuple[int, Row]]:
        """(number, row). Raises BadInput."""
        raise NotImplementedError

    def position(self) -> int:
        """The position of the reader in the file."""
        raise NotImplementedError


class TextSource(Source):
    """A file of lines, perhaps gzipped or alone in a zip archive."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._raw: IO[bytes]
        if path == STDIN:
            self._raw = sys.stdin.buffer
        else:
            self._raw = Path(path).open("rb")  # noqa: SIM115 (it lives as long as the command)
            if Path(path).is_file():
                self.total = Path(path).stat().st_size
        self._done = 0

    def position(self) -> int:
        return self._done if self.total is None else self._raw.tell()

    def lines(self) -> Iterator[str]:
        """The lines, decoded. Raises BadInput."""
        number = 0
        try:
            with self._unpacked() as file:
                for number, line in enumerate(file, 1):
                    self._done += len(line)
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{self.where(number)}: byte {error.start + 1} is not UTF-8") from error
        except BadInput:
            raise
        except Exception as error:  # damaged archives may raise any exception
            if not self._is_packed or is_of_system(error):
                raise
            raise BadInput(f"{self.where(number + 1)}: it cannot be unpacked: {error}") from error

    @property
    def _is_packed(self) -> bool:
        return self.path.endswith((".gz", ".zip"))

    @contextmanager
    def _unpacked(self) -> Iterator[IO[bytes]]:
        if self.path.endswith(".gz"):
            with gzip.GzipFile(fileobj=self._raw) as file:
                yield io.BufferedReader(file)
        elif self.path.endswith(".zip"):
            with zipfile.ZipFile(self._raw) as archive:
                names = archive.namelist()
                if len(names) != 1:
                    raise BadInput(f"{self.path}: an archive must hold one file to import, this one holds {len(names)}")
                with archive.open(names[0]) as member:
                    yield member
        else:
            yield self._raw


class CsvSource(TextSource):
    """Comma-separated values under a header. `typed`: cells that are exactly how Python writes a number
    become numbers.
    """

    def __init__(self, path: str, *, typed: bool) -> None:
        super().__init__(path)
        self._typed = typed

    def rows(self) -> Iterator[tuple[int, Row]]:
        csv.field_size_limit(_LONGEST_CELL)
        reader = csv.reader(self.lines(), strict=True)
        try:
            header = next(reader, None)
            if header is None:
                raise BadInput(f"{self.path}: there is no header line")
            if len(set(header)) != len(header):
                twice = next(name for name in header if header.count(name) > 1)
                raise BadInput(f"{self.where(1, twice)}: the column is named twice")
            for cells in reader:
                if len(cells) != len(header):
                    if not cells:
                        continue
                    count = counted(len(cells), "column")
                    raise BadInput(f"{self.where(reader.line_num)}: {count}, the header has {len(header)}")
                yield (
                    reader.line_num,
                    dict(zip(header, map(_typed, cells) if self._typed else cells, strict=True)),
                )
        except csv.Error as error:
            raise BadInput(f"{self.where(reader.line_num)}: {error}") from error


@functools.lru_cache(maxsize=1 << 16)
def _typed(cell: str) -> str | int | float | None:
    if not cell:
        return None
    for kind in (int, float):
        try:
            number = kind(cell)
        except ValueError:
            continue
        if repr(number) == cell and cell not in ("inf", "-inf", "nan"):
            return number
    return cell


class JsonLinesSource(TextSource):
    """One JSON object a line."""

    def rows(self) -> Iterator[tuple[int, Row]]:
        for number, line in enumerate(self.lines(), 1):
            if line.isspace():
                continue
            try:
                row = parsed_json(line.rstrip("\r\n"))
            except ValueError as error:
                column = f", column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
                reason = error.msg if isinstance(error, json.JSONDecodeError) else error
                raise BadInput(f"{self.where(number)}{column}: this is not JSON: {reason}") from error
            if not isinstance(row, dict):
                raise BadInput(f"{self.where(number)}: a JSON object was expected, not {line.strip()[:40]!r}")
            yield number, row


class ParquetSource(Source):
    """A Parquet file, or a directory of them."""

    unit = "row"
    is_in_bytes = False

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._parquet = parquet_library()
        directory = Path(path)
        self._files = [directory]
        if directory.is_dir():
            self._files = sorted(_parquet_files(directory))
            if not self._files:
                raise BadInput(f"{path}: the directory holds no .parquet file")
        try:
            self.total = sum(self._parquet.read_metadata(file).num_rows for file in self._files)
        except Exception as error:  # as below
            if is_of_system(error):
                raise
            raise BadInput(f"{path}: {error}") from error
        self._done = 0

    def position(self) -> int:
        return self._done

    def rows(self) -> Iterator[tuple[int, Row]]:
        try:
            for file in self._files:
                with self._parquet.ParquetFile(file) as opened:
                    names = opened.schema_arrow.names
                    if len(set(names)) != len(names):
                        twice = next(name for name in names if names.count(name) > 1)
                        raise BadInput(f"{self.where(self._done + 1, twice)}: the column is named twice")
                    for batch in opened.iter_batches(PARQUET_ROWS):
                        for row in self._python(batch):
                            self._done += 1
                            yield self._done, row
        except BadInput:
            raise
        except Exception as error:  # damaged files may raise any exception
            if is_of_system(error):
                raise
            raise BadInput(f"{self.where(self._done + 1)}: {error}") from error

    def _python(self, batch: Any) -> Iterator[Row]:
        """The rows of an Arrow batch. Raises BadInput for values that Python does not have, such as a date after
        9999."""
        try:
            yield from batch.to_pylist()
            return
        except Exception:
            pass  # convert cell by cell to find the row and column
        for at in range(batch.num_rows):
            row: Row = {}
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                try:
                    row[name] = column[at].as_py()
                except Exception as error:
                    place = self.where(self._done + 1, name)
                    raise BadInput(f"{place}: {column.type} that cannot be read: {error}") from error
            yield row


def _parquet_files(directory: Path) -> Iterator[Path]:
    """Those in a directory and below it. Raises OSError if one of its directories cannot be listed."""

    def fail(error: OSError) -> NoReturn:
        raise error

    for folder, _, names in os.walk(directory, onerror=fail):
        for name in names:
            if name.endswith(".parquet") and not name.startswith(("_", ".")):
                yield Path(folder, name)


def parquet_library() -> Any:
    """pyarrow.parquet. Raises Failure with what to install."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise Failure("Parquet files need pyarrow: pip install 'logdb[parquet]'", 3) from None
    return parquet


def open_source(path: str, kind: str, *, typed: bool) -> Source:
    """The rows of `path`, or of the standard input if it is `-`. Raises OSError, BadInput."""
    if kind == "csv":
        return CsvSource(path, typed=typed)
    if kind == "jsonl":
        return JsonLinesSource(path)
    if path == STDIN:
        raise BadInput("Parquet cannot be read from the standard input; give a file")
    return ParquetSource(path)
