"""The fourth workload, of the shared log by itself: batches of records are appended, and in the end all are read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from logdb.clients.log_client import AsyncRemoteLog, RemoteLog
from logdb.errors import Unavailable
from logdb.log.contract import LogFailed
from tests.nemesis.history import Entry, Recorder
from tests.sim.world import Failure


class Appenders:
    """Some workers that append over one connection."""

    def __init__(self, log: AsyncRemoteLog, recorder: Recorder, seed: int, think_s: float) -> None:
        self.log, self.recorder, self.think_s = log, recorder, think_s
        self.draw = random.Random(seed)
        self.stopping = False
        self._names = 0

    async def run(self, workers: int) -> None:
        """Until `stopping`."""
        await asyncio.gather(*(self._work(f"{worker}") for worker in range(workers)))

    async def _work(self, worker: str) -> None:
        while not self.stopping:
            self._names += 1
            texts = [f"{self.recorder.client}.{self._names}.{part}" for part in range(self.draw.randint(1, 4))]
            self.recorder.write(worker, "invoke", f="records", ops=[["records", *texts]])
            try:
                gsns = await self.log.append([(1, text.encode()) for text in texts])
            except Unavailable as error:
                self.recorder.write(worker, "fail", why={"error": "Unavailable", "text": str(error)})
            except LogFailed as error:
                self.recorder.write(worker, "info", why={"error": "LogFailed", "text": str(error)})
            else:
                self.recorder.write(worker, "ok", result=list(gsns))
            await asyncio.sleep(self.draw.expovariate(1 / self.think_s))


def everything(log: RemoteLog, wait_s: float) -> dict[int, str]:
    """All records by GSN. Raises Failure if the log does not go on to its tail."""
    tail, found = log.tail(), {}
    subscription = log.subscribe(1)
    while len(found) < tail:
        batch = subscription.poll(wait_s)
        if batch is None:
            raise Failure("the log can be read", f"not from {max(found, default=0) + 1} on, and its tail is {tail}")
        found.update({record.gsn: record.payload.decode() for record in batch.records})
    return found


def check_log(entries: Sequence[Entry], found: Mapping[int, str]) -> None:
    """Acknowledged records are at their GSN; no record is in the log twice, although its append failed, or without an
    append; GSNs follow real time."""
    if sorted(found) != list(range(1, len(found) + 1)):
        raise Failure("GSNs are dense", f"{len(found)} of them, up to {max(found)}")
    places: dict[str, int] = {}
    for gsn, text in found.items():
        if places.setdefault(text, gsn) != gsn:
            raise Failure("a transaction is applied once", f"{text} is at {places[text]} and {gsn}")
    nobodys = set(places) - {text for entry in entries for text in entry.ops[0][1:]}
    if nobodys:
        raise Failure("every write has an author", f"{sorted(nobodys)[:3]}")
    moments: list[tuple[int, bool, Entry]] = []
    for entry in entries:
        _check_entry(entry, places)
        moments.append((entry.invoked, True, entry))
        if entry.status == "ok" and entry.returned is not None:
            moments.append((entry.returned, False, entry))
    newest = 0
    for _, begins, entry in sorted(moments, key=lambda moment: moment[:2]):
        gsns = [places[text] for text in entry.ops[0][1:] if text in places]
        if not begins:
            newest = max(newest, *gsns)
        elif gsns and min(gsns) <= newest:
            raise Failure("appends keep to real time", f"{entry} is at {gsns}, and began after {newest}")


def _check_entry(entry: Entry, places: Mapping[str, int]) -> None:
    texts = entry.ops[0][1:]
    there = [places[text] for text in texts if text in places]
    if entry.status == "ok" and there != entry.result:
        raise Failure("no acknowledged write is lost", f"{entry} is at {there}")
    if entry.status == "fail" and there:
        raise Failure("what failed was never appended", f"{entry} is at {there}")
