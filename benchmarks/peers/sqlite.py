"""SQLite through sqlite3: WAL, synchronous=FULL, a connection for each thread, statements prepared and cached by it.

Writers of one process queue at a lock, which serves them better than SQLite's own waiting, which sleeps and tries again
(64 threads: 1.5 times the rate); the busy timeout is for the rest.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from benchmarks.peers import Items, Operation, incremented

BUSY_TIMEOUT_S = 60.0
TABLE = "CREATE TABLE IF NOT EXISTS pairs (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
READ = "SELECT value FROM pairs WHERE key = ?"
RANGE = "SELECT key, value FROM pairs WHERE key >= ? ORDER BY key LIMIT ?"
WRITE = "INSERT INTO pairs VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


class SQLite:
    name: ClassVar[str] = "SQLite"

    def __init__(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        self._file = path / "pairs.sqlite"
        self._writing = threading.Lock()
        self._connection = connect(self._file)
        self._connection.execute(TABLE)

    def load(self, items: Items) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(WRITE, items.items())
        self._connection.execute("COMMIT")

    def reopen(self) -> None:
        self._connection.close()
        self._connection = connect(self._file)

    def compact(self) -> None:
        self._connection.execute("VACUUM")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def session(self) -> SQLiteSession:
        return SQLiteSession(connect(self._file), self._writing)

    def close(self) -> None:
        self._connection.close()


def connect(file: Path) -> sqlite3.Connection:
    """A connection in autocommit mode: transactions begin with an explicit BEGIN."""
    connection = sqlite3.connect(file, BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -65536")
    connection.execute("PRAGMA mmap_size = 1073741824")
    return connection


class SQLiteSession:
    def __init__(self, connection: sqlite3.Connection, writing: threading.Lock) -> None:
        self._connection, self._writing = connection, writing

    def put(self, key: bytes, value: bytes) -> None:
        with self._writing:
            self._connection.execute(WRITE, (key, value))

    def multi_put(self, items: Items) -> None:
        connection = self._connection
        with self._writing:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(WRITE, items.items())
            connection.execute("COMMIT")

    def multi_delete(self, keys: Sequence[bytes]) -> None:
        connection = self._connection
        with self._writing:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM pairs WHERE key = ?", [(key,) for key in keys])
            connection.execute("COMMIT")

    def increment(self, key: bytes) -> None:
        execute = self._connection.execute
        with self._writing:
            execute("BEGIN IMMEDIATE")
            (value,) = execute(READ, (key,)).fetchone()
            execute("UPDATE pairs SET value = ? WHERE key = ?", (incremented(value), key))
            execute("COMMIT")

    def get_each(self, keys: Sequence[bytes]) -> bytes:
        execute = self._connection.execute
        value = b""
        for key in keys:
            (value,) = execute(READ, (key,)).fetchone()
        return value

    def multi_get_each(self, groups: Sequence[list[bytes]]) -> int:
        execute = self._connection.execute
        found: dict[bytes, bytes] = {}
        read = f"SELECT key, value FROM pairs WHERE key IN ({', '.join('?' * len(groups[0]))})"
        for group in groups:
            found = dict(execute(read, group))
        return len(found)

    def scan(self) -> int:
        rows = 0
        for _key, _value in self._connection.execute("SELECT key, value FROM pairs ORDER BY key"):
            rows += 1
        return rows

    def scan_each(self, starts: Sequence[bytes], limit: int) -> int:
        execute, rows = self._connection.execute, 0
        for start in starts:
            rows = 0
            for _key, _value in execute(RANGE, (start, limit)):
                rows += 1
        return rows

    def do_each(self, operations: Sequence[Operation]) -> int:
        execute = self._connection.execute
        rows: list[tuple[bytes, bytes]] = []
        for key, what in operations:
            if isinstance(what, int):
                rows = execute(RANGE, (key, what)).fetchall()
            else:
                with self._writing:
                    execute(WRITE, (key, what))
        return len(rows)

    def close(self) -> None:
        self._connection.close()
