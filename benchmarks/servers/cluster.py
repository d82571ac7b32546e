"""A cluster of LogDB: 2 shards of 2 storage servers, 3 ordering replicas, 1 mapping server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import logdb.aio
from benchmarks.clusters import Cluster, Shape
from benchmarks.servers.ours import LogDB

SHAPE = Shape(ordering=3, storage=4, mapping=1, failures=1, shards=2)


class LogDBCluster(LogDB):
    """See `Server`."""

    name: ClassVar[str] = "LogDB cluster"
    cluster: Cluster

    async def start(self, directory: Path) -> None:
        self.cluster = Cluster(directory, SHAPE)
        await asyncio.to_thread(self.cluster.start)
        self._db = await logdb.aio.connect(self.cluster.endpoints)

    async def stop(self) -> None:
        await self._db.close()
        await asyncio.to_thread(self.cluster.close)
