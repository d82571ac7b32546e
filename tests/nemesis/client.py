"""One client process: `python -m tests.nemesis.client`. SIGTERM ends it when what it has under way has ended."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import logdb.aio
from logdb.errors import Unavailable
from tests.nemesis.history import Recorder
from tests.nemesis.workloads import Client


async def run(options: argparse.Namespace) -> None:
    """Connect, as often as it takes, and work."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    while not stop.is_set():
        try:
            db = await logdb.aio.connect(options.endpoints, timeout=options.timeout)
        except Unavailable:
            continue
        print(f"ready: {options.name}", flush=True)
        recorder = Recorder(options.history, options.name)
        client = Client(db, recorder, options.seed, options.think_ms / 1e3)
        working = asyncio.create_task(client.run(options.workers))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
        client.stopping = True
        await working
        await db.close()
        recorder.close()
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoints", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--think-ms", type=float, default=20)
    parser.add_argument("--timeout", type=float, default=5.0)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
