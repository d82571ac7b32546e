"""import and export: rows to keys and values, the round trip, bad input by line, files whole or not at all."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logdb_cli.commands import cli

import logdb
from tests.harness.served import Served

from .conftest import Run, documents

FLIGHTS = """\
year,month,carrier,delay,note
2013,1,UA,2.5,"on, time"
2013,1,AA,,007
2013,12,UA,-11,"two
lines"
"""
AWKWARD = {
    b"text": "wörld".encode(),
    b"empty": b"",
    b"\x00\xff": bytes(range(256)),
    b'comma,quote"': b'a\nb\r\nc\rd,e"f',
    b"base64:QQ==": b"base64:QQ==",
    b'{"base64":"QQ=="}': b'{"base64":"QQ=="}',
    "\u2028 ".encode(): "\ufeff\u0085\u2028\x1c".encode(),
    b"nul": b"a\x00b",
    b"cr": b"a\rb",
}


def contents(path: Path) -> dict[bytes, bytes]:
    with logdb.open(path, read_only=True) as db:
        return dict(db.scan())


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    path = tmp_path / "flights.csv"
    path.write_text(FLIGHTS)
    return path


# ---- import


def test_rows_become_json_objects_under_the_columns_of_the_key(run: Run, flights: Path, db: Path) -> None:
    assert run("import", flights, "--key", "carrier,month", "--prefix", "f/").stdout == "3 rows imported, version 1\n"
    assert {key: json.loads(value) for key, value in contents(db).items()} == {
        b"f/UA/1": {"year": 2013, "month": 1, "carrier": "UA", "delay": 2.5, "note": "on, time"},
        b"f/AA/1": {"year": 2013, "month": 1, "carrier": "AA", "delay": None, "note": "007"},
        b"f/UA/12": {"year": 2013, "month": 12, "carrier": "UA", "delay": -11, "note": "two\nlines"},
    }


def test_a_key_template(run: Run, flights: Path) -> None:
    run("import", flights, "--key-template", "{year}-{month:02d}-{{{carrier}}}")
    assert run("scan", "--keys-only").stdout == "2013-01-{AA}\n2013-01-{UA}\n2013-12-{UA}\n"


@pytest.mark.parametrize("cell", ["", "0", "-1", "1.5", "1e+16", "007", "+1", "1_0", "1.50", "1e5", "nan", "inf", "NA"])
def test_a_number_that_a_cell_becomes_is_written_as_the_cell_was(run: Run, db: Path, tmp_path: Path, cell: str) -> None:
    path = tmp_path / "cells.csv"
    path.write_text(f"id,cell\nk,{cell}\n")
    run("import", path, "--key", "id")
    value = json.loads(contents(db)[b"k"])["cell"]
    assert cell == ("" if value is None else value if isinstance(value, str) else repr(value))
    out = tmp_path / "out.csv"
    run("export", "--to", out, "--json-values")
    assert out.read_text() == path.read_text()


@pytest.mark.parametrize("batch", [1, 2, 3, 1000])
def test_batches_are_transactions(run: Run, flights: Path, db: Path, batch: int) -> None:
    run("import", flights, "--key", "carrier,month", "--batch", batch)
    with logdb.open(db, read_only=True) as opened:
        assert [len(change.changes) for change in opened.watch(since=0, timeout=0)] == {
            1: [1, 1, 1],
            2: [2, 1],
            3: [3],
            1000: [3],
        }[batch]


def test_skip_goes_on_where_an_import_stopped(run: Run, flights: Path, db: Path) -> None:
    assert run("import", flights, "--key", "carrier,month", "--skip", 2).stdout == "1 row imported, version 1\n"
    assert list(contents(db)) == [b"UA/12"]
    assert run("import", flights, "--key", "carrier,month", "--skip", 3).stdout == "no rows to import\n"


def test_compressed_files_and_stdin(run: Run, flights: Path, db: Path, tmp_path: Path) -> None:
    run("import", flights, "--key", "carrier,month")
    wanted = contents(db)
    (tmp_path / "flights.csv.gz").write_bytes(gzip.compress(FLIGHTS.encode()))
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS)
    rows = [json.dumps(row) for row in csv.DictReader(FLIGHTS.splitlines(keepends=True))]
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    for name in ("flights.csv.gz", "flights.csv.zip", "rows.jsonl.gz"):
        run("delete", *(key.decode() for key in wanted))
        run("import", tmp_path / name, "--key", "carrier,month")
        assert contents(db).keys() == wanted.keys(), name
    run("delete", *(key.decode() for key in wanted))
    run("import", "-", "--format", "csv", "--key", "carrier,month", stdin=FLIGHTS)
    assert contents(db) == wanted


def test_parquet_rows(run: Run, db: Path, tmp_path: Path) -> None:
    import datetime as dt

    table = pa.table(
        {
            "id": [1, 2],
            "ratio": [0.5, float("nan")],
            "day": [dt.date(2013, 1, 2), None],
            "raw": [b"\xff", b"x"],
            "ok": [True, None],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    run("import", tmp_path / "t.parquet", "--key-template", "{id:03d}")
    assert {key: json.loads(value) for key, value in contents(db).items()} == {
        b"001": {"id": 1, "ratio": 0.5, "day": "2013-01-02", "raw": {"base64": "/w=="}, "ok": True},
        b"002": {"id": 2, "ratio": None, "day": None, "raw": {"base64": "eA=="}, "ok": None},
    }


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("a.csv", "", ("--key", "k"), "a.csv: there is no header line"),
        ("a.csv", "k,k\n1,2\n", ("--key", "k"), "a.csv, line 1, column 'k': the column is named twice"),
        ("a.csv", "k,v\n1,2\n3\n", ("--key", "k"), "a.csv, line 3: 1 column, the header has 2"),
        ("a.csv", "k,v\n1,2\n3,4,5\n", ("--key", "k"), "a.csv, line 3: 3 columns, the header has 2"),
        ("a.csv", 'k,v\n1,"2\n', ("--key", "k"), "a.csv, line 2: unexpected end of data"),
        ("a.csv", "k,v\n1,2\n", ("--key", "x"), "a.csv, line 2: there is no column 'x' (there are k, v)"),
        (
            "a.csv",
            "k,v\n,2\n",
            ("--key", "k"),
            "a.csv, line 2, column 'k': it is empty, and the key needs it",
        ),
        ("a.csv", "k,v\nx,2\n", ("--key-template", "{k:02d}"), "a.csv, line 2, column 'k': 'x' as '02d'"),
        ("a.csv", "k,v\n1,2\n", (), "a.csv, line 2: which of the columns k, v make the key?"),
        ("a.csv", "key,value\na,base64:!\n", (), "a.csv, line 2, column 'value': it is not base64"),
        ("a.csv", b"k,v\n1,\xff\n", ("--key", "k"), "a.csv, line 2: byte 3 is not UTF-8"),
        ("a.csv.gz", b"no gzip", ("--key", "k"), "a.csv.gz, line 1: it cannot be unpacked"),
        ("a.csv.zip", b"no zip", ("--key", "k"), "a.csv.zip, line 1: it cannot be unpacked"),
        ("a.jsonl", '{"k": 1}\n{"k": \n', ("--key", "k"), "a.jsonl, line 2, column 7: this is not JSON"),
        ("a.jsonl", "[1]\n", ("--key", "k"), "a.jsonl, line 1: a JSON object was expected, not '[1]'"),
        (
            "a.jsonl",
            '{"key": "a", "value": 1}\n',
            (),
            "a.jsonl, line 1, column 'value': it is neither a string",
        ),
        ("a.parquet", "no parquet", ("--key", "k"), "a.parquet"),
        ("a.txt", "", (), "names no format: use --format"),
    ],
)
def test_bad_input_is_named(
    run: Run, tmp_path: Path, name: str, text: str | bytes, options: tuple[str, ...], message: str
) -> None:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    assert message in run("import", tmp_path / name, *options, code=2).stderr


def test_bad_templates(run: Run, flights: Path, db: Path) -> None:
    for options in (
        ["--key-template", "{"],
        ["--key-template", "fixed"],
        ["--key", "a", "--key-template", "{a}"],
    ):
        run("import", flights, *options, code=2)
    assert not db.exists()


def test_after_bad_input_the_complete_batches_are_stored_and_the_message_says_how_to_continue(
    run: Run, db: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("id\n" + "".join(f"{number}\n" for number in range(25)) + "1,2\n25\n")
    failed = run("import", path, "--key-template", "{id:02d}", "--batch", 10, code=2)
    assert failed.stderr.endswith("line 27: 2 columns, the header has 1; 20 rows are in: go on with --skip 20\n")
    assert len(contents(db)) == 20
    path.write_text(path.read_text().replace("1,2\n", ""))
    run("import", path, "--key-template", "{id:02d}", "--skip", 20)
    assert list(contents(db)) == [f"{number:02d}".encode() for number in range(26)]


def test_large_values_end_a_batch_early(run: Run, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb_cli.transfer.BATCH_BYTES", 1000)
    path = tmp_path / "rows.csv"
    path.write_text("key,value\n" + "".join(f"{number},{'x' * 600}\n" for number in range(4)))
    assert documents(run("import", path, "--json")) == [{"rows": 4, "version": 2}]


# ---- export


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_an_export_is_imported_byte_by_byte(run: Run, db: Path, tmp_path: Path, name: str) -> None:
    with logdb.open(db) as opened:
        opened.multi_put(AWKWARD)
    out, copy = tmp_path / name, tmp_path / "copy"
    assert documents(run("export", "--to", out, "--json")) == [{"keys": len(AWKWARD), "version": 1, "to": str(out)}]
    run("import", out, "--db", copy)
    assert contents(copy) == AWKWARD
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["copy", "data", name]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    items=st.dictionaries(
        st.one_of(st.binary(min_size=1, max_size=8), st.text('a\r\n,":{\0', min_size=1).map(str.encode)),
        st.one_of(st.binary(max_size=8), st.text('a\r\n,":{\0\\').map(str.encode)),
        max_size=5,
    ),
    suffix=st.sampled_from([".csv", ".jsonl"]),
)
def test_any_bytes_survive_the_round_trip(
    run: Run, tmp_path_factory: pytest.TempPathFactory, items: dict[bytes, bytes], suffix: str
) -> None:
    directory = tmp_path_factory.mktemp("round")
    with logdb.open(directory / "a") as opened:
        opened.multi_put(items)
    run("export", "--db", directory / "a", "--to", directory / f"out{suffix}")
    run("import", "--db", directory / "b", directory / f"out{suffix}")
    assert contents(directory / "b") == items


def test_export_of_a_version_and_a_prefix(run: Run, tmp_path: Path) -> None:
    run("multi-put", "a/1", "old", "b", "x")
    run("put", "a/1", "new")
    out = tmp_path / "out.csv"
    run("export", "--at", 1, "--prefix", "a/", "--to", out)
    assert out.read_text() == "key,value\na/1,old\n"


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_json_values_come_out_as_they_went_in(run: Run, tmp_path: Path, suffix: str) -> None:
    source, out = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    rows = ['{"id": "a", "n": 1, "more": {"x": [1, "ü"]}}\n', '{"id": "b", "ok": true}\n']
    source.write_text('id,n,text\na,1,"x,y"\nb,,\n' if suffix == ".csv" else "".join(rows))
    run("import", source, "--key", "id")
    run("export", "--to", out, "--json-values")
    assert out.read_text() == source.read_text()


def test_fields_of_unlike_values_share_a_table(run: Run, tmp_path: Path) -> None:
    run("multi-put", "1", '{"a": 1}', "2", '{"b": [true], "c": null}')
    run("export", "--to", tmp_path / "out.csv", "--json-values")
    assert (tmp_path / "out.csv").read_text() == "a,b,c\n1,,\n,[true],\n"
    run("put", "3", "no JSON")
    assert "'3' is not a JSON object" in run("export", "--to", tmp_path / "no.csv", "--json-values", code=2).stderr
    assert not (tmp_path / "no.csv").exists()


def test_an_export_ignores_what_a_killed_one_has_left(run: Run, tmp_path: Path) -> None:
    """Regression: in a container each export has the same PID, which was in the name; all later ones were refused."""
    run("put", "k", "v")
    (tmp_path / f".out.csv.{os.getpid()}.tmp").write_text("key,val")
    run("export", "--to", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "key,value\nk,v\n"


def test_an_export_appears_whole_or_not_at_all(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("put", "k", "v")
    out = tmp_path / "out.csv"
    out.write_text("precious")
    assert "--force" in run("export", "--to", out, code=2).stderr
    assert "not a file" in run("export", "--to", tmp_path, "--format", "csv", code=2).stderr

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        assert "No space left" in run("export", "--to", out, "--force", code=3).stderr
    assert out.read_text() == "precious"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["data", "out.csv"]
    run("export", "--to", out, "--force")
    assert out.read_text() == "key,value\nk,v\n"


def test_without_spark_the_message_says_what_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("put", "k", "v")
    for name in [name for name in sys.modules if name.split(".")[0] in ("spark_export", "pyspark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = run("export", "--to", tmp_path / "out", "--format", "parquet", "--at", 1, code=3)
    assert "pip install 'logdb[spark]'" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_parquet_directory_is_written_by_spark(
    run: Run, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_export import servers

    asked: dict[str, object] = {}

    def export_snapshot(path: Path, to: Path, **options: object) -> object:
        from spark_export import Exported

        asked.update(options, path=path, to=to)
        return Exported(version=1, time=None, rows=1, files=1, bytes=1)

    monkeypatch.setattr("spark_export.export.export_snapshot", export_snapshot)
    run("put", "k", "v")
    run("put", "k", "w")
    result = run("export", "--at", 1, "--prefix", "k", "--to", tmp_path / "out", "--format", "parquet")
    assert result.stdout == f"1 key of version 1 exported to {tmp_path / 'out'}\n"
    assert asked.pop("progress")
    options = {"base": None, "history": False, "format": "parquet"}
    assert asked == {"path": db, "to": tmp_path / "out", "version": 1, "prefix": b"k", **options}
    run("export", "--to", tmp_path / "table", "--format", "delta", "--base", tmp_path / "out")
    assert asked.pop("progress")
    options = {"base": str(tmp_path / "out"), "history": False, "format": "delta"}
    assert asked == {"path": db, "to": tmp_path / "table", "version": None, "prefix": None, **options}
    served = Served(tmp_path / "served")
    given = ["--endpoints", served.address, "export", "--to", str(tmp_path / "out"), "--format", "parquet"]
    assert CliRunner().invoke(cli, given).exit_code == 0
    assert asked["path"] == servers(served.address)
    served.close()
    for wrong in (["--history", "--base", "b"], ["--history", "--format", "delta"]):
        assert "--history goes with" in run("export", "--to", "x", "--format", "parquet", *wrong, code=2).stderr
    assert "that Spark writes" in run("export", "--to", "x.csv", "--history", code=2).stderr


def test_an_export_of_a_history_comes_back(run: Run, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks run in this process."""
    from spark_export import export

    monkeypatch.setattr(export, "_run", lambda plan, tasks: [task.run() for task in tasks])
    run("put", "k", "1")
    run("put", "k", "2")
    result = run("export", "--to", tmp_path / "out", "--format", "parquet", "--history")
    assert result.stdout == f"2 keys of version 2 exported to {tmp_path / 'out'}\n"
    assert "--prefix and --skip do not apply" in run("import", tmp_path / "out", "--prefix", "p", code=2).stderr
    assert "is not empty" in run("import", tmp_path / "out", code=3).stderr
    run("import", "--db", tmp_path / "back", tmp_path / "out")
    with logdb.open(tmp_path / "back", read_only=True) as back:
        assert [entry.value for entry in back.history(b"k")] == [b"2", b"1"]


def test_a_directory_of_parquet_files_is_imported(run: Run, db: Path, tmp_path: Path) -> None:
    directory = tmp_path / "exported"
    directory.mkdir()
    for number in range(2):
        table = pa.table({"key": [b"k%d" % number], "value": [b"\xff"], "version": [7]})
        pq.write_table(table, directory / f"part-{number:05}.parquet")
    (directory / "_manifest.json").write_text("{}")
    run("import", directory, "--format", "parquet")
    assert contents(db) == {b"k0": b"\xff", b"k1": b"\xff"}


def test_errors_of_an_export_name_its_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("put", "k", "v")
    missing, full = tmp_path / "missing" / "out.csv", tmp_path / "out.csv"
    assert run("export", "--to", missing, code=3).stderr == f"error: {missing}: No such file or directory\n"

    def fsync(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("logdb_cli.sinks.os.fsync", fsync)
    assert f"error: {full}: No space left on device" in run("export", "--to", full, code=3).stderr
    assert not any("out.csv" in entry.name for entry in tmp_path.iterdir())
