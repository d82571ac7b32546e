"""TPC-C on SQLite: the statements of PostgreSQL, in transactions that begin as writers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.tpcc.postgres_terminal import INDEXES, TABLES, SqlTerminal
from benchmarks.tpcc.workload import Scale, initial_rows

WAIT_S: Final = 60.0


def _connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def load(path: Path, scale: Scale) -> None:
    """Make the tables and all rows that they begin with."""
    connection = _connection(path)
    connection.execute("BEGIN")
    for table, (key, columns) in TABLES.items():
        names = ", ".join(column.split()[0] for column in key.split(", "))
        fields = ", ".join(part for part in (key, columns) if part)
        connection.execute(f"CREATE TABLE {table} ({fields}, PRIMARY KEY ({names})) WITHOUT ROWID")
    for row in initial_rows(scale):
        values = (*row.key, *row.columns.values())
        connection.execute(f"INSERT INTO {row.table} VALUES ({', '.join('?' * len(values))})", values)
    for number, statement in enumerate(INDEXES):
        connection.execute(statement.replace("INDEX ON", f"INDEX index_{number} ON"))
    connection.execute("COMMIT")
    connection.execute("ANALYZE")
    connection.close()


class SqliteTerminal(SqlTerminal):
    """See `Terminal`."""

    def __init__(self, path: Path) -> None:
        self._connection = _connection(path)

    def _execute(self, statement: str, values: Sequence[object]) -> Any:
        return self._connection.execute(statement.replace("%s", "?"), values)

    def _run(self, body: Callable[..., Any], *arguments: Any) -> Any:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = body(self._execute, *arguments)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        return result
