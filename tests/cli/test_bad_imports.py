"""A malformed file to import causes one line with the location of the error, not "a bug in LogDB"."""

from __future__ import annotations

import gzip
import io
import json
import random
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli
from logdb_cli.sources import open_source

from tests.cli.conftest import Run
from tests.harness.forks import become_unprivileged, in_child, refused

DEEP = "[" * 100_000 + "]" * 100_000
CSV = b"key,value\n" + b"".join(b"k%d,v\n" % number for number in range(200))


def zipped(*names: str, method: int = zipfile.ZIP_DEFLATED) -> bytearray:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name in names:
            archive.writestr(name, CSV)
    return bytearray(file.getvalue())


def changed(archive: bytearray, local: int, central: int, byte: int) -> bytes:
    """With a field of the one file's two headers set."""
    archive[local] = archive[archive.index(b"PK\1\2") + central] = byte
    return bytes(archive)


LINES = {
    "deep": (f'{{"key":"a","value":{DEEP}}}', "line 1: this is not JSON: it is nested too deeply"),
    "deep objects": ('{"a":' * 50_000 + "1" + "}" * 50_000, "line 1: this is not JSON: it is nested too deeply"),
    "digits": (f'{{"key":{"1" * 10_000}}}', "line 1: this is not JSON: Exceeds the limit"),
    "NaN": ('{"key":"a","v":{"x":[NaN]}}', "line 1: this is not JSON: NaN is not JSON"),
    "infinite": ('{"key":"a","v":-Infinity}', "line 1: this is not JSON: -Infinity is not JSON"),
    "too large": ('{"key":"a"}\n{"key":"a","v":[1e400]}', "line 2: a number is too large"),
    "long key": (f'{{"key":"{"k" * 10_000}"}}', "line 1: the key "),
    "no key": ('{"key":""}', "line 1: a key must not be empty"),
}


@pytest.mark.parametrize("name", LINES)
def test_lines(run: Run, tmp_path: Path, name: str) -> None:
    text, told = LINES[name]
    file = tmp_path / "file.jsonl"
    file.write_text(text)
    answer = run("import", file, "--key", "key", code=2).stderr
    assert answer.startswith(f"error: {file}, {told}"), answer
    assert answer.rstrip().endswith("; no rows are in yet")


def test_a_directory_that_cannot_be_read_whole() -> None:
    """The import is refused: the rest would be taken for the whole."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        table = pa.table({"key": ["k"], "value": ["v"]})
        for part in ("a", "b"):
            (directory / part).mkdir()
            pq.write_table(table, directory / part / "part.parquet")
        assert open_source(name, "parquet", typed=False).total == 2
        (directory / "b").chmod(0)

        def body() -> list[str]:
            become_unprivileged()
            return refused(lambda: open_source(name, "parquet", typed=False).total)

        assert in_child(body) == [f"PermissionError: [Errno 13] Permission denied: '{directory}/b'"]
        (directory / "b").chmod(0o755)


ARCHIVES = {
    "encrypted": (changed(zipped("a"), 6, 8, 1), "is encrypted, password required"),
    "unknown method": (changed(zipped("a"), 8, 10, 99), "compression method is not supported"),
    "cut off": (bytes(zipped("a"))[:100], "File is not a zip file"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(run: Run, tmp_path: Path, name: str) -> None:
    data, told = ARCHIVES[name]
    file = tmp_path / "file.csv.zip"
    file.write_bytes(data)
    answer = run("import", file, code=2).stderr
    assert answer.startswith(f"error: {file}, line 1: it cannot be unpacked: ")
    assert told in answer


COLUMNS = {
    "timestamp": pa.array([0, 1 << 62], pa.timestamp("us")),
    "date": pa.array([0, (1 << 31) - 1], pa.date32()),
    "zone": pa.array([None, 1], pa.timestamp("us", "No/Where")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_dates_that_python_has_not(run: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.table({"key": ["a", "b"], "t": COLUMNS[name]}), file)
    answer = run("import", file, "--key", "key", code=2).stderr
    assert answer.startswith(f"error: {file}, row 2, column 't': "), answer


def test_values_that_json_lacks_are_null(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    nan = float("nan")
    pq.write_table(pa.table({"key": ["a"], "x": [nan], "l": [[1.0, nan]], "s": [{"y": float("inf")}]}), file)
    run("import", file, "--key", "key")
    assert json.loads(run("get", "a").stdout) == {"key": "a", "x": None, "l": [1.0, None], "s": {"y": None}}


def test_a_column_that_occurs_twice(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["key", "key"]), file)
    assert "row 1, column 'key': the column is named twice" in run("import", file, "--key", "key", code=2).stderr


@pytest.mark.parametrize("template", ["{v:99999999999d}", "{v:c}", "{v:%Y}", "{v:{v}}"])
def test_keys_that_cannot_be_made(run: Run, tmp_path: Path, template: str) -> None:
    file = tmp_path / "file.csv"
    file.write_text("v\n99999999999\n")
    assert f"{file}, line 2" in run("import", file, "--key-template", template, code=2).stderr


@pytest.mark.parametrize("value", ['{"x": NaN}', f'{{"x": {DEEP}}}', "[1]", "no"])
def test_exported_values_that_are_no_json(run: Run, tmp_path: Path, value: str) -> None:
    given = tmp_path / "value"
    given.write_text(value)
    run("put", "k", f"@{given}")
    for kind in ("csv", "jsonl"):
        answer = run("export", "--to", tmp_path / f"out.{kind}", "--json-values", code=2).stderr
        assert "the value of key 'k' is not a JSON object" in answer
        assert not (tmp_path / f"out.{kind}").exists()


def test_a_manifest_of_an_export(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    manifest = tmp_path / "out" / "_manifest.json"
    manifest.write_text(DEEP)
    assert f"{manifest} is damaged: it is not JSON" in run("import", tmp_path / "out", code=3).stderr
    for text in ("5", "[]", '"format"', "{"):
        manifest.write_text(text)
        assert "names no format" in run("import", tmp_path / "out", code=2).stderr


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files(db: Path, tmp_path: Path, seed: int) -> None:
    """Files with changed bytes or a missing end are imported, or rejected in one line."""
    parquet = io.BytesIO()
    pq.write_table(pa.table({"key": [f"k{number}" for number in range(100)], "value": ["v"] * 100}), parquet)
    files = {
        "a.csv.gz": gzip.compress(CSV),
        "b.csv.zip": bytes(zipped("a")),
        "c.csv.zip": bytes(zipped("a", method=zipfile.ZIP_LZMA)),
        "d.csv.zip": bytes(zipped("a", method=zipfile.ZIP_BZIP2)),
        "e.parquet": parquet.getvalue(),
        "f.csv": CSV,
        "g.jsonl": b'{"key":"a","value":{"base64":"AAAA"}}\n{"key":"b","value":"c"}\n' * 10,
    }
    rng = random.Random(seed)
    for name, sound in files.items():
        for _ in range(10):
            data = bytearray(sound)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            (tmp_path / name).write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
            answer = CliRunner().invoke(cli, ["--db", str(db), "import", str(tmp_path / name)])
            assert answer.exit_code in (0, 2), (name, answer.stderr)
            assert len(answer.stderr.splitlines()) <= 1
