"""One seed from beginning to end: what it consists of, trouble, healing, liveness, checks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from logdb.cores.effects import MILLISECOND
from logdb.log import requests as calls
from logdb.log.requests import ShardState
from logdb.log.scalog import messages
from logdb.log.scalog.ordering.commands import FailurePolicy
from tests.sim.checks import Copy, Truth, check_all, check_answered, in_the_log, truth_of
from tests.sim.cluster import Cluster, NotAnswered, Shape
from tests.sim.faults import AT_OTHERS, Faults, Trouble, trouble_of
from tests.sim.history import History
from tests.sim.network import weather_of
from tests.sim.prober import Prober
from tests.sim.workload import Application, Load, load_of
from tests.sim.world import Failure, World

PATIENCE = 400
"""So many heartbeats after healing everything must be well again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a seed decides before it starts."""

    shape: Shape
    load: Load
    trouble: Trouble
    lasting_ns: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed. `failure`: the check that failed, "" if none; `detail` and `story` are for people."""

    seed: int
    digest: str
    events: int
    records: int
    counts: dict[str, int]
    failure: str
    detail: str = ""
    story: str = ""


def plan_of(draw: random.Random) -> Plan:
    """The swarm: every seed is another cluster, with other things going on."""
    policy = draw.choice(list(FailurePolicy))
    aggregators = draw.choice((0, 0, 2, 3))
    shape = Shape(
        replicas=draw.choice((1, 3, 3, 5)),
        aggregators=aggregators,
        levels=draw.choice((1, 2)) if aggregators else 0,
        policy=policy,
        f=1 if policy is FailurePolicy.MASK else draw.choice((1, 1, 2)),
        shards=draw.choice((1, 2, 2, 3)),
        spares=draw.choice((0, 1, 3, 6)),
        clients=draw.choice((1, 2, 3)),
        sync_ns=draw.choice((20_000, 200_000, 2_000_000)),
        small_buffers=draw.random() < 0.4,
        snapshot_bytes=draw.choice((2_000, 4 << 20)),
        weather=weather_of(draw),
    )
    return Plan(shape, load_of(draw), trouble_of(draw), lasting_ns=draw.choice((200, 400, 800)) * MILLISECOND)


class Simulation:
    """A seed while it runs."""

    def __init__(self, seed: int, *, exact: bool = False, show: Callable[[str], None] | None = None) -> None:
        self.world = World(seed, exact=exact, show=show)
        self.plan = plan_of(self.world.draw("plan"))
        self.history = History()
        self.cluster = Cluster(self.world, self.plan.shape)
        self.records = 0
        self.view: messages.View | None = None
        self.copies: list[Copy] = []

    def run(self) -> None:
        """All of it. Raises Failure."""
        world, plan, cluster = self.world, self.plan, self.cluster
        try:
            cluster.start()
            applications = {
                process.address: Application(world, process, plan.load, self.history) for process in cluster.clients
            }
            before = self._configured()
            faults = Faults(cluster, applications, plan.trouble)
            world.run(world.now + plan.lasting_ns)
            faults.heal()
            for application in applications.values():
                application.stopping = True
            self._recover(list(applications.values()))
            if not plan.trouble.operations and set(plan.trouble.faults) <= set(AT_OTHERS):
                self._check_unchanged(before)
        except NotAnswered as error:
            raise Failure("liveness: calls are answered", str(error)) from None

    def _configured(self) -> list[tuple[Any, ...]]:
        """What reconfigurations change: states, members and seals."""
        cores: list[Any] = [one.core for one in self.cluster.ordering if one.core is not None]
        view = max(cores, key=lambda core: core.slot).state.view()
        return [(one.state, one.members, [(it.id, it.sealed) for it in one.segments]) for one in view.shards]

    def _check_unchanged(self, before: list[tuple[Any, ...]]) -> None:
        after = self._configured()
        if after != before:
            raise Failure("nothing healthy is reconfigured", f"{before} became {after}")

    def _recover(self, applications: list[Application]) -> None:
        world, cluster, history = self.world, self.cluster, self.history
        world.tell("healed")
        limit = world.now + PATIENCE * self.plan.shape.heartbeat_ns
        self._see_to_a_live_shard(limit)
        # The last shard that took appends may be finalized meanwhile: by a grace that ends, or a suspicion from before.
        while any(one.busy for one in applications) and world.now < limit:
            if not world.run(
                min(limit, world.now + PATIENCE // 8 * self.plan.shape.heartbeat_ns),
                lambda: not any(one.busy for one in applications),
            ):
                self._see_to_a_live_shard(limit)
        self._wait(limit, lambda: not any(one.busy for one in applications), "calls are answered", applications)
        for application in applications:
            self._append_afresh(application, limit)
        check_answered(history)
        tail = self._ask(calls.Tail(), limit)
        followings = history.followings
        self._wait(
            limit,
            lambda: all(one.ended is not None or one.reached > tail for one in followings),
            "subscribers reach the tail",
            [one for one in followings if one.ended is None],
        )
        self._see_to_successors(limit)
        prober = Prober(cluster)
        self.view = view = prober.views(limit)
        added, asked = view.next_shard - 1, cluster.operator.asked[calls.AddShard]
        if added > asked and self.plan.shape.policy is not FailurePolicy.FINALIZE_AND_ADD:
            raise Failure("a change is carried out once", f"{added} shards were added, {asked} were asked for")
        self.copies = prober.copies(view, view.oldest, tail, limit)
        truth = truth_of(self.copies, view.oldest, tail)
        self.records = tail
        check_all(history, truth)
        self._look_for_unknown(truth, limit)

    def _look_for_unknown(self, truth: Truth, limit: int) -> None:
        """Once the clients have ended, another client finds the appends that ended as unknown and are in the log.

        Those with a record that was trimmed, or that never came, are not asked for: no client can tell what that was.
        """
        for process in self.cluster.clients:
            process.kill()
        found = []
        deadline = self.cluster.operator.process.now + PATIENCE // 8 * self.plan.shape.heartbeat_ns
        for append_id, expected in in_the_log(self.history, truth):
            results: list[Any] = []
            found.append((append_id, expected, results))
            self.cluster.operator.call(calls.Outcome(append_id, deadline), results.append)
        self._wait(limit, lambda: all(results for _, _, results in found), "outcomes are told", [found])
        for append_id, expected, results in found:
            self.world.counts["outcome of an ended client's append"] += 1
            if results != [expected]:
                what = f"{append_id} is at {expected}, another client is told {results}"
                raise Failure("what an ended client has appended is found", what)

    def _append_afresh(self, application: Application, limit: int) -> None:
        """It must succeed; not necessarily the first time, if its segment is trimmed away with its fate."""
        for _ in range(3):
            application.append()
            operation = self.history.operations[-1]
            self._wait(limit, lambda: not application.busy, "a fresh append succeeds", [application])
            if isinstance(operation.result, calls.Done):
                return
        raise Failure("liveness: a fresh append succeeds", f"{operation}")

    def _ask(self, request: Any, limit: int) -> Any:
        result = self.cluster.operator.ask(request, limit)
        if isinstance(result, Exception):
            raise Failure("liveness: the operator is served", f"{request}: {result!r}")
        return result

    def _see_to_a_live_shard(self, limit: int) -> None:
        """Servers for those that are lost for ever, and a shard if the last one that took appends was finalized.

        Ordering replicas that have lost their disk join again.
        """
        cluster = self.cluster
        outside = [replica for replica in cluster.ordering if replica.address not in cluster.retired]
        self._wait(limit, lambda: all(map(cluster.has_joined, outside)), "replicas join again", outside)
        calls_open = cluster.operator.process.calls
        self._wait(limit, lambda: not calls_open, "the operator is served", [calls_open])
        for _ in range(self.plan.shape.members):
            cluster.add_storage().start()
        while True:
            view = cluster.view(limit)
            live = [shard for shard in view.shards if shard.state is ShardState.LIVE]
            for shard in live:
                primaries = {segment.primary for segment in shard.segments if segment.sealed is None}
                for server in sorted({member.server for member in shard.members} - primaries):
                    cluster.operator.do(messages.OpenSegment(server), limit)
            if live:
                return
            cluster.operator.do(calls.AddShard(()), limit)

    def _see_to_successors(self, limit: int) -> None:
        """They catch up, and those that they replaced go. A successor that has lost its disk is replaced itself: of a
        finalized shard, in which nobody is suspected, by the operator."""
        cluster, world = self.cluster, self.world
        before: set[int] = set()
        while joining := {server: one for one in cluster.view(limit).shards for server in one.joining}:
            if world.now > limit - 20 * self.plan.shape.heartbeat_ns:
                raise Failure("liveness: successors catch up", f"{joining}")
            for server in sorted(before & joining.keys()):
                if joining[server].state is ShardState.FINALIZED:
                    cluster.add_storage().start()
                    cluster.operator.do(calls.ReplaceServer(server, 0), limit)
            before = set(joining)
            world.run(world.now + 20 * self.plan.shape.heartbeat_ns)

    def _wait(self, limit: int, done: Callable[[], bool], what: str, suspects: list[Any]) -> None:
        if not done() and not self.world.run(limit, done):
            blamed = [getattr(one, "open", one) for one in suspects]
            raise Failure(f"liveness: {what}", f"{blamed}")


def simulate(seed: int, *, exact: bool = False, show: Callable[[str], None] | None = None) -> Outcome:
    """Run a seed."""
    simulation = Simulation(seed, exact=exact, show=show)
    world = simulation.world
    failure, detail = "", ""
    try:
        simulation.run()
    except Failure as error:
        failure, detail = error.check, error.detail
    story = world.story() if failure else ""
    return Outcome(seed, world.digest(), world.events, simulation.records, dict(world.counts), failure, detail, story)
