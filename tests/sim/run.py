"""One seed from beginning to end: plan, faults, healing, liveness, checks."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from logdb.cores.effects import MILLISECOND
from logdb.log import requests as calls
from tests.sim.checks import Truth, check_all, check_answered, excuse_losses, in_the_log, truth_of
from tests.sim.cluster import NotAnswered, Shape
from tests.sim.engines import ENGINES, simulation_of
from tests.sim.faults import Trouble
from tests.sim.history import History
from tests.sim.limits import LASTING_NS, SMALL_BYTES, Limits, limits_of
from tests.sim.wire import Wire
from tests.sim.workload import Application, Load, load_of
from tests.sim.world import Failure, World

HEALING_HEARTBEATS = 400
"""Number of heartbeats after healing within which the cluster must work normally again."""
PROBING = 20
"""How many times as long it may take in seeds with small limits to read all records in the end."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed decides before it starts. `limits`: None if they are the real ones."""

    shape: Shape
    load: Load
    trouble: Trouble
    lasting_ns: int
    limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed. `failure`: the check that failed, "" if none; `detail` and `story` are for people."""

    seed: int
    digest: str
    events: int
    records: int
    counts: dict[str, int]
    failure: str
    detail: str = ""
    story: str = ""


def plan_of(draw: random.Random, engine: str) -> Plan:
    """The plan of a seed: its cluster, load and faults."""
    own = simulation_of(engine)
    shape = own.shape_of(draw)
    load = replace(load_of(draw), is_dense=own.IS_DENSE)
    return Plan(shape, load, own.trouble_of(draw), lasting_ns=draw.choice((200, 400, 800)) * MILLISECOND)


class Simulation:
    """A running seed."""

    def __init__(
        self,
        seed: int,
        engine: str,
        *,
        nodes: bool = False,
        exact: bool = False,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self.own = simulation_of(engine)
        self.world = World(seed, exact=exact, show=show)
        self.plan = plan_of(self.world.draw("plan"), engine)
        if nodes:
            self.plan = replace(self.plan, shape=self.own.on_nodes(self.plan.shape, self.world.draw("nodes")))
        limits = None if nodes else limits_of(seed, self.world.draw("limits"))  # on nodes they would share the links
        if limits is not None:
            self._limit(limits)
        self.history = History()
        self.cluster = self.own.Cluster(self.world, self.plan.shape)
        if limits is not None:
            self.cluster.network.wire = Wire(self.world, limits.queue_bytes, limits.bytes_a_second)
        self.healing = self.own.Healing(self.cluster, self._wait)
        self.records = 0

    def _limit(self, limits: Limits) -> None:
        """Have the cluster run with small limits, and records that exceed them."""
        shape, load = replace(self.plan.shape, small_buffers=True), self.plan.load
        load = replace(load, large=limits.large, records=limits.records, under_way=limits.under_way, bytes=SMALL_BYTES)
        lasting_ns = min(self.plan.lasting_ns, LASTING_NS)
        self.plan = replace(self.plan, shape=shape, load=load, lasting_ns=lasting_ns, limits=limits)

    def run(self) -> None:
        """Run the seed. Raises Failure."""
        limits = self.plan.limits
        with nullcontext() if limits is None else limits.in_force():
            self._run()

    def _run(self) -> None:
        world, plan, cluster = self.world, self.plan, self.cluster
        try:
            cluster.start()
            applications = {
                process.address: Application(world, process, plan.load, self.history) for process in cluster.clients
            }
            before = self.healing.configured()
            faults = self.own.Faults(cluster, applications, plan.trouble)
            world.run(world.now + plan.lasting_ns)
            faults.heal()
            for application in applications.values():
                application.stopping = True
            self._recover(list(applications.values()))
            untroubled = not plan.trouble.operations and set(plan.trouble.faults) <= set(self.own.AT_OTHERS)
            # Small batches that overtake each other cause lag; on nodes, other servers fail with those.
            if untroubled and not plan.shape.small_buffers and not plan.shape.nodes:
                self._check_unchanged(before)
        except NotAnswered as error:
            raise Failure("liveness: calls are answered", str(error)) from None

    def _check_unchanged(self, before: Any) -> None:
        after = self.healing.configured()
        if after != before:
            raise Failure("healthy servers are not reconfigured", f"{before} became {after}")

    def _recover(self, applications: list[Application]) -> None:
        world, history, cluster = self.world, self.history, self.cluster
        world.annotate("healed")
        limit = world.now + HEALING_HEARTBEATS * self.plan.shape.heartbeat_ns
        self.healing.make_writable(limit)
        # The last live shard may be finalized meanwhile: when a grace ends, or for an earlier suspicion.
        while any(one.busy for one in applications) and world.now < limit:
            if not world.run(
                min(limit, world.now + HEALING_HEARTBEATS // 8 * self.plan.shape.heartbeat_ns),
                lambda: not any(one.busy for one in applications),
            ):
                self.healing.make_writable(limit)
        self._wait(limit, lambda: not any(one.busy for one in applications), "calls are answered", applications)
        for application in applications:
            self._append_fresh(application, limit)
        check_answered(history)
        tail = self._ask(calls.Tail(), limit)
        followings = history.followings
        self._wait(
            limit,
            lambda: all(one.ended is not None or one.reached > tail for one in followings),
            "subscribers reach the tail",
            [one for one in followings if one.ended is None],
        )
        self.healing.wait_for_copies(limit)
        if self.plan.limits is not None:  # all records come in small answers
            limit += PROBING * HEALING_HEARTBEATS * self.plan.shape.heartbeat_ns
        oldest, copies = self.healing.copies(tail, limit)
        truth = truth_of(copies, oldest, tail, is_dense=self.own.IS_DENSE)
        self.records = tail
        world.counts["acknowledged record lost"] += excuse_losses(history, truth, cluster.losable)
        check_all(history, truth)
        self._check_unknown_outcomes(truth, limit)

    def _check_unknown_outcomes(self, truth: Truth, limit: int) -> None:
        """After the clients have ended, another client finds the appends of unknown outcome that are in the log.

        Excluded: appends with a record that was trimmed or never arrived, whose outcome no server has.
        """
        for process in self.cluster.clients:
            process.kill()
        found = []
        deadline = self.cluster.operator.process.now + HEALING_HEARTBEATS // 8 * self.plan.shape.heartbeat_ns
        for append_id, expected in in_the_log(self.history, truth):
            results: list[Any] = []
            found.append((append_id, expected, results))
            self.cluster.operator.call(calls.Outcome(append_id, deadline), results.append)
        self._wait(limit, lambda: all(results for _, _, results in found), "outcomes are answered", [found])
        for append_id, expected, results in found:
            self.world.counts["outcome of an ended client's append"] += 1
            if results != [expected]:
                detail = f"{append_id} is at {expected}, another client gets {results}"
                raise Failure("appends of an ended client are found", detail)

    def _append_fresh(self, application: Application, limit: int) -> None:
        """An append must succeed within three attempts; one may fail if its segment is trimmed with its outcome."""
        for _ in range(3):
            application.append()
            operation = self.history.operations[-1]
            self._wait(limit, lambda: not application.busy, "a fresh append succeeds", [application])
            if isinstance(operation.result, calls.AppendResult):
                return
        raise Failure("liveness: a fresh append succeeds", f"{operation}")

    def _ask(self, request: Any, limit: int) -> Any:
        result = self.cluster.operator.ask(request, limit)
        if isinstance(result, Exception):
            raise Failure("liveness: the operator is served", f"{request}: {result!r}")
        return result

    def _wait(self, limit: int, done: Callable[[], bool], condition: str, suspects: list[Any]) -> None:
        if not done() and not self.world.run(limit, done):
            blamed = [getattr(one, "open", one) for one in suspects]
            raise Failure(f"liveness: {condition}", f"{blamed}")


def simulate(
    seed: int,
    engine: str = ENGINES[0],
    *,
    nodes: bool = False,
    exact: bool = False,
    show: Callable[[str], None] | None = None,
) -> Outcome:
    """Run a seed; with `nodes`, servers of all roles share nodes."""
    simulation = Simulation(seed, engine, nodes=nodes, exact=exact, show=show)
    world = simulation.world
    failure, detail = "", ""
    try:
        simulation.run()
    except Failure as error:
        failure, detail = error.check, error.detail
    story = world.story() if failure else ""
    return Outcome(seed, world.digest(), world.events, simulation.records, dict(world.counts), failure, detail, story)
