"""Databases of clusters for the conformance suite: real servers on real disks and sockets, a fresh cluster each."""

from __future__ import annotations

from pathlib import Path

import logdb
import logdb.aio
from logdb.log.scalog.commands import FailurePolicy
from logdb.net.loops import in_shared_loop
from tests.conformance.on_asyncio import BlockingDatabase, Loop
from tests.net.clusters import Cluster


class OnCluster:
    """One server of each role. To settle, the mapping server begins again with what its directory and the log have."""

    def __init__(self, path: Path) -> None:
        self.cluster = Cluster(path, mapping=1)
        self.cluster.start(1)
        self.db = logdb.connect(self.cluster.ordering[0])

    def settle(self) -> logdb.Database:
        in_shared_loop(self._restart("m1"))
        return self.db

    async def _restart(self, name: str) -> None:
        await self.cluster.end(name)
        await self.cluster.begin(name)

    def close(self) -> None:
        self.db.close()
        self.cluster.check()
        self.cluster.close()


class OnClusterOfMany(OnCluster):
    """f = 1: 2 shards of 2 servers, 3 ordering replicas, 2 mapping servers. To settle, a shard is finalized, once."""

    def __init__(self, path: Path) -> None:
        self.cluster = Cluster(path, replicas=3, storage=4, aggregators=0, mapping=2, failures=1)
        self.cluster.start(2)
        self.db = logdb.connect(",".join(self.cluster.mapping))
        self._settled = False

    def settle(self) -> logdb.Database:
        if not self._settled:
            self._settled = True
            with self.cluster.connect() as log:
                log.finalize_shard(1)
        return self.db


class OnMaskingCluster(OnCluster):
    """f = 1 with failures masked, through `logdb.aio`. To settle, a storage server goes away for good."""

    def __init__(self, path: Path) -> None:
        shape = {"replicas": 3, "storage": 3, "aggregators": 1, "mapping": 2}
        self.cluster = Cluster(path, **shape, failures=1, policy=FailurePolicy.MASK, suspect_after_ms=500)
        self.cluster.start(1)
        self.loop = Loop()
        self.db = BlockingDatabase(self.loop.run(logdb.aio.connect(self.cluster.configs["s1"].address)), self.loop)

    def settle(self) -> logdb.Database:
        if "s3" in self.cluster.servers:
            in_shared_loop(self.cluster.end("s3"))
        return self.db

    def close(self) -> None:
        super().close()
        self.loop.close()
