"""The views of one version that need no Spark: what the log says, what a scan says and what the feed says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from logdb import Database
from logdb.store.records import (
    COMMIT,
    COMPACTION,
    RELOCATION,
    VALUE,
    DeletedRange,
    Place,
    decode_commit,
    decode_compaction,
    decode_relocation,
)

Rows = list[tuple[bytes, bytes, int]]
"""(key, value, the version that wrote it), in key order."""


def folded(log: Any, version: int, committed: Collection[int]) -> Rows:
    """The rows according to the log alone. `committed`: the versions that were not aborted."""
    large: dict[int, bytes] = {}
    found: dict[bytes, dict[int, Any]] = {}
    deleted: set[DeletedRange] = set()
    for gsn, _, tag, payload in log.scan(log.oldest_after_trim(log.oldest()), log.durable + 1):
        if tag == VALUE:
            large[gsn] = payload
        elif tag == COMMIT and gsn in committed:
            commit = decode_commit(payload, gsn)
            deleted.update(DeletedRange(gsn, *one) for one in commit.deletes)
            for key, value in commit.writes.items():
                found.setdefault(key, {})[gsn] = value
        elif tag == COMPACTION:
            deleted.update(decode_compaction(payload).deletes)
        elif tag == RELOCATION:
            for key, written, value in decode_relocation(payload):
                found.setdefault(key, {})[written] = value
    rows: Rows = []
    for key, chain in sorted(found.items()):
        newest = max((written for written in chain if written <= version), default=None)
        if any(one.has(key) and (newest or 0) < one.version <= version for one in deleted):
            continue
        if newest is not None and chain[newest] is not None:
            value = chain[newest]
            rows.append((key, large[value.gsn] if isinstance(value, Place) else value, newest))
    return rows


def scanned(db: Database, version: int) -> Rows:
    """The rows of a scan at the version, with the newest entry of each key's history."""
    snapshot = db.at(version=version)
    rows = []
    for key, value in snapshot.scan():
        newest = next(snapshot.history(key))
        assert newest.value == value, (key, version)
        rows.append((key, value, newest.version))
    return rows


def replayed(db: Database, since: int, version: int) -> Rows:
    """The rows of the scan at `since`, changed by the feed from `since` on."""
    state = {key: (value, written) for key, value, written in scanned(db, since)}
    for change in db.watch(since=since, timeout=0):
        if change.version > version:
            break
        for start, end in change.deleted:
            for key in [key for key in state if start <= key and (end is None or key < end)]:
                del state[key]
        for key, value in change.changes.items():
            state.pop(key, None)
            if value is not None:
                state[key] = value, change.version
    return [(key, value, written) for key, (value, written) in sorted(state.items())]
