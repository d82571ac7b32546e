"""The model-based test of the database on a cluster: real servers, which stop, lose their directories and come back."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

import logdb
from logdb.clients.background_loop import in_shared_loop
from tests.harness.clusters import Cluster
from tests.model.test_model import DatabaseMachine, InTransaction, Rows

UNKNOWN = b"no test writes this key"


class ClusterMachine(DatabaseMachine):
    """One server of each role but the aggregator."""

    @initialize()
    def create(self) -> None:
        self.cluster = Cluster(Path(tempfile.mkdtemp()), aggregators=0, mapping=1)
        self.cluster.start(1)
        super().create()

    def open(self) -> logdb.Database:
        return logdb.connect(self.cluster.ordering[0])

    @precondition(lambda self: len(self.transactions) < 3 and self.db.version)
    @rule()
    def begin(self) -> None:
        """With the first read, which takes the snapshot."""
        committing = self.db.transaction()
        txn = committing.__enter__()
        assert UNKNOWN not in txn
        self.transactions.append(InTransaction(committing, txn, txn.snapshot))

    @rule(how=st.sampled_from(["connect", "restart", "restart all", "lose the map"]))
    def reopen(self, how: str) -> None:
        """Also while there are transactions: their client knows what they have read."""
        if how == "connect" and not self.transactions:
            self.db.close()
            self.db = self.open()
        elif how == "restart all":
            in_shared_loop(self.cluster.end_all())
            in_shared_loop(self.cluster.begin_all())
        elif how != "connect":
            in_shared_loop(self.cluster.end("m1"))
            if how == "lose the map":
                shutil.rmtree(self.cluster.configs["m1"].data)
            in_shared_loop(self.cluster.begin("m1"))

    def check(self) -> None:
        """Its replica, in the loop that it belongs to."""

        async def checked() -> None:
            self.cluster.check()
            host = self.cluster.servers["m1"].servers[0].host
            assert host is not None
            host.core.replica.coordinator.check_invariants()  # type: ignore[union-attr]

        in_shared_loop(checked())

    def rows_of_the_log(self, version: int) -> Rows:
        """By a server that begins with nothing: see `reopen`."""
        return list(self.db.at(version).scan())

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.reopen("lose the map")
        super().teardown()
        if hasattr(self, "cluster"):
            self.cluster.close()
            shutil.rmtree(self.cluster.path)


TestDatabase = ClusterMachine.TestCase
TestDatabase.settings = settings(
    max_examples=8,
    stateful_step_count=25,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
