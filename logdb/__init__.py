"""LogDB: a transactional key-value database for Python on a totally ordered shared log.

    import logdb

    with logdb.open("data") as db:
        version = db.put(b"k", b"1")
        db.multi_put({b"a": b"1", b"b": b"2"})
        for key, value in db.scan(prefix=b"a"): ...
        db.at(version=version).get(b"k")

`logdb.aio` is the same for asyncio. Errors: `logdb.errors`. Limits in bytes: a key has at most `MAX_KEY_BYTES` (8 KiB),
a value `MAX_VALUE_BYTES` (64 MiB), and a transaction writes at most `MAX_TRANSACTION_BYTES` (256 MiB).
"""

from logdb.api.database import Database, Snapshot
from logdb.api.opening import connect, open, rebuild, shard_history
from logdb.api.results import Change, Compacted, Found, HistoryEntry, ShardHistory, Stats, Tested
from logdb.backups.manifests import Backup
from logdb.backups.restoring import Restored, restore
from logdb.backups.taking import backup
from logdb.backups.verifying import BackupVerified, list_backups, verify_backup
from logdb.cluster.placement import ByHash, ByPrefix
from logdb.errors import (
    AccessDenied,
    Advice,
    BackupError,
    ColdTierError,
    ConflictError,
    Corruption,
    DatabaseClosed,
    DatabaseInUse,
    FutureVersion,
    IndexUnavailable,
    KeyTooLarge,
    LimitExceeded,
    LogDBError,
    NotADatabase,
    NotANumber,
    OutcomeUnknown,
    ProtocolMismatch,
    ReadOnly,
    TableMismatch,
    TransactionTooLarge,
    Unavailable,
    UniqueViolation,
    UnsupportedFormat,
    ValueTooLarge,
    VersionTrimmed,
    WriterFenced,
)
from logdb.named_logs.retention import Retention
from logdb.retention.sweep import Swept
from logdb.store.conditions import absent, equals, exists, version_equals, version_greater, version_less
from logdb.store.limits import MAX_KEY_BYTES, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES
from logdb.store.records import Condition
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.retry import transactional
from logdb.txn.transaction import Transaction

__all__ = [
    "MAX_KEY_BYTES",
    "MAX_TRANSACTION_BYTES",
    "MAX_VALUE_BYTES",
    "AccessDenied",
    "Advice",
    "Backup",
    "BackupError",
    "BackupVerified",
    "ByHash",
    "ByPrefix",
    "Change",
    "ColdTierError",
    "Compacted",
    "Condition",
    "ConflictError",
    "Corruption",
    "Database",
    "DatabaseClosed",
    "DatabaseInUse",
    "Found",
    "FutureVersion",
    "HistoryEntry",
    "IndexUnavailable",
    "KeyTooLarge",
    "LimitExceeded",
    "LogDBError",
    "NotADatabase",
    "NotANumber",
    "Outcome",
    "OutcomeUnknown",
    "ProtocolMismatch",
    "ReadOnly",
    "Restored",
    "Retention",
    "ShardHistory",
    "Snapshot",
    "Stats",
    "Status",
    "Swept",
    "TableMismatch",
    "Tested",
    "Transaction",
    "TransactionTooLarge",
    "Unavailable",
    "UniqueViolation",
    "UnsupportedFormat",
    "ValueTooLarge",
    "VersionTrimmed",
    "WriterFenced",
    "absent",
    "backup",
    "connect",
    "equals",
    "exists",
    "list_backups",
    "open",
    "rebuild",
    "restore",
    "shard_history",
    "transactional",
    "verify_backup",
    "version_equals",
    "version_greater",
    "version_less",
]
