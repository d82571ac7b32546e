"""Numbered transactions of a job, each of which is applied once, however often the job runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from logdb import Database
from logdb.errors import OutcomeUnknown
from logdb.store.records import TxnId
from logdb.txn.coordinator import Status
from logdb.txn.transaction import Workspace
from spark_export.entries import append_entries


class NumberedTransactions:
    """The transactions of a job: its name gives the client id, the numbers begin with 1 and have no gaps. `log`: the
    named log that items are appended to, as entries (`entries.written_entries`)."""

    def __init__(self, db: Database, name: str, log: str | None = None) -> None:
        self._db, self._log = db, log
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        self._client = int.from_bytes(digest, "little") >> 1 | 1 << 62
        self._next = 0

    def has_begun(self) -> bool:
        """Return whether the first transaction was applied before."""
        return self._is_done(TxnId(self._client, 1))

    def put(self, items: Mapping[bytes, bytes | None], label: str = "") -> None:
        """Write items as the next transaction, unless it was applied before. Raises as `Database.multi_put`."""
        work = Workspace(self, read_only=False, label=label, guard_writes=False)
        id = work.txn_id
        if self._is_done(id):
            return
        if self._log is None:
            work.multi_put(items)
        else:
            scan = self._db.scan
            append_entries(work, self._log, items, lambda ids: next(scan(*ids, reverse=True, limit=1), None))
        self._db._host.begin_work(work)
        try:
            self._db._host.commit(work)
        except OutcomeUnknown:
            if not self._is_done(id):
                raise

    def new_txn_id(self) -> TxnId:
        """The id of the next transaction."""
        self._next += 1
        return TxnId(self._client, self._next)

    def _is_done(self, id: TxnId) -> bool:
        return self._db.outcome(str(id)).status in (Status.COMMITTED, Status.FORGOTTEN)
