"""Every server of a cluster is restarted, one after another, under load: as an upgrade does (docs/operations.md)."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import logdb
from logdb.admin import server_query
from logdb.clients.background_loop import in_shared_loop
from logdb.log import connect
from logdb.security.credentials import NONE
from tests.harness.cluster_processes import WAIT_S, Processes

WRITERS = 2


class Load:
    """Writers that count their acknowledged commits and keep every error."""

    def __init__(self, endpoints: str) -> None:
        self._endpoints = endpoints
        self.stopping = threading.Event()
        self.acknowledged = [0] * WRITERS
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]

    def _write(self, number: int) -> None:
        try:
            with logdb.connect(self._endpoints, timeout=WAIT_S) as db:
                while not self.stopping.is_set():
                    step = self.acknowledged[number]

                    def body(txn: logdb.Transaction, step: int = step) -> None:
                        assert int(txn.get(b"last %d" % number, b"-1")) == step - 1
                        txn.put(b"last %d" % number, b"%d" % step)
                        txn.add(b"all", 1)

                    db.run(body)
                    self.acknowledged[number] += 1
        except Exception as error:
            self.errors.append(error)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self) -> None:
        """Return when each writer has committed again."""
        before, deadline = list(self.acknowledged), time.monotonic() + WAIT_S
        while not all(now > then for now, then in zip(self.acknowledged, before, strict=True)):
            assert not self.errors, self.errors
            assert time.monotonic() < deadline, "no commit"
            self.stopping.wait(0.05)


def test_nothing_is_lost_and_no_client_sees_an_error(tmp_path: Path) -> None:
    shape = {"ordering": 3, "storage": 4, "aggregators": 0, "failures": 1, "mapping": 2}
    with Processes(tmp_path, policy="finalize-and-add", **shape) as servers:
        servers.start_all()
        with connect(servers.addresses[servers.founders[0]]) as log:
            while len(log.configuration().spares) < shape["storage"]:
                pass
            log.add_shard()
        endpoints = ",".join(servers.addresses[name] for name in servers.founders)
        with Load(endpoints) as load:
            load.goes_on()
            for name in servers.roles:
                assert servers.end(name) == 0
                servers.start(name)
                while in_shared_loop(server_query.health(servers.addresses[name], NONE)):
                    assert not load.errors, load.errors
                load.goes_on()
        assert not load.errors, load.errors
        with logdb.connect(endpoints) as db:
            keys = [b"last %d" % number for number in range(WRITERS)]
            assert [int(db[key]) + 1 for key in keys] == load.acknowledged
            assert int(db[b"all"]) == sum(load.acknowledged)
