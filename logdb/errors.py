"""Every error that LogDB raises, and what a program should do about it.

    LogDBError
    |-- ConflictError           retry      another transaction changed what this one had read
    |-- Unavailable             retry      nothing was done: the disk is full, the database is held by another process
    |   |-- DatabaseInUse
    |   `-- IndexUnavailable
    |-- OutcomeUnknown          ask        db.outcome(error.txn_id) returns it, perhaps after opening the database again
    |-- VersionTrimmed          give up    the version was compacted away; error.oldest is the oldest one left
    |-- FutureVersion           give up    the version does not exist yet; error.newest is the newest one
    |-- ReadOnly                give up    a write through a database or transaction that only reads
    |-- NotANumber              give up    a key to add to, or to take a minimum or maximum with, holds no number
    |-- UniqueViolation         give up    another row has the same values of the fields of a unique index
    |-- WriterFenced            give up    another writer has taken over the exclusive log; nothing was appended
    |-- TableMismatch           give up    a table or an index was created with other types, format or fields
    |-- AccessDenied            give up    no token, a wrong one, or a right that it does not have
    |-- LimitExceeded           give up    (also a ValueError) larger than the named limit; nothing was written
    |   |-- KeyTooLarge
    |   |-- ValueTooLarge
    |   `-- TransactionTooLarge
    |-- BackupError             give up    a backup cannot be continued or restored as asked; the message says why
    |-- ColdTierError           give up    the cold tier is of another database, or lacks what the log has trimmed
    |-- DatabaseClosed          give up    used after close(), or inherited from the parent process by a fork()
    |-- NotADatabase            give up    the directory holds something else
    |-- UnsupportedFormat       give up    written by a version of LogDB newer than this one
    |-- ProtocolMismatch        give up    the server speaks another version of the protocol than this client
    `-- Corruption              give up    damaged bytes: error.path and error.offset say where

A wrong type is a `TypeError` and a malformed argument a `ValueError`, as everywhere in Python.
"""

from __future__ import annotations

from enum import Enum
from os import PathLike, fspath
from typing import Any, ClassVar

from logdb.system.forking import forked_text

__all__ = [
    "AccessDenied",
    "Advice",
    "BackupError",
    "ColdTierError",
    "ConflictError",
    "Corruption",
    "DatabaseClosed",
    "DatabaseInUse",
    "FutureVersion",
    "IndexUnavailable",
    "KeyTooLarge",
    "LimitExceeded",
    "LogDBError",
    "NotADatabase",
    "NotANumber",
    "OutcomeUnknown",
    "ProtocolMismatch",
    "ReadOnly",
    "TableMismatch",
    "TransactionTooLarge",
    "Unavailable",
    "UniqueViolation",
    "UnsupportedFormat",
    "ValueTooLarge",
    "VersionTrimmed",
    "WriterFenced",
]


class Advice(Enum):
    """The caller's next step after an error."""

    RETRY = "retry"
    GIVE_UP = "give up"
    ASK_OUTCOME = "outcome unknown"


class LogDBError(Exception):
    """Base of every error of LogDB. `advice` says whether to retry, to give up or to ask for the outcome."""

    advice: ClassVar[Advice] = Advice.GIVE_UP

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error without calling its constructor, whose arguments are usually not the message."""
        return _remade, (type(self), self.args), self.__dict__


def _remade(kind: type[LogDBError], args: tuple[object, ...]) -> LogDBError:
    return kind.__new__(kind, *args)


class ConflictError(LogDBError):
    """The transaction was aborted because something that it had read changed before it committed.

    Attributes: `key` (the key that changed), `version` (the version that won), `winner` (the label of the
    transaction that wrote it, "" if it had none), `snapshot` (the version that the loser had read). Where a server was
    killed before what the transaction had read was durable, or its snapshot was compacted away while the connection to
    the servers was lost, `key` is empty and `version` 0. `attempts`: when `Database.run` raises the error, how often
    it had run the function.
    """

    advice = Advice.RETRY
    attempts = 1

    def __init__(self, key: bytes, version: int, winner: str, snapshot: int, *, in_range: bool) -> None:
        self.key, self.version, self.winner, self.snapshot = key, version, winner, snapshot
        where = f"key {shown(key)} in a range that was scanned" if in_range else f"key {shown(key)}"
        by = f" by {winner!r}" if winner else ""
        super().__init__(
            f"aborted: {where} was changed{by} at version {version}, after this transaction's snapshot {snapshot};"
            " run the transaction again"
        )

    @classmethod
    def restarted(cls, snapshot: int) -> ConflictError:
        """The error of a transaction whose `snapshot` (a version) was lost when its server restarted; it has no key."""
        error = cls(b"", 0, "", snapshot, in_range=False)
        error.args = (
            f"aborted: its server was restarted, and may have lost what this transaction has read, since its snapshot"
            f" {snapshot} was not durable yet; run the transaction again",
        )
        return error

    @classmethod
    def compacted(cls, snapshot: int) -> ConflictError:
        """The error of a transaction whose `snapshot` (a version) was compacted away while no server held it; it has no
        key.
        """
        error = cls(b"", 0, "", snapshot, in_range=False)
        error.args = (
            f"aborted: its snapshot {snapshot} was compacted away while the servers did not know that it was in use:"
            " the connection was lost, or a server had restarted; run the transaction again",
        )
        return error


class Unavailable(LogDBError):
    """The operation was refused before anything was written; the same call may succeed later."""

    advice = Advice.RETRY


class DatabaseInUse(Unavailable):
    """Another process (or this one) has the directory open for writing. `holder` describes it."""

    def __init__(self, path: str | PathLike[str], holder: str) -> None:
        self.path, self.holder = fspath(path), holder
        super().__init__(
            f"{self.path} is open for writing by {holder}; close it there, or open it here with read_only=True"
        )


class IndexUnavailable(Unavailable):
    """The index called `index` of the table `table` cannot be queried while it is built."""

    def __init__(self, table: str, index: str) -> None:
        self.table, self.index = table, index
        super().__init__(
            f"the index {index!r} of the table {table!r} is being built; wait until create_index returns, or call it to"
            " continue a building that was interrupted"
        )


class UniqueViolation(LogDBError):
    """A row was refused, because another one has the same values of the fields of a unique index.

    `table`, `index`: their names. `fields`: the values. `key`: of the row that was refused, and `holder`: of the other
    one, both as tuples.
    """

    def __init__(
        self, table: str, index: str, fields: tuple[Any, ...], key: tuple[Any, ...], holder: tuple[Any, ...]
    ) -> None:
        self.table, self.index, self.fields, self.key, self.holder = table, index, fields, key, holder
        super().__init__(
            f"the row {key!r:.100} of the table {table!r} has {fields!r:.200} in the unique index {index!r}, as the row"
            f" {holder!r:.100} has; nothing was written"
        )


class NotANumber(LogDBError):
    """`add`, `min` or `max` was refused: the value of `key` is not a decimal number of at most 100 digits, or would
    not be one afterwards. Nothing was written."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        super().__init__(
            f"the value of key {shown(key)} is not a decimal number of at most 100 digits, or would not be one after"
            " this transaction; nothing was written: put a number there, or delete the key"
        )


class TableMismatch(LogDBError):
    """A table was opened, or an index declared, otherwise than it was created; or the table's keys belong to something
    else."""


class WriterFenced(LogDBError):
    """An append was refused, because another writer has taken over the exclusive log `log`. Nothing was appended.

    `epoch`: of this writer. `newest`: the epoch of the writer that has the log.
    """

    def __init__(self, log: str, epoch: int, newest: int) -> None:
        self.log, self.epoch, self.newest = log, epoch, newest
        super().__init__(
            f"the writer of epoch {epoch} of the log {log!r} is fenced: another one has taken over with epoch {newest};"
            " nothing was appended"
        )


class OutcomeUnknown(LogDBError):
    """The transaction may or may not have been committed: the log failed, or no answer came in time.

    `txn_id`: for `Database.outcome`, which may need the database to be opened again. `cause`: what failed.
    """

    advice = Advice.ASK_OUTCOME

    def __init__(self, txn_id: str, cause: str) -> None:
        self.txn_id, self.cause = txn_id, cause
        super().__init__(
            f"the outcome of transaction {txn_id} is unknown: {cause}; "
            f"open the database again and ask db.outcome({txn_id!r})"
        )


class VersionTrimmed(LogDBError):
    """The `version` is older than `oldest`, the oldest one that compaction has left."""

    def __init__(self, version: int, oldest: int) -> None:
        self.version, self.oldest = version, oldest
        super().__init__(f"version {version} was compacted away; the oldest version left is {oldest}")


class FutureVersion(LogDBError):
    """The `version`, or point in time, is newer than `newest`, the newest version."""

    def __init__(self, version: object, newest: int) -> None:
        self.version, self.newest = version, newest
        super().__init__(f"version {version} does not exist yet; the newest is {newest}")

    @classmethod
    def of_time(cls, time: int, newest: int) -> FutureVersion:
        """The error for a point in `time`, in ns since the epoch. `newest`: the newest version."""
        return cls(f"of the time {time / 1e9:.3f} (seconds since the epoch)", newest)


class ReadOnly(LogDBError):
    """A write through a database, snapshot or transaction that was opened for reading only."""


class AccessDenied(LogDBError):
    """A server refuses this request of this client. Nothing was done. The message says which right is missing."""


class LimitExceeded(LogDBError, ValueError):
    """Something is larger than its limit; nothing was written. `size` and `limit`: in bytes, or in operations where the
    message names them.
    """

    what: ClassVar[str] = "the object"
    unit: ClassVar[str] = "bytes"
    effect: ClassVar[str] = "nothing was written"

    def __init__(self, size: int, limit: int, detail: str = "") -> None:
        self.size, self.limit = size, limit
        super().__init__(f"{self.what}{detail} has {size:,} {self.unit}, the limit is {limit:,}; {self.effect}")


class KeyTooLarge(LimitExceeded):
    """The key is longer than `logdb.MAX_KEY_BYTES`."""

    what = "the key"
    effect = "nothing was done"


class ValueTooLarge(LimitExceeded):
    """The value is longer than `logdb.MAX_VALUE_BYTES`."""

    what = "the value"


class TransactionTooLarge(LimitExceeded):
    """The commit would be longer than `logdb.MAX_TRANSACTION_BYTES`; split it."""

    what = "the transaction"


class DatabaseClosed(LogDBError):
    """The database at `path` was used after `close()`, or in a child of fork() that inherited it from process `parent`
    (0: it did not).
    """

    def __init__(self, path: str, parent: int = 0) -> None:
        self.path, self.parent = path, parent
        super().__init__(f"{path} was {forked_text(parent)}" if parent else f"{path} is closed")


class BackupError(LogDBError):
    """A backup cannot be continued or restored as asked: it is of another database, has no such version, or its target
    is not empty. Nothing was changed."""


class ColdTierError(LogDBError):
    """A place cannot be the cold tier of this database: it is that of another one or of another copy, it lacks records
    that the log has trimmed, or it was removed. Nothing was changed."""


class NotADatabase(LogDBError):
    """The directory is not a LogDB database (and not empty, so none is created in it)."""


class UnsupportedFormat(LogDBError):
    """The file `path` was written by a newer LogDB. Nothing in it was changed."""

    def __init__(self, path: str | PathLike[str], found: int, supported: int) -> None:
        self.path, self.found, self.supported = fspath(path), found, supported
        super().__init__(
            f"{self.path} has format {found}, this LogDB reads up to {supported}; upgrade LogDB to open it"
        )


class ProtocolMismatch(LogDBError):
    """The client speaks protocol version `ours`, the server at `endpoint` version `theirs`."""

    def __init__(self, endpoint: str, theirs: int, their_release: str, ours: int, our_release: str) -> None:
        self.endpoint, self.theirs, self.ours = endpoint, theirs, ours
        super().__init__(
            f"{endpoint} speaks protocol {theirs} (LogDB {their_release}), this client speaks {ours}"
            f" (LogDB {our_release}); install the same version on both sides"
        )


class Corruption(LogDBError):
    """Bytes on disk are not what was written. `path` and `offset` (bytes, None for the whole file) say where."""

    def __init__(self, path: str | PathLike[str], offset: int | None, what: str) -> None:
        self.path, self.offset, self.what = fspath(path), offset, what
        at = "" if offset is None else f" at byte {offset}"
        super().__init__(f"{self.path} is damaged{at}: {what}")


def shown(key: bytes, max_bytes: int = 40) -> str:
    """A key for an error message: its repr, cut in the middle when it is long."""
    return repr(key) if len(key) <= max_bytes else f"{key[: max_bytes // 2]!r}...{key[-8:]!r} ({len(key)} bytes)"
