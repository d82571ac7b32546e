"""LogDB with Spark: the data source `logdb`, exports as Parquet or Delta, and their import into a database.

from spark_export import register, session

spark = session()                                    # or: register(spark) for a session of your own
spark.read.format("logdb").option("versionAsOf", 42).load("data")

export_snapshot("data", "flights-at-42", version=42)
"""

from spark_export.endpoints import Endpoints
from spark_export.export import export_snapshot
from spark_export.manifest import Exported, ExportFailed, verify_export
from spark_export.restoring import import_export
from spark_export.session import register, session

servers = Endpoints.of
"""Where a database is served, for `export_snapshot`; named as for `logdb.connect`."""

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
