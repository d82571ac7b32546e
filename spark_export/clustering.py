"""The log of a cluster's database, for tasks of Spark's.

A part is a range of GSNs. A task follows the log in it as any client does: it pulls from a replica of each shard, goes
to another one when that is silent, merges by GSN and notices every gap (SCA-11). So the load is spread over all shards
and replicas, the parts come in the order of the log, and shards that are added or finalized meanwhile need no thought.

What a compaction has copied stands in PART records between its BEGINNING and its ENDING, and only those of the last one
that was finished count (`messages.Floor`): they are handed on as RELOCATION records. While another one is under way its
floor is in force already and its copies are not whole yet, so planning waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Final

from logdb.cluster import calls
from logdb.cluster.cleaning import copies_of
from logdb.cluster.messages import Floor
from logdb.cluster.upkeep import HOLD_NS
from logdb.embedded.plan import Part
from logdb.errors import Corruption, Unavailable, VersionTrimmed
from logdb.log import requests as log
from logdb.log.contract import Batch, LogFailed, LogRecord, NotOfThisShard, Trimmed
from logdb.log.cores import SECOND
from logdb.log.requests import RECORD_BYTES
from logdb.net.database.client import ClusterHost
from logdb.net.hosted_client import given
from logdb.net.loops import in_shared_loop, shared_loop
from logdb.store.records import COMMIT, PART, RELOCATION, decode_commit, decode_relocation
from spark_export.remote import Asked, Laid, Large, RemotePlan, Stretch, laid_as_frames, pulled

PROBES: Final = 16
PROBE_BYTES: Final = 64 << 10
SAMPLES_OF_A_PROBE: Final = 128
SAMPLES_OF_A_RECORD: Final = 8
BATCH_BYTES: Final = 16 << 20
"""So much of the log is decoded together."""
TOLD_S: Final = 3 * HOLD_NS / SECOND
"""After so long every server knows what is held; who compacted before it knew has moved the floor."""
COMPACTION_S: Final = 600.0
"""So long planning waits for a compaction under way."""
HELD_S: Final = 10.0
"""Who has planned holds what is needed for so long, if it lives."""
AT_ONCE: Final = 64
"""Large values that are asked for at a time."""
DATABASES: Final = uuid.UUID("6c6f6764-6220-636c-8573-746572732121")


class ClusterSource:
    """A client of a cluster, for threads."""

    def __init__(self, host: ClusterHost) -> None:
        self._host = host

    # ---- planning

    def lay_out(self, asked: Asked) -> Laid:
        """See `remote.laid_out`."""
        return in_shared_loop(self._lay_out(asked))

    async def _lay_out(self, asked: Asked) -> Laid:
        host, holder = self._host, object()
        version = await asked.of(host)
        log_id = uuid.uuid5(DATABASES, host.cluster).bytes
        if asked.follows:
            assert asked.since is not None
            parts, _ = await self._sized([(asked.since + 1, version + 1)], asked.part_bytes, 0)
            return Laid(log_id, version, None, asked.since, 0, parts, ())
        try:
            floor = await self._hold_oldest(holder)
            await host.at(version)  # still, now that it is held
            if asked.since is not None:
                await host.at(asked.since)
            stretches = [(max(floor.version, 1), version + 1)]
            if floor.ended > version:
                stretches.append((max(floor.began, version + 1), floor.ended + 1))
            parts, sample = await self._sized(stretches, asked.part_bytes, floor.began)
            time = await host.time_of(version) if version else None
        finally:  # whoever is to read it holds it by then
            asyncio.get_running_loop().call_later(HELD_S, host.end, holder)
        return Laid(log_id, version, time, floor.version, floor.began, parts, sample)

    async def _hold_oldest(self, holder: object) -> Floor:
        """The floor, which is held, when no compaction is moving it. Raises Unavailable."""
        try:
            async with asyncio.timeout(COMPACTION_S):
                while True:
                    floor: Floor = await self._host.call(calls.Oldest())
                    self._host.hold(holder, max(floor.version, 1))
                    await asyncio.sleep(TOLD_S)
                    if floor.cleaned == floor.version and floor == await self._host.call(calls.Oldest()):
                        return floor
        except TimeoutError:
            what = f"a compaction of {self._host.path} has not come to its end in {COMPACTION_S:g} s"
            raise Unavailable(what) from None

    async def _sized(
        self, stretches: list[tuple[int, int]], part_bytes: int, began: int
    ) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
        """The stretches in parts of about so many bytes, and a sample of the keys: looked at here and there."""
        draw, keys, size, count = Random(began), set[bytes](), 0, 0
        whole = sum(end - first for first, end in stretches)

        async def probe(first: int, end: int) -> Batch:
            async with contextlib.aclosing(self._batches(first, end, copies=True, fetch_bytes=PROBE_BYTES)) as batches:
                async for batch in batches:
                    return batch
            raise AssertionError("a stretch has no end")

        places = [(first, end) for first, end in stretches if first < end]
        for batch in await asyncio.gather(*[probe(first, end) for first, end in places]):
            size, count = size + _bytes_of(batch.records), count + batch.end - batch.first
            keys.update(_some_keys(batch.records, began))
        if count < whole:
            weights = [end - first for first, end in places]
            places = [(draw.randrange(first, end), end) for first, end in draw.choices(places, weights, k=PROBES)]
            for batch in await asyncio.gather(*[probe(first, end) for first, end in places]):
                size, count = size + _bytes_of(batch.records), count + batch.end - batch.first
                keys.update(_some_keys(batch.records, began))
        each = size / max(count, 1)
        most = max(int(part_bytes / max(each, 1.0)), 1)
        parts = []
        for first, end in stretches:
            pieces = -(-(end - first) // most)
            bounds = [first + (end - first) * number // pieces for number in range(pieces + 1)] if pieces else []
            parts += [Part("", self._host.path, low, high, int(each * (high - low))) for low, high in pairwise(bounds)]
        return tuple(parts), tuple(sorted(keys))

    # ---- the log

    async def _batches(
        self, first: int, end: int, *, copies: bool, fetch_bytes: int | None = None
    ) -> AsyncGenerator[Batch]:
        """What the log has from `first` to before `end`, of the kinds that matter. Raises VersionTrimmed, Unavailable,
        Corruption."""
        host = self._host
        tags = frozenset((COMMIT, PART) if copies else (COMMIT,))
        subscription = 0
        try:
            subscription = given(await host.put(log.Subscribe(first, tags, fetch_bytes), None))
            while first < end:
                batch = given(await host.put(log.Next(subscription), host.timeout_s))
                if batch is None:
                    what = f"no replica has answered within {host.timeout_s:g} s"
                    raise Unavailable(f"the log of {host.path} cannot be read from record {first} on: {what}")
                first = batch.end
                yield batch
        except Trimmed as error:
            raise VersionTrimmed(first - 1, error.oldest - 1) from error
        except LogFailed as error:
            raise Unavailable(f"the log of {host.path} cannot be read: {error}") from error
        finally:
            if subscription and not host.closed:
                host.put(log.Close(subscription), None)

    def fetch(self, plan: RemotePlan, part: Part, *, copies: bool) -> Iterator[Stretch]:
        """The records of a part."""
        origin = plan.path
        with contextlib.closing(pulled(self._batches(part.first, part.end, copies=copies))) as batches:
            some: list[LogRecord] = []
            size = 0
            for batch in batches:
                some += _meant(batch.records, plan.began, part.end)
                size += _bytes_of(batch.records)
                if size >= BATCH_BYTES and some:
                    yield laid_as_frames(some, origin)
                    some, size = [], 0
            if some:
                yield laid_as_frames(some, origin)

    def commits(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(GSN, payload) of the commit records there, applied or not."""
        with contextlib.closing(pulled(self._batches(first, end, copies=False))) as batches:
            for batch in batches:
                yield from ((record.lsn, record.payload) for record in batch.records if record.lsn < end)

    def aborted(self, plan: RemotePlan, part: Part) -> Iterable[int]:
        """Raises VersionTrimmed."""
        last = min(part.end - 1, plan.version)
        if part.first > last:
            return ()
        found: tuple[int, ...] = in_shared_loop(self._host.call(calls.Aborted(part.first - 1, last)))
        return found

    def values(self, plan: RemotePlan, large: Sequence[Large]) -> list[bytes]:
        """Large values, from any replicas of their shards. Raises Corruption, VersionTrimmed, Unavailable."""
        return in_shared_loop(self._values(large))

    async def _values(self, large: Sequence[Large]) -> list[bytes]:
        found: list[bytes] = []
        for first in range(0, len(large), AT_ONCE):
            found += await asyncio.gather(*map(self._value, large[first : first + AT_ONCE]))
        return found

    async def _value(self, large: Large) -> bytes:
        place, host = large.place, self._host
        try:
            record = given(await host.put(log.Read(place.gsn, place.shard), host.timeout_s))
        except (Trimmed, NotOfThisShard):  # a compaction has moved it: the map knows where to
            value = await host.get(large.key, large.version)
            assert value is not None
            return value
        except (TimeoutError, LogFailed) as error:
            raise Unavailable(f"record {place.gsn} of shard {place.shard} cannot be read: {error}") from error
        if not place.has(record.tag, record.payload):
            what = f"record {place.gsn} is not the large value that a commit placed there"
            raise Corruption(f"shard {place.shard}", None, what)
        payload: bytes = record.payload
        return payload

    # ---- versions

    def version(self) -> int:
        """The newest version."""
        return in_shared_loop(self._host.version())

    def at(self, version: int) -> int:
        """A version that can be read. Raises VersionTrimmed, FutureVersion."""
        return in_shared_loop(self._host.at(version))

    def hold(self, holder: object, version: int) -> None:
        """Ask that nothing be compacted away that a read at `version` needs."""
        shared_loop().call_soon_threadsafe(self._host.hold, holder, version)

    def hold_oldest(self, holder: object) -> int:
        """Hold the oldest version that can be read, which is returned. Raises Unavailable."""
        return in_shared_loop(self._hold_oldest(holder)).version

    def end(self, holder: object) -> None:
        """Ask no more."""
        shared_loop().call_soon_threadsafe(self._host.end, holder)

    def held_at(self, version: int, keys: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Those of `keys` that existed at a version."""
        return in_shared_loop(self._host.multi_get(keys, version))[1]

    def close(self) -> None:
        """Let go of the servers."""
        in_shared_loop(self._host.close())


def _bytes_of(records: Sequence[LogRecord]) -> int:
    return sum([len(record.payload) for record in records]) + RECORD_BYTES * len(records)


def _meant(records: Iterable[LogRecord], began: int, end: int) -> Iterator[LogRecord]:
    """The records before `end`, with copies of the compaction that counts as RELOCATION records."""
    for record in records:
        if record.lsn >= end:
            return
        if record.tag == COMMIT:
            yield record
        elif (copies := copies_of(record.payload, began)) is not None:
            yield record._replace(tag=RELOCATION, payload=copies)


def _some_keys(records: Sequence[LogRecord], began: int) -> Iterator[bytes]:
    for record in _meant(records[:: max(1, len(records) // SAMPLES_OF_A_PROBE)], began, 1 << 63):
        if record.tag == COMMIT:
            keys = list(decode_commit(record.payload).writes)
        else:
            keys = [entry.key for entry in decode_relocation(record.payload)]
        yield from keys[:: max(1, len(keys) // SAMPLES_OF_A_RECORD)]
