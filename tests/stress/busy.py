"""The process that is killed: threads and coroutines that commit, checkpoint and compact; it writes each
acknowledgement to a pipe.

Worker w's n-th transaction moves its counter `c/w` from n - 1 to n and writes the pair `p/w/<n % 4>` and `q/...` = n,
one inline and one large; it also moves one unit between two of ten accounts. It writes "w n" once that is acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from random import Random

import logdb
import logdb.aio
from logdb.embedded import EmbeddedBackend
from logdb.log.segments import segment
from tests.harness.opening import on_coroutines

THREADS, COROUTINES = 4, 6
ACCOUNTS, EACH = 10, 100
SLOTS = 4
SEGMENT_BYTES, OVERLAY_BYTES = 200_000, 60_000
PADDING = b"." * 5_000


def open_small(path: Path) -> logdb.Database:
    """The database with segments and checkpoints so small that every kill is near one."""
    options = {"segment_bytes": SEGMENT_BYTES}
    host = EmbeddedBackend.open(path, read_only=False, create=True, overlay_bytes=OVERLAY_BYTES, log_options=options)
    return logdb.Database(host)


def writes_of(worker: int, number: int) -> dict[bytes, bytes]:
    slot = number % SLOTS
    value = b"%d" % number
    return {b"c/%d" % worker: value, b"p/%d/%d" % (worker, slot): value, b"q/%d/%d" % (worker, slot): value + PADDING}


def accounts_of(worker: int, number: int) -> tuple[bytes, bytes]:
    source, target = Random(worker << 32 | number).sample(range(ACCOUNTS), 2)
    return b"account/%d" % source, b"account/%d" % target


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # one write: lines of several threads do not mix


@logdb.transactional(attempts=10_000)
def step(txn: logdb.Transaction, worker: int) -> int:
    """One transaction of a thread."""
    number = int(txn.get(b"c/%d" % worker) or b"0") + 1
    source, target = accounts_of(worker, number)
    txn[source] = b"%d" % (int(txn.get(source) or EACH) - 1)
    txn[target] = b"%d" % (int(txn.get(target) or EACH) + 1)
    txn.multi_put(writes_of(worker, number))
    return number


@logdb.transactional(attempts=10_000)
async def step_aside(txn: logdb.aio.Transaction, worker: int) -> int:
    """One transaction of a coroutine."""
    number = int(await txn.get(b"c/%d" % worker) or b"0") + 1
    source, target = accounts_of(worker, number)
    txn.put(source, b"%d" % (int(await txn.get(source) or EACH) - 1))
    txn.put(target, b"%d" % (int(await txn.get(target) or EACH) + 1))
    txn.multi_put(writes_of(worker, number))
    return number


def in_thread(db: logdb.Database, worker: int) -> None:
    while True:
        say(worker, step(db, worker))


async def in_coroutine(db: logdb.aio.Database, worker: int) -> None:
    while True:
        say(worker, await step_aside(db, worker))


def upkeep(db: logdb.Database, random: Random) -> None:
    while True:
        if random.random() < 0.5:
            db.checkpoint()
            say("checkpoint")
        else:
            db.compact(before=max(db.oldest_version, db.version - random.randrange(200)))
            say("compaction")


async def coroutines(db: logdb.aio.Database) -> None:
    await asyncio.gather(*(in_coroutine(db, THREADS + worker) for worker in range(COROUTINES)))


def main() -> None:
    segment.ALLOCATE_BYTES = SEGMENT_BYTES
    db = open_small(Path(sys.argv[1]))
    say("open")
    for worker in range(THREADS):
        threading.Thread(target=in_thread, args=(db, worker), daemon=True).start()
    threading.Thread(target=upkeep, args=(db, Random(int(sys.argv[2]))), daemon=True).start()
    asyncio.run(coroutines(on_coroutines(db)))


if __name__ == "__main__":
    main()
