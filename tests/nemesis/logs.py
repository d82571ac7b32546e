"""The workload of the shared log without a database: clients append batches of records, and the end reads all."""

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
                self.recorder.write(worker, "fail", error={"error": "Unavailable", "text": str(error)})
            except LogFailed as error:
                self.recorder.write(worker, "info", error={"error": "LogFailed", "text": str(error)})
            else:
                self.recorder.write(worker, "ok", result=list(gsns))
            await asyncio.sleep(self.draw.expovariate(1 / self.think_s))


def everything(log: RemoteLog, wait_s: float) -> dict[int, str]:
    """All records by GSN. Raises Failure if the log does not go on to its tail."""
    tail, found, end = log.tail(), {}, 1
    subscription = log.subscribe(1)
    while end <= tail:
        batch = subscription.poll(wait_s)
        if batch is None:
            raise Failure("the log can be read", f"not from {end} on, and its tail is {tail}")
        found.update({record.gsn: record.payload.decode() for record in batch.records})
        end = batch.end
    return found


def check_log(entries: Sequence[Entry], found: Mapping[int, str]) -> None:
    """Acknowledged records are at their GSN; no record is in the log twice, although its append failed, or without an
    append; GSNs follow real time."""
    positions: dict[str, int] = {}
    for gsn, text in found.items():
        if positions.setdefault(text, gsn) != gsn:
            raise Failure("a transaction is applied once", f"{text} is at {positions[text]} and {gsn}")
    unknown = set(positions) - {text for entry in entries for text in entry.ops[0][1:]}
    if unknown:
        raise Failure("every write has an author", f"{sorted(unknown)[:3]}")
    events: list[tuple[int, bool, Entry]] = []
    for entry in entries:
        _check_entry(entry, positions)
        events.append((entry.invoked, True, entry))
        if entry.status == "ok" and entry.returned is not None:
            events.append((entry.returned, False, entry))
    newest = 0
    for _, begins, entry in sorted(events, key=lambda moment: moment[:2]):
        gsns = [positions[text] for text in entry.ops[0][1:] if text in positions]
        if not begins:
            newest = max(newest, *gsns)
        elif gsns and min(gsns) <= newest:
            raise Failure("appends keep to real time", f"{entry} is at {gsns}, and began after {newest}")


def _check_entry(entry: Entry, positions: Mapping[str, int]) -> None:
    texts = entry.ops[0][1:]
    found_at = [positions[text] for text in texts if text in positions]
    if entry.status == "ok" and found_at != entry.result:
        raise Failure("no acknowledged write is lost", f"{entry} is at {found_at}")
    if entry.status == "fail" and found_at:
        raise Failure("a failed append is not in the log", f"{entry} is at {found_at}")
