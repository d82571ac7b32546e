"""Spark over LogDB: the data source `logdb`, and snapshots exported as Parquet.

from spark_export import register, session

spark = session()                                    # or: register(spark) for a session of your own
spark.read.format("logdb").option("versionAsOf", 42).load("data")

export_snapshot("data", "flights-at-42", version=42)
"""

from spark_export.export import Exported, ExportFailed, export_snapshot, verify_export
from spark_export.session import register, session

__all__ = ["ExportFailed", "Exported", "export_snapshot", "register", "session", "verify_export"]
