"""A manifest is input: its fields are checked, and only the export's own files are read or removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logdb
from logdb import Database
from logdb.embedded.snapshot_plan import PLAN, _checked, _write_checked, load
from spark_export import ExportFailed, export_snapshot, import_export, verify_export
from spark_export.export import _interrupted_job
from spark_export.manifest import MANIFEST, database_name, describe, newest_manifest
from spark_export.parts import EVERYTHING, _whole
from spark_export.parts import _checked as checked_base
from tests.harness.forks import allow_files, become_unprivileged, in_child, refused
from tests.harness.opening import host_of
from tests.spark_export import histories

OpenSmall = Callable[..., Database]


@pytest.fixture
def export(open_small: OpenSmall, tasks: list[str], tmp_path: Path) -> Path:
    """An export of three keys."""
    db = open_small()
    db.multi_put({b"k%d" % number: b"v" for number in range(3)})
    export_snapshot(db.path, tmp_path / "export")
    return tmp_path / "export"


def edit(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    fields = json.loads(file.read_text())
    change(fields)
    fields.pop("sha256")  # as in a manifest of the previous version, which an attacker can write too
    file.write_text(json.dumps(fields))


def first(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda fields: fields["files"][0].update(values)


@pytest.mark.parametrize(
    "change",
    [
        *(
            first(name=name)
            for name in (
                "../outside.parquet",
                "/etc/passwd",
                "a/../b.parquet",
                "..",
                "",
                ".parquet",
                "a\0.parquet",
                7,
                None,
            )
        ),
        first(rows=-1),
        first(rows=True),
        first(bytes=1.5),
        first(bytes=float("nan")),
        first(sha256="0"),
        first(sha256=None),
        first(low="xyz"),
        first(high=5),
        first(changes="no"),
        first(more=1),
        lambda fields: fields["files"].append(fields["files"][0]),
        lambda fields: fields.update(files=None),
        lambda fields: fields.update(files=[None]),
        lambda fields: fields.update(version=-1),
        lambda fields: fields.update(version=1 << 64),
        lambda fields: fields.update(version="1"),
        lambda fields: fields.update(database="../.."),
        lambda fields: fields.update(database=5),
        lambda fields: fields.update(time_ns=10**30),
        lambda fields: fields.update(time_ns=float("inf")),
        lambda fields: fields.update(prefix="p"),
        lambda fields: fields.update(format=True),
        lambda fields: fields.pop("since"),
    ],
)
def test_a_manifest_that_is_wrong(
    export: Path, change: Callable[[dict[str, Any]], object], tmp_path: Path, open_small: OpenSmall
) -> None:
    (tmp_path / "outside.parquet").write_bytes(next(export.glob("*.parquet")).read_bytes())
    edit(export / MANIFEST, change)
    with pytest.raises(logdb.Corruption, match=str(export / MANIFEST)):
        verify_export(export)
    with pytest.raises(logdb.Corruption), logdb.open(tmp_path / "back") as db:
        import_export(db, export)
    with pytest.raises(logdb.Corruption):
        export_snapshot(tmp_path / "db", tmp_path / "next", base=export)
    assert not (tmp_path / "next").exists()


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"[]", b'{"format": NaN}', b'{"format": 2'])
def test_a_file_that_is_not_a_manifest(export: Path, content: bytes) -> None:
    (export / MANIFEST).write_bytes(content)
    with pytest.raises(logdb.Corruption, match=MANIFEST):
        verify_export(export)


def test_a_symbolic_link_is_not_a_file_of_an_export(export: Path, tmp_path: Path) -> None:
    file = next(export.glob("*.parquet"))
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(logdb.Corruption, match=f"{file} is damaged: it cannot be read"):
        verify_export(export)


def test_what_the_system_refuses_is_not_called_damage(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export, and the base of one: with each number of files up to a sufficient one, and without a right."""
    (expected,) = newest_manifest(export).files
    file = export / expected.name

    def with_files(count: int) -> list[str]:
        def body() -> list[str]:
            verify_export(export)  # the libraries have opened what they need
            allow_files(count)
            return refused(lambda: verify_export(export).rows, lambda: checked_base(export, expected).name)

        return in_child(body)

    count, answers = 0, list[str]()
    while (found := with_files(count)) != ["no error: 3", f"no error: {expected.name!r}"]:
        answers += [answer for answer in found if not answer.startswith("no error: ")]
        count += 1
    assert len(answers) >= 2
    for answer in answers:
        assert answer.startswith(f"Unavailable: {export}")
        assert "Too many open files; allow this process more open files (ulimit -n)" in answer

    def without_right() -> list[str]:
        become_unprivileged()
        return refused(lambda: verify_export("."), lambda: checked_base(Path("."), expected))

    for place in (file, export):
        before = place.stat().st_mode
        place.chmod(0 if place == file else 0o311)
        monkeypatch.chdir(export)
        found = in_child(without_right)
        place.chmod(before)
        assert found[0].startswith("Unavailable: ")
        assert found[0].endswith("Permission denied; have its owner allow it, or run as its owner")
        if place == file:
            assert found[1] == found[0]


def test_other_columns_are_not_imported(export: Path, tmp_path: Path) -> None:
    file = next(export.glob("*.parquet"))
    pq.write_table(pa.table({"key": [b"k"], "value": ["text"]}), file)
    edit(export / MANIFEST, lambda fields: fields.update(files=[describe(file, EVERYTHING)._asdict()]))
    with pytest.raises(logdb.Corruption, match="its columns are"), logdb.open(tmp_path / "back") as db:
        import_export(db, export)


def test_a_delta_table_whose_log_is_damaged(open_small: OpenSmall, tasks: list[str], tmp_path: Path) -> None:
    db = open_small()
    db.put(b"k", b"v")
    export_snapshot(db.path, tmp_path / "table", format="delta")
    db.put(b"k", b"w")
    edit(tmp_path / "table" / MANIFEST, first(name="../victim.parquet"))
    with pytest.raises(logdb.Corruption, match=r"'\.\./victim\.parquet' is not the name of a file"):
        export_snapshot(db.path, tmp_path / "table", format="delta")
    for entry in (tmp_path / "table" / "_delta_log").iterdir():
        entry.write_bytes(b"{")
    with pytest.raises(logdb.Corruption, match="it is not the log of a Delta table"):
        newest_manifest(tmp_path / "table")


def test_files_of_a_killed_export_are_validated(open_small: OpenSmall, tasks: list[str], tmp_path: Path) -> None:
    db = open_small()
    db.multi_put({b"a": b"1", b"b": b"2"})
    staging = tmp_path / ".export.staging"
    staging.symlink_to(tmp_path / "db")
    with pytest.raises(ExportFailed, match=f"{staging} cannot be made"):
        export_snapshot(db.path, tmp_path / "export")
    staging.unlink()
    staging.mkdir()
    asked = {"version": None, "time_ns": None, "prefix": None, "base": None, "history": False, "format": "parquet"}
    name = database_name(host_of(db).log_id)
    job = {"asked": asked, "database": name, "version": db.version, "time": None, "since": None, "bounds": ["62", None]}
    (staging / "_job.json").write_text(json.dumps(job))
    (staging / "part-00000.parquet.json").write_text('["../x.parquet", 1, 1, "", null, null, false]')
    assert _whole(staging, "part-00000.parquet") is None
    assert export_snapshot(db.path, tmp_path / "export").rows == 2


def test_files_of_a_killed_export_that_cannot_be_read_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["_job.json", "part-00000.parquet.json"]
    for name in names:
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0)
    tmp_path.chmod(0o777)
    monkeypatch.chdir(tmp_path)

    def body() -> list[str]:
        become_unprivileged()
        return refused(lambda: _interrupted_job(Path(), {}), lambda: _whole(Path(), "part-00000.parquet"))

    job, file = in_child(body)
    assert job.startswith("Unavailable: the interrupted export in . cannot be continued: _job.json: Permission denied")
    assert file.startswith("PermissionError: ")
    assert sorted(file.name for file in tmp_path.iterdir()) == names


def test_a_plan_is_validated(open_small: OpenSmall) -> None:
    db = open_small()
    db.put(b"k", b"v")
    with histories.planned(db.path) as plan:
        file = Path(plan.folder) / PLAN
        fields = json.loads(_checked(file))
        fields["parts"][0][0] = "../../log/x"
        _write_checked(file, json.dumps(fields).encode())
        with pytest.raises(logdb.Corruption, match="a file is not beside it"):
            load(file.parent)
        _write_checked(file, b"{")
        with pytest.raises(logdb.Corruption, match="it is not JSON"):
            load(file.parent)
