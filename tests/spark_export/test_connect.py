"""A session of Spark Connect: the client has no Java, and sends the data source to the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import logdb

ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from spark_export.java import java_home

os.environ["JAVA_HOME"] = str(java_home())
path, to = sys.argv[1:]

import logdb
from pyspark.sql import SparkSession
from spark_export import export_snapshot, register, verify_export

spark = register(SparkSession.builder.remote("local[2]").getOrCreate())
assert "connect" in type(spark).__module__
logs = spark.read.format("logdb")
assert [tuple(row) for row in logs.load(path).sort("key").collect()] == [(b"a", b"2", 2), (b"b", b"1", 1)]
assert logs.option("versionAsOf", 1).load(path).where("key = X'61'").collect()[0].value == b"1"

spark.sql(f"CREATE TABLE t USING logdb OPTIONS (path '{path}')")
assert spark.sql("SELECT count(*) FROM t").collect()[0][0] == 2

stream = spark.readStream.format("logdb").option("startingVersion", 1).load(path)
query = stream.writeStream.format("memory").queryName("m").trigger(availableNow=True)
query.option("checkpointLocation", to + "-checkpoint").start().awaitTermination()
assert spark.table("m").count() == 3

spark.createDataFrame([("c", "3")], "key STRING, value STRING").write.format("logdb").mode("append").save(path)
with ThreadPoolExecutor() as pool:  # the session is active in this thread only
    exported = pool.submit(export_snapshot, path, to).result()
assert (exported.version, exported.rows) == (3, 3)
verify_export(to)
try:
    logs.option("versionAsOf", 9).load(path)
except Exception as error:
    assert "FutureVersion" in str(error) and "version 9" in str(error), error
spark.stop()
"""


@pytest.mark.long
def test_reads_streams_writes_and_exports(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with logdb.open(path) as db:
        db.multi_put({b"a": b"1", b"b": b"1"})
        db.put(b"a", b"2")
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_TESTING": "1",  # a free port, instead of 15002
    }
    command = [sys.executable, "-c", SCRIPT, str(path), str(tmp_path / "export")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=540
    )
    assert done.returncode == 0, done.stderr
    with logdb.open(path) as db:
        assert db[b"c"] == b"3"
