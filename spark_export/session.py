"""A quiet Spark session on this machine, for `logdb export` and for programs without a session of their own."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING, Final, cast

from logdb.embedded.external_leases import is_alive
from logdb.errors import Unavailable
from spark_export import scratch
from spark_export.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOGGING = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_DAEMON_MODULE = "logdb_daemon"
_DAEMON = """from pyspark import daemon

worker = daemon.worker


def quiet(sock, authenticated):
    try:
        return worker(sock, authenticated)
    except ConnectionError:  # the task has enough rows: first(), limit()
        return 1


daemon.worker = quiet
daemon.manager()
"""
"""The daemon that forks Spark's Python workers. PySpark's own prints a traceback when a task ends before its rows."""


def session(*, cores: int | None = None, memory: str = "2g", name: str = "logdb") -> SparkSession:
    """The Spark session of this process with the data source `logdb`; made if there is none.

    `cores` (default: all), `memory` ("2g") and `name` count only for a session that is made here. Raises Unavailable
    when Spark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
        from pyspark.sql.utils import is_remote
    except ImportError:
        raise Unavailable("Spark is not installed: pip install 'logdb[spark]'") from None
    spark = SparkSession.getActiveSession()
    if spark is None and is_remote():  # Spark Connect's is that of one thread
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        spark = cast(SparkSession, ConnectSession.builder.getOrCreate())
    if spark is None:
        home = java_home()
        (home / "log4j2.properties").write_text(_LOGGING)
        (home / f"{_DAEMON_MODULE}.py").write_text(_DAEMON)
        os.environ["JAVA_HOME"] = str(home)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master(f"local[{cores or '*'}]").appName(name)
        builder = builder.config("spark.driver.memory", memory)
        logging = f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}"
        builder = builder.config("spark.driver.extraJavaOptions", logging)
        builder = builder.config("spark.python.daemon.module", _DAEMON_MODULE)
        builder = builder.config("spark.executorEnv.PYTHONPATH", str(home))
        for option, value in _OPTIONS.items():
            builder = builder.config(option, value)
        spark = builder.getOrCreate()
    return register(spark)


def register(spark: SparkSession, *, push_filters: bool = False) -> SparkSession:
    """Register the data source `logdb` with a session. Returns `spark`, the session.

    `push_filters`: Spark pushes filters down to it, so that less is read. It then returns too few rows for a second
    query of the same DataFrame with other filters: load a DataFrame for each query.

    Times without a time zone are in the session's time zone as it is now: call this again when that changes.
    """
    from spark_export.source import LogDBSource

    id = spark.conf.get("spark.app.id") or ""
    if id and id not in _REGISTERED:
        _REGISTERED.add(id)
        atexit.register(_remove_scratch, id, os.getpid())

    class SessionSource(LogDBSource):
        time_zone = spark.conf.get("spark.sql.session.timeZone")
        application_id = id

    SessionSource.push_filters = push_filters
    if push_filters:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(SessionSource)
    return spark


_REGISTERED: Final = set[str]()


def _remove_scratch(application_id: str, process: int) -> None:
    """Remove the scratch folders of an application at the end of its driver, not of a child of fork()."""
    if os.getpid() == process:
        scratch.sweep_base(lambda other: other.id == application_id or is_alive(other.process) is False)
