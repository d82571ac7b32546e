"""The history of an object read from its shard alone, when no mapping server answers (`cluster/summaries.py`).

That takes the ordering layer, which says where the log begins and ends, and one replica of the shard.
"""

from __future__ import annotations

from collections.abc import Sequence

from logdb.clients.log_client import AsyncRemoteLog, Connection
from logdb.cluster.placement import Placement
from logdb.cluster.summaries import HISTORY_KINDS, ShardHistory
from logdb.cores.effects import Address
from logdb.errors import Corruption, Unavailable, shown
from logdb.log import requests as calls
from logdb.log.contract import Trimmed
from logdb.security.credentials import NONE, Credentials
from logdb.store.records import Place

Versions = list[tuple[int, bytes | None]]


async def read_history(
    endpoints: Sequence[Address], key: bytes, placement: Placement, timeout_s: float, credentials: Credentials = NONE
) -> tuple[int, Versions]:
    """(the version up to which it is complete, the versions of `key` up to there, newest first). Each answer may take
    `timeout_s`. Raises Unavailable, AccessDenied, Corruption, ValueError."""
    shard = placement(key)
    if shard is None:
        raise ValueError(f"the placement names no shard for {shown(key)}")
    async with AsyncRemoteLog(await Connection.open(endpoints, timeout_s, credentials), timeout_s) as log:
        while True:
            try:
                return await _read(log, key, shard, timeout_s)
            except Trimmed:
                continue  # a compaction has ended meanwhile: it has restated what is gone
            except TimeoutError as error:
                what = "no answer of the ordering layer, of a replica of the shard, or of one that holds a large value"
                raise Unavailable(f"{shown(key)} on shard {shard}: {what} ({timeout_s:g} s)") from error


async def _read(log: AsyncRemoteLog, key: bytes, shard: int, timeout_s: float) -> tuple[int, Versions]:
    position, tail = await log.oldest(), await log.tail()
    if shard not in {config.shard for config in (await log.configuration()).shards}:
        raise Unavailable(f"{shown(key)}: the log has no shard {shard}")
    history, oldest = ShardHistory(key, shard), position
    subscription = await log.call(calls.Subscribe(max(position, 1), HISTORY_KINDS, shard=shard))
    while position <= tail:
        batch = await log.call(calls.Next(subscription), timeout_s)
        if batch is None:
            raise TimeoutError
        for record in batch.records:
            history.take(record)
        position = batch.end
    await log.call(calls.Close(subscription))
    through, versions = history.versions(oldest)
    found: Versions = []
    for version, value in versions:
        if isinstance(value, Place):
            record = await log.read_record(value.gsn, value.shard, timeout_s)
            if not value.has(record.tag, record.payload):
                what = f"record {value.gsn} is not the value of version {version} of {shown(key)} (DBS-10)"
                raise Corruption(f"shard {value.shard}", None, what)
            found.append((version, record.payload))
        else:
            found.append((version, value))
    return through, found
