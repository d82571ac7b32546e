"""Clusters of LogDB: three nodes on each engine, and 2 shards of 2 storage servers with a process for each server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import logdb.aio
from benchmarks.clusters import PROCESSES, Cluster, Shape, nodes_of
from benchmarks.servers.ours import LogDB


class LogDBCluster(LogDB):
    """See `Server`."""

    name: ClassVar[str] = "LogDB cluster"
    shape: ClassVar[Shape] = PROCESSES["scalog"]
    cluster: Cluster

    async def start(self, directory: Path) -> None:
        self.cluster = Cluster(directory, self.shape)
        await asyncio.to_thread(self.cluster.start)
        self._db = await logdb.aio.connect(self.cluster.endpoints)

    async def stop(self) -> None:
        await self._db.close()
        await asyncio.to_thread(self.cluster.close)


class ScalogNodes(LogDBCluster):
    """See `Server`."""

    name: ClassVar[str] = "LogDB, 3 nodes, scalog"
    shape: ClassVar[Shape] = nodes_of("scalog", 3)


class MultiPaxosNodes(LogDBCluster):
    """See `Server`."""

    name: ClassVar[str] = "LogDB, 3 nodes, multipaxos"
    shape: ClassVar[Shape] = nodes_of("multipaxos", 3)
