"""`logdb log`: a log in a directory of its own, that of a cluster, and those of databases, which it only reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from logdb_cli.commands import cli

import logdb
from logdb.log import AppendId, LocalLog
from tests.harness.clusters import Cluster
from tests.harness.ports import free_addresses
from tests.harness.served import Served

from .conftest import Run, documents


def log(*args: object, code: int = 0, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(cli, ["log", *map(str, args)], input=stdin)
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert len(result.stderr.splitlines()) == (1 if code else 0)
    return result


def test_append_read_subscribe_tail(tmp_path: Path) -> None:
    own = tmp_path / "own"
    assert log("append", "--dir", own, "one", "two").stdout == "1 2\n"
    assert documents(log("append", "--dir", own, "-", "--tag", 7, "--json", stdin=b"\xff\n")) == [{"gsns": [3]}]
    assert log("tail", "--dir", own).stdout == "3\n"
    assert log("read", "--dir", own, 2).stdout.split("\t")[::3] == ["2", "two\n"]
    read = documents(log("read", "--dir", own, 2, "--count", 9, "--json"))
    assert [(record["gsn"], record["tag"], record["payload"]) for record in read] == [
        (2, 1, "two"),
        (3, 7, {"base64": "/wo="}),
    ]
    seen = documents(log("subscribe", "--dir", own, "--timeout", 0, "--tag", 7, "--json"))
    assert [record["gsn"] for record in seen] == [3]
    assert len(log("subscribe", "--dir", own, "--from", 2, "--timeout", 0).stdout.splitlines()) == 2
    assert "does not exist yet" in log("read", "--dir", own, 4, code=3).stderr


def test_trim_removes_whole_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SmallSegments(LocalLog):
        def __init__(self, directory: Path, log_id: bytes, *, writable: bool, follow: bool = False) -> None:
            super().__init__(directory, log_id, writable=writable, follow=follow, segment_bytes=200)

    monkeypatch.setattr("logdb_cli.log_places.LocalLog", SmallSegments)
    own = tmp_path / "own"
    for _ in range(4):
        log("append", "--dir", own, "x" * 150)
    oldest = documents(log("trim", "--dir", own, 3, "--json"))[0]["oldest"]
    assert 1 < oldest <= 3
    assert log("tail", "--dir", own).stdout == "4\n"
    assert "was trimmed" in log("read", "--dir", own, 1, code=3).stderr
    assert "cannot trim" in log("trim", "--dir", own, 9, code=2).stderr


def test_the_log_of_a_database_is_only_read(run: Run, db: Path) -> None:
    run("put", "k", "v")
    before = {path: path.read_bytes() for path in db.rglob("*") if path.is_file()}
    for path in (db, db / "log"):
        assert log("tail", "--dir", path).stdout == "1\n"
        assert documents(log("read", "--dir", path, 1, "--json"))[0]["tag"] == "commit"
        assert len(log("subscribe", "--dir", path, "--timeout", 0).stdout.splitlines()) == 1
        assert "belongs to a database" in log("append", "--dir", path, "x", code=2).stderr
        assert "belongs to a database" in log("trim", "--dir", path, 1, code=2).stderr
    assert {path: path.read_bytes() for path in db.rglob("*") if path.is_file()} == before


def test_a_database_is_not_made_of_a_log_nor_a_log_of_anything_else(run: Run, db: Path, tmp_path: Path) -> None:
    log("append", "--dir", db, "one")
    run("put", "k", "v", code=3)
    run("get", "k", code=3)
    assert log("tail", "--dir", db).stdout == "1\n"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    assert "holds 'file'" in log("append", "--dir", tmp_path / "other", "x", code=3).stderr
    assert "is neither" in log("tail", "--dir", tmp_path / "other", code=3).stderr
    log("trim", "--dir", tmp_path / "none", 1, code=3)
    assert not (tmp_path / "none").exists()
    (db / "LOG").write_text("format = 9\nid = '00000000-0000-0000-0000-000000000000'")
    assert "upgrade LogDB" in log("tail", "--dir", db, code=3).stderr
    (db / "LOG").write_text("nonsense")
    assert "damaged" in log("tail", "--dir", db, code=3).stderr


def test_the_log_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path)
    cluster.start(1)
    try:
        there = ("--endpoints", cluster.ordering[0])
        assert log("tail", *there).stdout == "0\n"
        assert log("append", *there, "one", "two").stdout == "1 2\n"
        assert documents(log("append", *there, "-", "--tag", 7, "--json", stdin=b"\xff\n")) == [{"gsns": [3]}]
        assert log("read", *there, 2).stdout.split("\t")[::3] == ["2", "two\n"]
        read = documents(log("read", *there, 1, "--count", 9, "--json"))
        assert [(record["gsn"], record["tag"], record["payload"]) for record in read] == [
            (1, 1, "one"),
            (2, 1, "two"),
            (3, 7, {"base64": "/wo="}),
        ]
        seen = documents(log("subscribe", *there, "--timeout", 0, "--tag", 7, "--json"))
        assert [record["gsn"] for record in seen] == [3]
        assert documents(log("trim", *there, 3, "--json")) == [{"oldest": 3}]
        assert "record 1 was trimmed; the oldest one left is 3" in log("read", *there, 1, code=3).stderr
        assert "ends at 3, it cannot be trimmed" in log("trim", *there, 9, code=2).stderr
        assert "version 4 does not exist yet; the newest is 3" in log("read", *there, 4, code=3).stderr
        with cluster.connect() as client:
            gsns = client.append([(1, b"four"), (1, b"five")])
            append_id = AppendId(client._connection._core._context.client, ((1, 2), (0, 1)))
        assert log("outcome", *there, append_id).stdout == "{} {} never\n".format(*gsns)
        assert documents(log("outcome", *there, append_id, "--json")) == [{"gsns": [*gsns, None]}]
        stranger = log("outcome", *there, "--timeout", 0.2, AppendId(7, ((1, 1),)), code=3)
        assert "append 0000000000000007-1+1 is unknown: 1 of its records were not found" in stranger.stderr
        assert "'x' is not an append id" in log("outcome", *there, "x", code=2).stderr
        assert "only appends to a cluster have ids" in log("outcome", "--dir", tmp_path, append_id, code=2).stderr
        assert "not both" in log("tail", *there, "--dir", tmp_path / "own", code=2).stderr
        monkeypatch.setenv("LOGDB_ENDPOINTS", cluster.ordering[0])
        assert log("tail").stdout == "5\n"
        log("append", "--dir", tmp_path / "own", "x")
        assert log("tail", "--dir", tmp_path / "own").stdout == "1\n"
    finally:
        cluster.close()


def test_the_log_of_a_cluster_with_a_database_is_only_read(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, mapping=1)
    cluster.start(1)
    try:
        there = ("--endpoints", cluster.ordering[0])
        with logdb.connect(cluster.ordering) as db:
            db.put(b"k", b"v")
        assert documents(log("read", *there, 1, "--json"))[0]["tag"] == "commit"
        assert "belongs to a database" in log("append", *there, "x", code=2).stderr
        assert "belongs to a database" in log("trim", *there, 1, code=2).stderr
        assert log("tail", *there).stdout == "1\n"
    finally:
        cluster.close()


def test_where_there_is_no_log_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "which log? give --dir DIR, --endpoints" in log("tail", code=2).stderr
    assert "'nonsense' is not an address" in log("tail", "--endpoints", "nonsense", code=2).stderr
    served = Served(None)
    try:
        assert "it is a gRPC server of another kind" in log("tail", "--endpoints", served.address, code=3).stderr
    finally:
        served.close()
    monkeypatch.setattr("logdb_cli.log_places.CONNECT_S", 0.2)
    assert "no server answers within 0.2 seconds" in log("tail", "--endpoints", next(free_addresses()), code=3).stderr
