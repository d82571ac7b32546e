"""The healing of a cluster of Multi-Paxos after its faults, and the final records of its replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.cores.effects import Received
from logdb.log.contract import LogRecord
from logdb.log.multipaxos.configuration import SHARD
from logdb.log.multipaxos.messages import Pull, Pulled
from logdb.log.multipaxos.record_store import PREFIX
from logdb.log.multipaxos.records import unwrap, unwrap_all
from tests.sim.checks import Copy
from tests.sim.multipaxos.cluster import Cluster
from tests.sim.process import Process
from tests.sim.world import Failure

Wait = Callable[[int, Callable[[], bool], str, list[Any]], None]
"""Let time pass to a limit until something is true; else raise Failure, naming what and whom."""
ADDRESS = "prober"
BYTES = 1 << 16


class Prober:
    """Pulls all records of one replica after another, in the engine's own messages. It stands in the network as a
    process does."""

    kind = ADDRESS

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.answer: Any = None
        self._request = 0
        cluster.network.processes[ADDRESS] = self  # type: ignore[assignment]

    def deliver(self, event: Received) -> None:
        """An answer has come."""
        if event.message.request == self._request:
            self.answer = event.message

    def pull(self, replica: str, first: int, tail: int, limit: int) -> list[LogRecord]:
        """All records of a replica from `first` to `tail`."""
        world, unit = self.cluster.world, self.cluster.shape.heartbeat_ns
        found: list[LogRecord] = []
        while first <= tail:
            self._request += 1
            self.answer = None
            while not isinstance(self.answer, Pulled):
                if world.now > limit:
                    raise Failure("liveness: replicas answer", f"{replica} does not send {first}: {self.answer}")
                self.answer = None
                self.cluster.network.send(ADDRESS, replica, Pull(self._request, first, None, BYTES))
                world.run(world.now + 4 * unit, lambda: self.answer is not None)
            found += unwrap_all(self.answer.records)
            first = self.answer.end
        return [record for record in found if record.lsn <= tail]


class Healing:
    """Of one cluster, once its faults have ended."""

    def __init__(self, cluster: Cluster, wait: Wait) -> None:
        self.cluster, self._wait = cluster, wait

    def _present(self) -> list[Process]:
        return [one for one in self.cluster.group if one.address not in self.cluster.retired]

    def configured(self) -> tuple[str, ...]:
        """The replicas are never reconfigured."""
        return self.cluster.founders

    def make_writable(self, limit: int) -> None:
        """Replicas that have lost their disk join again and copy what they lack."""
        cluster, present = self.cluster, self._present()
        self._wait(limit, lambda: all(map(cluster.is_whole, present)), "replicas become whole", present)
        calls_open = cluster.operator.process.calls
        self._wait(limit, lambda: not calls_open, "the operator is served", [calls_open])

    def wait_for_copies(self, limit: int) -> None:
        """All replicas get what the log has."""
        self._reach(self.cluster.tail, limit)

    def _reach(self, tail: int, limit: int) -> None:
        """Wait until all replicas have written the records up to `tail`."""
        present: list[Any] = self._present()
        self._wait(
            limit,
            lambda: all(
                one.core is not None and one.core.is_complete and one.core.store.flushed > tail for one in present
            ),
            "replicas catch up",
            present,
        )

    def copies(self, tail: int, limit: int) -> tuple[int, list[Copy]]:
        """The records that each replica sends, and those on its disk."""
        self._reach(tail, limit)
        prober, copies = Prober(self.cluster), []
        present: list[Any] = self._present()
        oldest = max(one.core.state.oldest for one in present)
        for process in present:
            sent = prober.pull(process.address, oldest, tail, limit)
            copies.append(_copy(process.address, oldest, tail, sent))
            stored = {
                number: unwrap(number, record)
                for name, journal in process.disk.journals.items()
                if name.startswith(PREFIX)
                for number, record in enumerate(journal.records, journal.first)
                if oldest <= number <= tail
            }
            copies.append(_copy(f"the disk of {process.address}", oldest, tail, list(stored.values())))
        return oldest, copies


def _copy(member: str, oldest: int, tail: int, records: list[LogRecord]) -> Copy:
    authors = {record.lsn: record.payload for record in records}
    return Copy(member, SHARD, oldest, [(oldest, tail + 1 - oldest)], records, dict(authors))
