"""LogDB with Spark: the data source `logdb`, exports as Parquet or Delta, and their import into a database.

from logdb_spark import register, session

spark = session()                                    # or: register(spark) for a session of your own
spark.read.format("logdb").option("versionAsOf", 42).load("data")

export_snapshot("data", "flights-at-42", version=42)

The package had the name `spark_export` before. It keeps that name, too: Spark's workers find the classes of running
streams and of tasks by the module that defines them.
"""

from spark_export import (
    Endpoints,
    Exported,
    ExportFailed,
    export_snapshot,
    import_export,
    register,
    servers,
    session,
    verify_export,
)

__all__ = [
    "Endpoints",
    "ExportFailed",
    "Exported",
    "export_snapshot",
    "import_export",
    "register",
    "servers",
    "session",
    "verify_export",
]
