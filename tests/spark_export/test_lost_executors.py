"""Executors that are killed while they read a cluster: each row comes once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import logdb
from tests.harness.clusters import Cluster

ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
from spark_export import register
from spark_export.java import java_home

os.environ["JAVA_HOME"] = str(java_home())
endpoints, killed = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[2,1,512]")
options = {
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.ui.enabled": "false",
}
for option, value in options.items():
    builder = builder.config(option, value)
spark = register(builder.getOrCreate())

def kill_executor():
    "The JVM that has started this process: its grandparent. Only once."
    try:
        os.mkdir(killed)
    except FileExistsError:
        return
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    executor = int(stat.rpartition(")")[2].split()[1])
    assert executor > 1
    os.kill(executor, signal.SIGKILL)

def in_the_middle(batches):
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        kill_executor()
        yield batch.slice(half)

frame = spark.read.format("logdb").option("endpoints", endpoints).option("partitionBytes", 300_000).load()
rows = frame.mapInArrow(in_the_middle, frame.schema).collect()
for row in rows:
    print(row.key.hex(), row.value.hex())
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster", storage=2, mapping=1, aggregators=0)
    cluster.start(2)
    yield cluster
    cluster.close()


def spark_home(path: Path) -> Path:
    """Spark's home without its folder `work`, in which executors would be run."""
    path.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (path / entry.name).symlink_to(entry)
    return path


@pytest.mark.long
def test_a_read_of_a_cluster_survives_an_executor(tmp_path: Path, cluster: Cluster) -> None:
    expected = {b"%05d" % number: b"%01000d" % number for number in range(1_000)}
    with logdb.connect(cluster.mapping[0]) as db:
        for number in range(0, 1_000, 100):
            db.multi_put({key: expected[key] for key in sorted(expected)[number : number + 100]})
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "SPARK_HOME": str(spark_home(tmp_path / "spark")),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [sys.executable, "-c", SCRIPT, ",".join(cluster.ordering), str(tmp_path / "killed")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=540)
    assert done.returncode == 0, done.stderr
    rows = [tuple(map(bytes.fromhex, line.split())) for line in done.stdout.splitlines()]
    assert sorted(rows) == sorted(expected.items())
    assert (tmp_path / "killed").exists()
