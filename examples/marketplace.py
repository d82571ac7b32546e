"""The online marketplace of the Scalog paper (§3.4.1 of the dissertation), on the shared log alone: `logdb.log`.

Web servers append the actions of sellers and buyers, each to its nearest shard. Before an analytics job, new shards are
added and the current ones are finalized: the web servers continue in the new ones, and the job reads shards that are no
longer written, so the two do not compete. In the end another client replays the whole log, and must compute the same
figures.

    python3 dev.py marketplace [--events N] [--jobs N] [--endpoints HOST:PORT,...]

Without endpoints it runs a temporary cluster of processes on this machine.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

import logdb.log
from logdb.admin import processes
from logdb.admin.changes import Operator
from logdb.admin.layout import Layout
from logdb.clients.log_client import RemoteLog
from logdb.log.engine import Shape

LISTED, VIEWED, BOUGHT = 1, 2, 3
"""The tags of the records: a subscription to some tags is sent only records with these."""
WEB_SERVERS = 2
PRODUCTS = [f"product {number}" for number in range(20)]

console = Console()


class WebServer:
    """Appends its visitors' actions continuously. `shard`: the nearest one; `appended`: number of acknowledged
    events."""

    def __init__(self, number: int, endpoints: str) -> None:
        self.shard = 0
        self.appended = 0
        self._chance = random.Random(number)
        self._log = logdb.log.connect(endpoints)
        self._log.set_shard_policy(lambda record: self.shard)
        self._is_closed = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._serve, name=f"web server {number}")

    def open(self, shard: int) -> None:
        """Append the catalogue, and start serving visitors."""
        self.shard = shard
        self._append([(LISTED, _event(product=product)) for product in PRODUCTS])
        self._thread.start()

    def _serve(self) -> None:
        while not self._is_closed.is_set():
            self._append(self._visit())

    def _visit(self) -> list[tuple[int, bytes]]:
        """The events of a visitor, who views a few products and perhaps buys the last one; they are appended
        together."""
        chance, visitor = self._chance, self._chance.randrange(1_000)
        seen = [PRODUCTS[min(int(chance.expovariate(0.2)), len(PRODUCTS) - 1)] for _ in range(chance.randint(1, 5))]
        events = [(VIEWED, _event(visitor=visitor, product=product)) for product in seen]
        if chance.random() < 0.3:
            events.append((BOUGHT, _event(visitor=visitor, product=seen[-1], cents=chance.randrange(100, 10_000))))
        return events

    def _append(self, events: list[tuple[int, bytes]]) -> None:
        self._log.append(events)
        with self._progress:
            self.appended += len(events)
            self._progress.notify_all()

    def wait_for(self, events: int) -> None:
        """Wait until this number of further events has been appended."""
        with self._progress:
            target = self.appended + events
            while not self._progress.wait_for(lambda: self.appended >= target, timeout=1):
                if not self._thread.is_alive():
                    raise SystemExit(f"{self._thread.name} has failed")

    def close(self) -> None:
        """Stop serving visitors."""
        self._is_closed.set()
        self._thread.join()
        self._log.close()


def _event(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@dataclass
class Figures:
    """The results of the analytics jobs."""

    listed: int = 0
    views: int = 0
    cents: int = 0
    visitors: set[int] = field(default_factory=set)
    sold: Counter[str] = field(default_factory=Counter)

    @property
    def events(self) -> int:
        """The number of events."""
        return self.listed + self.views + self.sold.total()

    def add(self, tag: int, payload: bytes) -> None:
        """Count one event."""
        event = json.loads(payload)
        if tag == LISTED:
            self.listed += 1
        elif tag == VIEWED:
            self.views += 1
            self.visitors.add(event["visitor"])
        else:
            self.sold[event["product"]] += 1
            self.cents += event["cents"]


def count(log: RemoteLog, first: int, last: int, figures: Figures) -> Figures:
    """Add the events with the numbers from `first` to `last`."""
    subscription = log.subscribe(first)
    while first <= last:
        batch = next(subscription)
        for record in batch.records:
            if record.gsn <= last:
                figures.add(record.tag, record.payload)
        first = batch.end
    subscription.close()
    return figures


def revenue(log: RemoteLog, last: int) -> int:
    """The revenue in cents up to event `last`, from a subscription to purchases only."""
    cents, end, subscription = 0, 1, log.subscribe(1, tags={BOUGHT})
    while end <= last:
        batch = next(subscription)
        cents += sum(json.loads(record.payload)["cents"] for record in batch.records if record.gsn <= last)
        end = batch.end
    subscription.close()
    return cents


def day(endpoints: str, operator: Operator, jobs: int, events: int) -> None:
    """Open the marketplace, run an analytics job after each further `events` events, close it, and check the
    results."""
    servers = [WebServer(number, endpoints) for number in range(WEB_SERVERS)]
    figures, done = Figures(), 0
    table = Table(title="Analytics", title_justify="left")
    for column in ("shards read", "shards written", "events", "visitors", "sold", "revenue", "best seller"):
        table.add_column(column, justify="right")
    with logdb.log.connect(endpoints) as log:
        written = sorted(log.view().active)
        for number, server in enumerate(servers):
            server.open(written[number % len(written)])
        for _ in range(jobs):
            for server in servers:
                server.wait_for(events // WEB_SERVERS)
            last = log.tail()  # the current shards have all events up to here; later ones go to the new shards
            finished = sorted(log.view().active)
            written = [operator.add_shard() for _ in finished]
            for number, server in enumerate(servers):
                server.shard = written[number % len(written)]
            for shard in finished:
                operator.finalize_shard(shard, grace=0)
            assert log.view().finalized.issuperset(finished)
            figures, done = count(log, done + 1, last, figures), last
            ((best, _),) = figures.sold.most_common(1)
            shown = (finished, written, f"{figures.events:,}", len(figures.visitors), figures.sold.total())
            table.add_row(*map(str, shown), f"{figures.cents / 100:,.2f}", best)
        for server in servers:
            server.close()
        console.print(table)
        check(endpoints, log, figures, done, sum(server.appended for server in servers))


def check(endpoints: str, log: RemoteLog, figures: Figures, done: int, appended: int) -> None:
    """Check that the log has each acknowledged event once, and that a replay computes the same figures."""
    rest = count(log, done + 1, log.tail(), Figures())
    with logdb.log.connect(endpoints) as other:
        again = count(other, 1, done, Figures())
        assert again == figures, "a replay computes other figures"
        assert revenue(other, done) == figures.cents
    assert again.events + rest.events == appended, "events were lost or duplicated"
    console.print(f"{appended:,} events were acknowledged, and the log has each of them once; a replay agrees.")


@contextmanager
def own_cluster() -> Iterator[tuple[str, Operator]]:
    """Run a temporary cluster; yields its endpoints and an operator of it."""
    with tempfile.TemporaryDirectory(prefix="logdb-marketplace-") as directory:
        layout = Layout.make(Path(directory), Shape(shards=2, replicas=2, ordering=3, mapping=0), {}, 7501)
        operator = Operator((), layout)
        try:
            operator.bring_up()
            yield layout.endpoints, operator
        finally:
            processes.end(layout, lambda done, of: None, kill=True)


def main(arguments: list[str] | None = None) -> None:
    """Run a day at the marketplace."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--events", type=int, default=5_000, help="number of events between two analytics jobs")
    parser.add_argument("--jobs", type=int, default=3, help="number of analytics jobs")
    parser.add_argument("--endpoints", help="servers of a cluster, with spare servers for new shards")
    options = parser.parse_args(arguments)
    if options.endpoints:
        day(options.endpoints, Operator(options.endpoints.split(","), None), options.jobs, options.events)
        return
    with own_cluster() as (endpoints, operator):
        day(endpoints, operator, options.jobs, options.events)


if __name__ == "__main__":
    main()
