"""LogDB with Spark: the data source `logdb`, exports as Parquet or Delta, and their import into a database.

Programs import it as `logdb_spark`, which has the same names; `spark_export` is its name of before.
"""

try:
    from spark_export.endpoints import Endpoints
    from spark_export.export import export_snapshot
    from spark_export.manifest import Exported, ExportFailed, verify_export
    from spark_export.restoring import import_export
    from spark_export.session import register, session
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] in ("logdb", "spark_export"):
        raise
    what = f"logdb_spark needs {error.name}, which is not installed: pip install 'logdb[spark]'"
    raise ModuleNotFoundError(what, name=error.name) from error

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
