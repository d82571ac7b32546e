"""The process of one engine in the long load (`python -m benchmarks.loading ENGINE DIRECTORY KEYS ORDER PASSES STAGE`).

It prints a line of JSON for each event that its parent records, and ends when its parent does. `STAGE` is

`write`    load all keys and overwrite them so many times over, then go on overwriting until it is killed
`open`     open what was killed, read a key, and close
`shrink`   open what was closed, delete half of the keys, compact, and read
"""

from __future__ import annotations

import ctypes
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.counters import MIB, written_bytes
from benchmarks.fresh import key_of
from benchmarks.peers import Peer, Session
from benchmarks.workloads import PEERS, VALUE_BYTES

BATCH_ROWS: Final = 1_000
READ_EVERY: Final = 10
"""Number of batches after which `GETS` gets and `SCANS` scans of `SCAN_ROWS` follow."""
GETS: Final = 100
SCANS: Final = 10
SCAN_ROWS: Final = 100
PROGRESS_S: Final = 0.5
BATCHES_BEFORE_THE_KILL: Final = 100
LAST_READS: Final = 100
"""Rounds of gets and scans after the compaction."""
NOISE: Final = random.Random(1).randbytes(MIB)
PR_SET_PDEATHSIG: Final = 1


class Phase:
    """Batches of writes with reads between them, and their durations. `choose` draws a key that exists."""

    def __init__(self, name: str, rows: int, path: Path, session: Session, choose: Callable[[], int]) -> None:
        self._name, self._rows, self._path, self._session, self._choose = name, rows, path, session, choose
        self._reads_s = [0.0, 0.0]
        self._rounds = 0
        self.batches: list[tuple[float, float]] = []
        self._written, self._cpu, self._begun = written_bytes(path), time.process_time(), time.perf_counter()
        self._reported = self._begun
        report("progress", phase=name, done=0, of=rows)

    def wrote(self, begun: float) -> None:
        """After each batch; `begun` is when it began."""
        now = time.perf_counter()
        at = now - self._begun - sum(self._reads_s)
        self.batches.append((round(at, 6), round(now - begun, 6)))
        if len(self.batches) % READ_EVERY == 0:
            self.read()
        if now - self._reported >= PROGRESS_S:
            self._reported = now
            report("progress", phase=self._name, done=len(self.batches) * BATCH_ROWS, of=self._rows)

    def read(self) -> None:
        """One round of reads."""
        chosen = [key_of(self._choose()) for _ in range(GETS + SCANS)]
        begun = time.perf_counter()
        self._session.get_each(chosen[:GETS])
        between = time.perf_counter()
        self._session.scan_each(chosen[GETS:], SCAN_ROWS)
        self._reads_s[0] += between - begun
        self._reads_s[1] += time.perf_counter() - between
        self._rounds += 1

    def end(self, **more: float) -> None:
        """Progress what it took. Its seconds are without those of the reads."""
        seconds = time.perf_counter() - self._begun - sum(self._reads_s)
        cpu_s = time.process_time() - self._cpu
        gets_s, scans_s = self._reads_s
        report(
            "phase",
            name=self._name,
            rows=self._rows,
            seconds=seconds,
            cpu_s=cpu_s,
            written=written_bytes(self._path) - self._written,
            gets=self._rounds * GETS / gets_s if gets_s else 0.0,
            scans=self._rounds * SCANS / scans_s if scans_s else 0.0,
            batches=self.batches,
            **more,
        )


def write(peer: Peer, path: Path, keys: int, in_order: bool, passes: int) -> None:
    """Load and overwrite until killed."""
    session, draw = peer.session(), random.Random(3)
    loaded: list[int] = []
    phase = Phase("load", keys, path, session, lambda: draw.choice(loaded))
    put_all(phase, session, range(keys) if in_order else shuffled(keys, 1), loaded)
    phase.end()
    phase = Phase("overwrite", keys * passes, path, session, lambda: draw.randrange(keys))
    for _ in range(passes):
        put_all(phase, session, range(keys) if in_order else (draw.randrange(keys) for _ in range(keys)))
    phase.end()
    rows = BATCHES_BEFORE_THE_KILL * BATCH_ROWS
    phase = Phase("until killed", rows, path, session, lambda: draw.randrange(keys))
    while True:
        put_all(phase, session, (draw.randrange(keys) for _ in range(rows)))
        report("kill")


def shrink(peer: Peer, path: Path, keys: int, in_order: bool) -> None:
    """Delete the keys with odd numbers, compact, and read those with even ones."""
    session, draw, half = peer.session(), random.Random(4), keys // 2

    def choose() -> int:
        return 2 * draw.randrange(half)

    phase = Phase("delete", half, path, session, choose)
    numbers = iter(range(half) if in_order else shuffled(half, 2))
    while batch := [key_of(2 * number + 1) for number in islice(numbers, BATCH_ROWS)]:
        begun = time.perf_counter()
        session.multi_delete(batch)
        phase.wrote(begun)
    phase.end()
    session.close()
    phase = Phase("compact", 0, path, session, choose)
    peer.compact()
    phase.end()
    session = peer.session()
    phase = Phase("after", 0, path, session, choose)
    for _ in range(LAST_READS):
        phase.read()
    left = session.scan()
    if left != keys - half:
        raise RuntimeError(f"{left:,} of {keys - half:,} keys are left")
    phase.end()
    session.close()


def put_all(phase: Phase, session: Session, numbers: Iterable[int], loaded: list[int] | None = None) -> None:
    """Put the keys in batches; one of each is added to `loaded`."""
    rest = iter(numbers)
    while batch := list(islice(rest, BATCH_ROWS)):
        items = {key_of(number): value_of(number) for number in batch}
        begun = time.perf_counter()
        session.multi_put(items)
        if loaded is not None:
            loaded.append(batch[0])
        phase.wrote(begun)


def value_of(number: int) -> bytes:
    """A value that begins with the key. It differs each time: an engine may skip a write that changes nothing."""
    key = key_of(number)
    rest = VALUE_BYTES - len(key)
    at = random.randrange(len(NOISE) - rest)
    return key + NOISE[at : at + rest]


def shuffled(count: int, seed: int) -> Iterator[int]:
    """The numbers below `count`, each once, as if at random: a linear congruential generator of full period."""
    modulus = 1 << max(count - 1, 1).bit_length()
    number = seed
    for _ in range(modulus):
        number = (number * 6364136223846793005 + 1442695040888963407) % modulus
        if number < count:
            yield number


def report(event: str, **fields: Any) -> None:
    """A line for the parent."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def die_with_the_parent() -> None:
    """Let the system kill this process when its parent ends for any reason."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(engine: str, path: Path, keys: int, order: str, passes: int, stage: str) -> None:
    die_with_the_parent()
    kind = next(kind for kind in PEERS if kind.name == engine)
    begun = time.perf_counter()
    peer = kind(path)
    if stage == "write":
        write(peer, path, keys, order == "sequential", passes)
    session = peer.session()
    session.get_each([key_of(0)])
    report("opened", seconds=time.perf_counter() - begun)
    session.close()
    if stage == "shrink":
        shrink(peer, path, keys, order == "sequential")
    begun = time.perf_counter()
    peer.close()
    report("closed", seconds=time.perf_counter() - begun)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6])
