"""Tables of Spark's catalog, `CREATE TABLE ... USING logdb`, and the options that Spark adds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logdb
from spark_export.catalog_tables import split_options, with_options
from spark_export.options import Options, local_path
from spark_export.source import LogDBSource
from tests.spark_export import planning


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    with logdb.open(tmp_path / "a db%20") as db:
        db.multi_put({b"f/1": b'{"n": 1}', b"f/2": b'{"n": 2}'})
        db.put(b"f/2", b'{"n": 22}')
    return str(tmp_path / "a db%20")


def test_sql_reads_writes_and_travels(spark: Any, path: str) -> None:
    spark.sql(f"CREATE TABLE flights USING logdb OPTIONS (path 'file:{path}', codec 'json')")
    spark.sql(f"CREATE TABLE named (key STRING, n INT) USING logdb LOCATION '{path}'")
    spark.sql(f"CREATE TABLE plain USING logdb LOCATION '{path}'")
    spark.sql(f"CREATE TEMPORARY VIEW texts (key STRING, n INT) USING logdb OPTIONS (path '{path}', codec 'json')")
    try:
        assert spark.sql("SELECT sum(n) FROM flights").first() == (23,)
        assert spark.sql("SELECT n FROM flights WITH (atVersion = 1) WHERE key = 'f/2'").collect() == [(2,)]
        options = f"WITH (path = '{path}', codec = 'json')"
        both = f"SELECT * FROM named {options} UNION ALL SELECT * FROM texts"
        assert sorted(spark.sql(both).collect()) == [("f/1", 1), ("f/1", 1), ("f/2", 22), ("f/2", 22)]
        with pytest.raises(Exception, match=r"created with a list of columns: .* WITH \(path = "):
            spark.sql("SELECT * FROM named").collect()
        for clause in ("VERSION AS OF 1", "TIMESTAMP AS OF '2026-01-01'", "WITH (versionAsOf = 1)"):
            with pytest.raises(Exception, match=r"UNSUPPORTED_FEATURE.TIME_TRAVEL"):
                spark.sql(f"SELECT * FROM plain {clause}")
        spark.sql("INSERT INTO plain (key, value) VALUES (cast('f/3' as binary), cast('{}' as binary))")
        assert spark.read.table("plain").count() == 3
        with logdb.open(path) as db:
            assert db[b"f/3"] == b"{}"
    finally:
        for name in ("flights", "named", "plain"):
            spark.sql(f"DROP TABLE {name}")
        spark.sql("DROP VIEW texts")
    assert Path(path).exists()


def test_the_columns_of_a_table_carry_its_options_but_no_token(path: str) -> None:
    created = {"path": path, "token": "secret", "owner": "ada", "provider": "logdb", "option.path": path}
    with pytest.raises(ValueError, match="token goes with endpoints"):
        LogDBSource(created).schema()
    columns, options = split_options(LogDBSource({"Path": path, "prefix": "f/1", "OWNER": "ada"}).schema())
    assert options == {"Path": path, "prefix": "f/1"}
    assert columns == LogDBSource({"path": path}).schema()
    assert "secret" not in with_options(columns, {"token": "secret", "endpoints": "a:1"}).json()
    table = with_options(columns, options)
    reader = LogDBSource({"Prefix": "f/2", "atVersion": "1"}).reader(table)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows == [{"key": b"f/2", "value": b'{"n": 2}', "version": 1}]


def test_options_of_spark_are_ignored_and_others_are_not(path: str) -> None:
    rows = planning.read(path, mergeSchema="true", pathGlobFilter="*", checkpointLocation="/x")
    assert len(rows) == 2
    with pytest.raises(ValueError, match="has no option 'mergeScheme' here"):
        LogDBSource({"path": path, "mergeScheme": "true"})
    with pytest.raises(ValueError, match="versionAsOf is given twice, once as atVersion"):
        LogDBSource({"path": path, "versionAsOf": "1", "atVersion": "1"})


def test_paths_as_spark_writes_them() -> None:
    for text in ("/a b/%20", "file:/a b/%20", "file:///a b/%20", "file://localhost/a b/%20"):
        assert local_path(text) == Path("/a b/%20")
    assert local_path("a:b") == local_path("file:a:b") == Path.cwd() / "a:b"
    assert Options({"path": "file:x"}, ("path",)).location() == Path.cwd() / "x"
    for text in ("s3://bucket/db", "file://host/db", "hdfs:/db"):
        with pytest.raises(ValueError, match="path must be a directory"):
            local_path(text)
