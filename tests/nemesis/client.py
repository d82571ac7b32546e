"""One client process: `python -m tests.nemesis.client`. SIGTERM ends it after its operations under way have ended."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Any

import logdb.aio
import logdb.log
from logdb.errors import Unavailable
from tests.nemesis.history import Recorder
from tests.nemesis.logs import Appenders
from tests.nemesis.workloads import Client


async def run(options: argparse.Namespace) -> None:
    """Connect, with any number of attempts, and work."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    connect = logdb.log.connect_async if options.log else logdb.aio.connect
    while not stop.is_set():
        with contextlib.suppress(Unavailable):
            async with await connect(options.endpoints, timeout=options.timeout) as connected:
                await work(connected, options, stop)


async def work(connected: Any, options: argparse.Namespace, stop: asyncio.Event) -> None:
    """Run until SIGTERM."""
    print(f"ready: {options.name}", flush=True)
    recorder = Recorder(options.history, options.name)
    given = connected, recorder, options.seed, options.think_ms / 1e3
    client = Appenders(*given) if options.log else Client(*given, lambda seen: _go_on(options, seen))
    working = asyncio.create_task(client.run(options.workers))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
    client.stopping = True
    await working
    recorder.close()


async def _go_on(options: argparse.Namespace, seen: int) -> logdb.aio.Database:
    return await logdb.aio.connect(options.endpoints, timeout=options.timeout, session=seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--endpoints", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--log", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--think-ms", type=float, default=20)
    parser.add_argument("--timeout", type=float, default=5.0)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
