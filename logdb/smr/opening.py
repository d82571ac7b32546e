"""Making replicas: on a log in a directory, on the log of a cluster, and on a log that the program has opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Final, TypeVar

from logdb.clients import log_client
from logdb.clients.log_client import TIMEOUT_S
from logdb.log.contract import Log
from logdb.log.local.local_log import LocalLog
from logdb.log.local.memory_log import MemoryLog
from logdb.security.credentials import AnyPath
from logdb.smr.async_replica import AsyncReplica
from logdb.smr.machine import Machine
from logdb.smr.replica import SNAPSHOT_BYTES, Replica
from logdb.system.directories import Kind, identify, lock, make_identity, prepare

M = TypeVar("M", bound=Machine)

DIRECTORY: Final = Kind("the log of a state machine", "LOGDB-SMR", 1)
MEMORY: Final = ":memory:"
LOG: Final = "log"


def replicate(log: Log, machine: M, *, snapshot_bytes: int | None = SNAPSHOT_BYTES) -> Replica[M]:
    """Make a replica of `machine` on `log`, any log of the contract. Close the replica before the log.

    `machine`: in its initial state, which is the same on all replicas. `snapshot_bytes`: the replica takes a snapshot
    after this many bytes of commands (at most a quarter later); None: only on request. All replicas of one log have
    machines of one kind. Raises SnapshotMissing, ForeignRecord, TypeError, ValueError, and the errors of the log.
    """
    return _started(log, machine, snapshot_bytes, _nothing)


def open(path: str | PathLike[str], machine: M, *, snapshot_bytes: int | None = SNAPSHOT_BYTES) -> Replica[M]:
    """Open the log of a machine in the directory `path`, which is created if there is none, and return the replica of
    this process. ":memory:": a log that ends with the replica.

    `machine`, `snapshot_bytes`: as `replicate`, which also names the errors. Raises DatabaseInUse, NotADatabase,
    UnsupportedFormat, Corruption, Unavailable as well.
    """
    if path == MEMORY:
        memory = MemoryLog()
        return _started(memory, machine, snapshot_bytes, memory.close)
    folder = Path(path)
    prepare(folder, DIRECTORY, create=True)
    opened = ExitStack()
    try:
        opened.callback(lock(folder).release)
        if not (folder / DIRECTORY.identity).exists():
            make_identity(folder, DIRECTORY)
        log = LocalLog(folder / LOG, identify(folder, DIRECTORY).id)
        opened.callback(log.close)
        return _started(log, machine, snapshot_bytes, opened.close)
    except BaseException:
        opened.close()
        raise


def connect(
    addresses: str | Sequence[str],
    machine: M,
    *,
    snapshot_bytes: int | None = SNAPSHOT_BYTES,
    timeout: float | None = TIMEOUT_S,
    ca: AnyPath | None = None,
    certificate: AnyPath | None = None,
    certificate_key: AnyPath | None = None,
    token: str | None = None,
) -> Replica[M]:
    """Connect to the shared log of a cluster and return a replica of `machine` on it.

    `addresses`, `timeout`, `ca`, `certificate`, `certificate_key`, `token`: as `logdb.log.connect`; `machine`,
    `snapshot_bytes`: as `replicate`. Raises the errors of both, and ValueError if the cluster has a database.
    """
    log = log_client.connect(
        addresses, timeout=timeout, ca=ca, certificate=certificate, certificate_key=certificate_key, token=token
    )
    try:
        if log.is_of_database:
            raise ValueError("the log of this cluster belongs to a database: use a cluster without mapping servers")
        return _started(log, machine, snapshot_bytes, log.close)
    except BaseException:
        log.close()
        raise


async def replicate_async(log: Log, machine: M, *, snapshot_bytes: int | None = SNAPSHOT_BYTES) -> AsyncReplica[M]:
    """Make a replica for coroutines. `log`, `machine`, `snapshot_bytes`: as `replicate`, which also names the errors.

    The log is one for threads.
    """
    return AsyncReplica(await asyncio.to_thread(replicate, log, machine, snapshot_bytes=snapshot_bytes))


async def open_async(
    path: str | PathLike[str], machine: M, *, snapshot_bytes: int | None = SNAPSHOT_BYTES
) -> AsyncReplica[M]:
    """Open the log of a machine in a directory, for coroutines. `path`, `machine`, `snapshot_bytes`: as `open`, which
    also names the errors."""
    return AsyncReplica(await asyncio.to_thread(open, path, machine, snapshot_bytes=snapshot_bytes))


async def connect_async(
    addresses: str | Sequence[str],
    machine: M,
    *,
    snapshot_bytes: int | None = SNAPSHOT_BYTES,
    timeout: float | None = TIMEOUT_S,
    ca: AnyPath | None = None,
    certificate: AnyPath | None = None,
    certificate_key: AnyPath | None = None,
    token: str | None = None,
) -> AsyncReplica[M]:
    """Connect to the shared log of a cluster, for coroutines. `addresses`, `machine`, `snapshot_bytes`, `timeout`,
    `ca`, `certificate`, `certificate_key`, `token`: as `connect`, which also names the errors."""
    return AsyncReplica(
        await asyncio.to_thread(
            connect,
            addresses,
            machine,
            snapshot_bytes=snapshot_bytes,
            timeout=timeout,
            ca=ca,
            certificate=certificate,
            certificate_key=certificate_key,
            token=token,
        )
    )


def _started(log: Log, machine: M, snapshot_bytes: int | None, release: Callable[[], object]) -> Replica[M]:
    for verb in ("apply", "snapshot", "restore"):
        if not callable(getattr(machine, verb, None)):
            raise TypeError(f"{type(machine).__name__} is no machine: it has no method {verb}")
    if snapshot_bytes is not None and (not isinstance(snapshot_bytes, int) or snapshot_bytes < 1):
        raise ValueError(f"snapshot_bytes is a number of bytes from 1 on, or None, not {snapshot_bytes!r}")
    return Replica(log, machine, snapshot_bytes=snapshot_bytes, release=release).start()


def _nothing() -> None:
    """Release nothing: the caller closes the log."""
