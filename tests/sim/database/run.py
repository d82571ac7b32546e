"""One seed of the database from beginning to end: plan, faults, healing, liveness, checks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from logdb.cluster.client import requests as calls
from logdb.cluster.compaction.compactor import Phase
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import Decided
from logdb.cluster.placement import Placement
from logdb.cluster.summaries import HISTORY_KINDS, ShardHistory
from logdb.cores.effects import MILLISECOND
from logdb.errors import OutcomeUnknown, Unavailable, VersionTrimmed
from logdb.log import requests as log
from logdb.log.contract import Batch, LogRecord
from logdb.retention.expiry import EXPIRING
from logdb.store.folds import OPERATORS as FOLDS
from logdb.store.records import (
    COMMIT,
    DECISION,
    VALUE,
    Commit,
    DeletedRange,
    Fold,
    Place,
    TxnId,
    decode_commit,
    decode_decision,
)
from logdb.txn.coordinator import Outcome as Ended
from logdb.txn.coordinator import Status
from logdb.txn.ledger import MAX_STRETCHES
from tests.sim.checks import Truth, truth_of
from tests.sim.cluster import NotAnswered, Operator, Shape
from tests.sim.database.checks import WRITERS, Model, check_all
from tests.sim.database.cluster import (
    KEEP_DECISIONS,
    MAPPING_FAULTS,
    PLACEMENTS,
    DatabaseCluster,
    Top,
    cluster_on,
    faults_on,
)
from tests.sim.database.history import History
from tests.sim.database.keys import COUNTERS, KEYS, is_within
from tests.sim.database.retention import RetentionCheck, is_of_retention
from tests.sim.database.workload import Application, Load, Shared, load_of
from tests.sim.engines import ENGINES, simulation_of
from tests.sim.faults import Trouble
from tests.sim.run import Outcome, plan_of
from tests.sim.run import Simulation as LogSimulation
from tests.sim.world import Failure, World

SWEEPING = 0.4
"""The share of seeds with keys that expire and sweeps."""
COMPACTING = 0.7
"""The share of seeds with compactions."""

OVERTAKING = ("pause who compacts",) * 3 + ("pause who ends a compaction",) * 3 + ("kill who compacts",) * 2
CRASHING = ("kill mapping in mid checkpoint",) * 4 + ("lose mapping disk",)
"""Faults that are combined with compactions in some seeds: another server takes over; tables are written in part."""

TIERED = 0.4
"""The share of seeds with a cold tier."""
DISKS = 0.7
"""The share of seeds in which mapping servers have a disk."""

HEALING_HEARTBEATS = 400
"""Number of heartbeats after healing within which the cluster must work normally again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a seed."""

    shape: Shape
    top: Top
    load: Load
    trouble: Trouble
    lasting_ns: int


def database_plan_of(draw: random.Random, engine: str) -> Plan:
    """The plan of a seed: a cluster as in the simulations of the log, and a database on it."""
    below = plan_of(draw, engine)
    trouble = below.trouble
    if trouble.faults or trouble.operations:
        share = draw.choice((0.0, 0.5, 1.0))
        own = tuple(name for name in MAPPING_FAULTS if draw.random() < share)
        trouble = replace(trouble, faults=trouble.faults[: draw.choice((0, 3, 99))] + own)
    top = Top(
        servers=draw.choice((1, 2, 2, 3, 3)),
        clients=draw.choice((1, 2, 3)),
        peers=draw.random() < 0.65,
        small_messages=draw.random() < 0.4,
        placement=draw.randrange(len(PLACEMENTS)),
        hedge=draw.choice((0.5, 2.0, 8.0)),
        decide=draw.choice((0.5, 4.0, 40.0)),
    )
    return Plan(
        below.shape.under_database(),
        top,
        load_of(draw),
        trouble,
        lasting_ns=draw.choice((200, 400, 800)) * MILLISECOND,
    )


class Simulation(LogSimulation):
    """A running seed. It begins and heals as a simulation of the log does."""

    plan: Plan  # type: ignore[assignment]
    cluster: DatabaseCluster
    history: History  # type: ignore[assignment]

    def __init__(
        self,
        seed: int,
        engine: str,
        *,
        nodes: bool = False,
        exact: bool = False,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self.own, self.engine = simulation_of(engine), engine
        self.world = World(seed, exact=exact, show=show)
        self.plan = database_plan_of(self.world.draw("plan"), engine)
        draw = self.world.draw("compaction")
        if draw.random() < COMPACTING:
            self._plan_compactions(draw)
        top = replace(
            self.plan.top,
            disk=draw.random() < DISKS,
            overlay_bytes=draw.choice((1_000, 4_000, 20_000)),
            every_s=draw.choice((0.5, 2.0, 8.0)),
            takeover=draw.choice((6.0, 9.0)),
        )
        self.plan = replace(self.plan, top=top)
        draw = self.world.draw("cold tier of servers")
        if draw.random() < TIERED:
            top = replace(top, cold=draw.randint(1, top.servers))
            load = replace(self.plan.load, doing=(*self.plan.load.doing, "follow the tier"))
            self.plan = replace(self.plan, load=load, top=top)
        draw = self.world.draw("retention")
        if draw.random() < SWEEPING:
            load = self.plan.load
            load = replace(load, doing=(*load.doing, "expire"), expiring=draw.choice((20, 60, 200)))
            top = replace(top, sweep=draw.choice((0.5, 2.0, 5.0)))
            self.plan = replace(self.plan, load=load, top=top)
        if nodes:
            shape = self.own.on_nodes(self.plan.shape, self.world.draw("nodes"))
            self.plan = replace(self.plan, shape=shape, top=replace(top, servers=shape.nodes))
        self.history = History()
        self.cluster = cluster_on(engine)(self.world, self.plan.shape, self.plan.top)
        self.healing = self.own.Healing(self.cluster, self._wait)
        self.records = 0
        self.applications: list[Application] = []

    def _plan_compactions(self, draw: random.Random) -> None:
        """Add compactions, and in some seeds only faults that interrupt them."""
        load, trouble = self.plan.load, self.plan.trouble
        load = replace(load, doing=(*load.doing, "compact"), compacting=draw.choice((5, 15, 40)))
        often: tuple[str, ...] = draw.choice(((), (), OVERTAKING, CRASHING))
        if trouble.faults and often:
            others = draw.sample(trouble.faults, min(len(trouble.faults), 3))
            trouble = replace(trouble, faults=(*often, *others), every_ns=15 * MILLISECOND)
            load = replace(load, element_bytes=draw.choice((load.element_bytes, 4_500)))
        self.plan = replace(self.plan, load=load, trouble=trouble)

    def run(self) -> None:
        """Run the seed. Raises Failure."""
        world, plan, cluster = self.world, self.plan, self.cluster
        try:
            cluster.start()
            cluster.is_calm = set(plan.trouble.faults) <= set(self.own.HARMLESS)
            is_tiered = plan.top.cold >= plan.top.servers
            shared = Shared(cluster.floors, lambda: cluster.tail, is_tiered=is_tiered)
            self.applications = [
                Application(world, process, plan.load, self.history, shared) for process in cluster.clients
            ]
            by_address: Any = {one.process.address: one for one in self.applications}
            faults = faults_on(self.engine)(cluster, by_address, plan.trouble)
            world.run(world.now + plan.lasting_ns)
            faults.heal()
            for application in self.applications:
                application.stopping = True
            self._end()
        except NotAnswered as error:
            raise Failure("liveness: calls are answered", str(error)) from None

    def _end(self) -> None:
        world = self.world
        world.annotate("healed")
        limit = world.now + HEALING_HEARTBEATS * self.plan.shape.heartbeat_ns
        self.healing.make_writable(limit)
        applications = self.applications
        self._wait(limit, lambda: not any(one.busy for one in applications), "calls are answered", applications)
        self._put_fresh(applications, limit)
        self._wait_for_sweeps(limit)
        self._wait_for_compactions(limit)
        auditor = Operator(self.cluster.add_application("auditor"))
        auditor.process.start()
        settled = self._settle_unknown(auditor, limit)
        answers = self._answers(auditor, limit)
        replayed = self._compare_servers(limit)
        self._compare_answers(answers, replayed)
        for txn, outcome in settled.items():
            if outcome.status is Status.FORGOTTEN:
                settled[txn] = replayed.outcome(txn)
        ops = {op.txn: op for op in self.history.ops if op.txn is not None}
        authors = {version: ops[txn] for version, txn in replayed.authors.items() if txn in ops}
        for version, op in authors.items():
            op.committed_at(version)
        model = Model(replayed.versions, authors, self.cluster.floors, replayed.deletes, replayed.folds)
        check_all(self.history, model, settled)

    def _put_fresh(self, applications: list[Application], limit: int) -> None:
        """A put of each application succeeds. A compaction that is under way can remove the first one's commit record
        before its client knows the outcome; then another one is put."""
        for attempt in range(3):
            for application in applications:
                application.do("put")
            self._wait(limit, lambda: not any(one.busy for one in applications), "a fresh put succeeds", applications)
            failed = [op for op in self.history.ops[-len(applications) :] if op.version == 0]
            if not failed:
                return
            is_compacted = all(isinstance(op.error, OutcomeUnknown) and op.floor for op in failed)
            if attempt == 2 or not is_compacted:
                raise Failure("liveness: a fresh put succeeds", f"{failed[0]}")

    def _wait_for_compactions(self, limit: int) -> None:
        """Wait until compactions have ended and the log is trimmed."""
        cluster = self.cluster
        tail = self._ask(log.Tail(), limit)

        def is_quiet() -> bool:
            cores: list[Any] = [process.core for process in cluster.present()]
            return all(
                core is not None
                and core.replica.applied >= tail
                and core.compactor.phase is Phase.IDLE
                and not core.replica.begun
                and core.compactor.trimmed >= core.replica.cleaned
                for core in cores
            )

        self._wait(limit, is_quiet, "compactions end", cluster.present())

    def _wait_for_sweeps(self, limit: int) -> None:
        """Wait until all keys have expired that will, if the clocks are right, and let no server sweep any more."""
        cores: list[Any] = [process.core for process in self.cluster.mapping if process.core is not None]

        def is_over() -> bool:
            replica = cores[0].replica
            return not next(iter(replica.map.scan(*EXPIRING.range(), replica.applied, limit=1)), ())

        if self.plan.top.sweep and self.cluster.is_calm:
            self._wait(limit, is_over, "RET-4: keys expire", self.cluster.present())

    def _ask_auditor(self, auditor: Operator, request: Any, limit: int) -> Any:
        result = auditor.ask(request, limit)
        if isinstance(result, Exception):
            raise Failure("liveness: the auditor is served", f"{request}: {result!r}")
        return result

    def _settle_unknown(self, auditor: Operator, limit: int) -> dict[TxnId, Ended]:
        """The outcomes of all transactions whose clients did not get one."""
        settled = {}
        for op in self.history.ops:
            if op.what in WRITERS and op.txn is not None and op.status == "info":
                result = auditor.ask(calls.Settle(op.txn), limit)
                if isinstance(result, OutcomeUnknown):  # too old: only the replay has its outcome
                    result = Ended(Status.FORGOTTEN, 0)
                if isinstance(result, Exception):
                    raise Failure("liveness: the auditor is served", f"{op}: {result!r}")
                settled[op.txn] = result
        return settled

    def _answers(self, auditor: Operator, limit: int) -> dict[bytes, list[tuple[int, bytes | None]]]:
        """All versions of all keys that the database still has, by its answers."""
        versions: dict[bytes, list[tuple[int, bytes | None]]] = {}
        at = self._ask_auditor(auditor, calls.Version(), limit)
        for key in [*KEYS, *COUNTERS]:
            found: list[tuple[int, bytes | None]] = []
            below, more = at, True
            while more:
                request = calls.History(key, 50, calls.SNAPSHOT, below)
                result = auditor.ask(request, limit)
                if isinstance(result, VersionTrimmed) and self._has_some_tier:
                    break  # this server has no access to the tier
                if isinstance(result, Exception):
                    raise Failure("liveness: the auditor is served", f"{request}: {result!r}")
                _, entries, more = result
                found += entries
                below = entries[-1][0] - 1 if entries else 0
            versions[key] = found[::-1]
        return versions

    def _compare_answers(self, answers: dict[bytes, list[tuple[int, bytes | None]]], replayed: Replayed) -> None:
        """The answers of the database equal a replay of the log, back to the floor, or to the first version of the cold
        tier if there is one (DBS-21)."""
        floors, oldest = self.cluster.floors, [replayed.replica.coordinator.floor]
        if floors.copied is not None and self.plan.top.cold:
            oldest = [*(oldest if self._has_some_tier else ()), floors.attached]
        for key, answered in answers.items():
            right = [list(_versions_from(floor, replayed.versions.get(key, []))) for floor in oldest]
            if answered not in right:
                raise Failure("the database matches a replay of the log", f"{key!r} is {answered}, not {right}")

    @property
    def _has_some_tier(self) -> bool:
        """Whether not all mapping servers know the cold tier."""
        top = self.plan.top
        return 0 < top.cold < top.servers

    # ---- servers

    def _compare_servers(self, limit: int) -> Replayed:
        """DBS-1: all mapping servers have the same state, equal to a replay of the whole log."""
        cluster = self.cluster
        tail = self._ask(log.Tail(), limit)
        images: dict[int, Any] = {}

        def agree() -> bool:
            applied = {replica.applied for replica in cluster.replicas()}
            return len(cluster.replicas()) == len(cluster.present()) and len(applied) == 1 and min(applied) >= tail

        def step(_: Any = None) -> None:
            if not images and agree():
                for number, replica in enumerate(cluster.replicas()):
                    images[number] = replica.applied, replica.image()
            elif not images:
                self.world.after(MILLISECOND, step)

        step()
        self._wait(limit, lambda: bool(images), "mapping servers reach the tail", cluster.replicas())
        applied = images[0][0]
        self.healing.wait_for_copies(limit)
        oldest, copies = self.healing.copies(applied, limit)
        truth = truth_of(copies, oldest, applied, is_dense=self.own.IS_DENSE)
        self.records = applied
        for gsn, record in cluster.archive.items():
            if gsn >= oldest and gsn <= applied and truth.records.get(gsn) != tuple(record[1:]):
                raise Failure("DBS-1: servers apply the records of the log", f"{record} and {truth.records.get(gsn)}")
            if gsn <= applied:
                truth.records[gsn] = record.time, record.tag, record.payload
        replayed = Replayed(truth, cluster.values)
        fresh = replayed.replica
        for number, (_, image) in images.items():
            if image != fresh.image():
                raise Failure("DBS-1: servers and a replay have the same state", f"{cluster.present()[number].address}")
        if oldest > 1:
            self._rebuild(limit)
        self._count(truth)
        cluster.cold_tier.check(replayed.versions)
        check_decisions(truth, fresh)
        check_verdicts(self.history, truth, replayed)
        check_used_ids(self.history, truth, replayed)
        self._check_shards(truth, replayed)
        self.world.counts["expired"] += replayed.retention.deleted
        return replayed

    def _check_shards(self, truth: Truth, replayed: Replayed) -> None:
        """DBS-17: the records of one shard give the versions of its objects, up to some version."""
        placement = PLACEMENTS[self.plan.top.placement]
        for key in [*KEYS, *COUNTERS] if placement is not None else ():
            try:
                through, versions = versions_by_shard(truth, key, placement)
            except Unavailable:
                self.world.counts["history from one shard unavailable"] += 1
                continue
            self.world.counts["history from one shard"] += 1
            whole = [entry for entry in replayed.versions.get(key, ()) if entry[0] <= through][::-1]
            shown, rest = whole[: len(versions)], whole[len(versions) :]
            floor = replayed.replica.coordinator.floor
            is_cut = rest and (versions[-1][0] if versions else through + 1) > floor
            if versions != shown or (is_cut and (rest[0][0] > floor or rest[0][1] is not None)):
                raise Failure(
                    "DBS-17: a shard has the history of its objects", f"{key!r} to {through} is {versions}, not {whole}"
                )

    def _rebuild(self, limit: int) -> None:
        """DBS-12: a server that reads only the trimmed log gets the same state."""
        self.world.counts["rebuilt of a trimmed log"] += 1
        process = self.cluster.add_server_alone("rebuilder")
        process.start()
        found: list[Any] = []

        def look(_: Any = None) -> None:
            core: Any = process.core
            others = [one for one in self.cluster.replicas() if core is not None and one is not core.replica]
            for other in others:
                if other.applied == core.replica.applied:
                    found.append(other.image() == core.replica.image())
                    return
            self.world.after(MILLISECOND, look)

        look()
        self._wait(limit, lambda: bool(found), "a server rebuilds the map from the trimmed log", [])
        if not found[0]:
            raise Failure("DBS-12: the trimmed log gives the same state", "")

    def _count(self, truth: Truth) -> None:
        """Count events that must occur in some seeds, since the checks of these seeds are vacuous without them."""
        counts, seen = self.world.counts, set[bytes]()
        for _, tag, payload in truth.records.values():
            counts["large value"] += tag == VALUE
            counts["decision record"] += tag == DECISION
            counts["transaction twice in the log"] += tag == COMMIT and payload in seen
            seen.add(payload)
        counts["checkpoint taken"] += self.cluster.checkpoints


def _versions_from(floor: int, versions: list[tuple[int, bytes | None]]) -> Iterator[tuple[int, bytes | None]]:
    """The versions of a key that are live at the floor, or later."""
    live = [entry for entry in versions if entry[0] <= floor][-1:]
    yield from (entry for entry in live if entry[1] is not None)
    yield from (entry for entry in versions if entry[0] > floor)


class Replayed:
    """A replay of the whole log, with its trimmed records.

    `versions`: of each key, oldest first; `deletes`: deleted ranges; `folds`: those of each version;
    `authors`: the transaction of each version; `decided`: of each transaction, at its first record.
    """

    def __init__(self, truth: Truth, values: dict[bytes, bytes]) -> None:
        self.replica = replica = Replica(None, KEEP_DECISIONS)
        self.versions: dict[bytes, list[tuple[int, bytes | None]]] = {}
        self.deletes: list[DeletedRange] = []
        self.folds: dict[int, tuple[Fold, ...]] = {}
        self.authors: dict[int, TxnId] = {}
        self.decided: dict[TxnId, Decided] = {}
        self.retention = RetentionCheck()
        for gsn in sorted({*truth.records, truth.tail}):
            time, tag, payload = truth.records.get(gsn, (0, VALUE, b""))
            records = [] if tag == VALUE else [LogRecord(gsn, time, tag, payload)]
            for commit, _ in replica.apply(Batch(replica.applied + 1, gsn + 1, records)):
                txn = TxnId(commit.client, commit.sequence)
                decided = replica.decided(txn)
                assert decided is not None
                if decided.version == gsn:
                    self.decided[txn] = decided
                if decided.version == gsn and decided.verdict.committed:
                    self.authors[gsn] = txn
                    commit = decode_commit(payload, gsn)
                    for start, end in commit.deletes:
                        self.deletes.append(DeletedRange(gsn, start, end))
                        for key in [*KEYS, *COUNTERS]:
                            if is_within(key, start, end) and key not in commit.writes:
                                self._add(key, gsn, None)
                    self._fold(gsn, commit)
                    self.retention.add(gsn, time, commit)
                    for key, value in commit.writes.items():
                        if is_of_retention(key):
                            continue
                        whole = values[value.digest] if isinstance(value, Place) else value
                        self._add(key, gsn, whole)

    def _fold(self, gsn: int, commit: Commit) -> None:
        """FLD-1, by another computation: the value of a fold follows from the one before it."""
        if commit.folds:
            self.folds[gsn] = tuple(commit.folds)
        for operator, key, operand in commit.folds:
            versions = self.versions.setdefault(key, [])
            version, value = versions[-1] if versions else (0, None)
            if version == gsn:
                versions.pop()
            versions.append((gsn, b"%d" % (operand if value is None else FOLDS[operator](int(value), operand))))
        for _, key, _ in commit.folds:
            found, expected = self.replica.map.value(key, gsn), self.versions[key][-1]
            if expected != (gsn, found):
                raise Failure("FLD-1: folds follow from the value before", f"{key!r} at {gsn}: {found!r}, {expected}")

    def _add(self, key: bytes, gsn: int, value: bytes | None) -> None:
        versions = self.versions.setdefault(key, [])
        if not versions or versions[-1] != (gsn, value):  # several ranges of a commit may have the key
            versions.append((gsn, value))

    def outcome(self, txn: TxnId) -> Ended:
        """The final outcome of a transaction."""
        decided = self.decided.get(txn)
        if decided is None or not decided.verdict.committed:
            return Ended(Status.ABORTED, 0 if decided is None else decided.version)
        return Ended(Status.COMMITTED, decided.version)


def check_decisions(truth: Truth, fresh: Replica) -> None:
    """DBS-8: the decision records name every aborted commit record up to the version that the last one covers."""
    through, declared = 0, set[int]()
    for gsn in sorted(truth.records):
        if truth.records[gsn][1] == DECISION:
            decision = decode_decision(truth.records[gsn][2])
            if decision.after > through or decision.through >= gsn:
                raise Failure("DBS-8: decision records leave no gap", f"{decision} at {gsn} after {through}")
            through = max(through, decision.through)
            declared.update(decision.aborted)
    aborted = set(fresh.coordinator.ledger.aborted_between(0, through))
    declared = {gsn for gsn in declared if gsn >= fresh.coordinator.floor}  # earlier decisions are no longer kept
    if declared != aborted:
        raise Failure("DBS-8: decision records match the decisions", f"{declared ^ aborted} up to {through}")


def versions_by_shard(truth: Truth, key: bytes, placement: Placement) -> tuple[int, list[tuple[int, bytes | None]]]:
    """(through which version, the versions) by the records of the shard of `key`. Raises Unavailable."""
    shard = placement(key) or 0
    history = ShardHistory(key, shard)
    for gsn in sorted(truth.owner):
        if truth.owner[gsn] == shard and truth.records[gsn][1] in HISTORY_KINDS:
            history.take(LogRecord(gsn, *truth.records[gsn]))
    through, versions = history.versions(truth.oldest)
    found: list[tuple[int, bytes | None]] = []
    for version, value in versions:
        if isinstance(value, Place):
            _, tag, payload = truth.records[value.gsn]
            if value.gsn < truth.oldest or not value.has(tag, payload):
                raise Failure(
                    "DBS-13: a shard's history has the positions of its values", f"{version} of {key!r} at {value}"
                )
            value = payload
        found.append((version, value))
    return through, found


def check_verdicts(history: History, truth: Truth, replayed: Replayed) -> None:
    """DBS-6: a client's verdict is that of the first record with its transaction's id."""
    first = first_records(truth)
    for op in history.ops:
        if op.what not in WRITERS or op.txn is None:
            continue
        if op.version and first.get(op.txn) != op.version:
            raise Failure("DBS-6: a verdict is that of the first record", f"{op}: {first.get(op.txn)}")
        if op.version:
            decided = replayed.decided.get(op.txn)
            if decided is None or (decided.verdict, decided.winner) != (op.verdict, op.winner):
                raise Failure("DBS-6: a verdict matches the log", f"{op}: {decided}")
        elif op.status == "fail" and replayed.outcome(op.txn).committed:
            raise Failure("DBS-7: a failed transaction is not applied", f"{op}")


def first_records(truth: Truth) -> dict[TxnId, int]:
    """The GSN of each transaction's first commit record."""
    first: dict[TxnId, int] = {}
    for gsn in sorted(truth.records):
        if truth.records[gsn][1] == COMMIT:
            commit = decode_commit(truth.records[gsn][2], gsn)
            first.setdefault(TxnId(commit.client, commit.sequence), gsn)
    return first


def check_used_ids(history: History, truth: Truth, replayed: Replayed) -> None:
    """DBS-15: the first commit record of an id is decided, and an id is forgotten only if a compaction has dropped its
    record. Clients whose lowest gaps may have been closed are excluded."""
    first, floor = first_records(truth), replayed.replica.coordinator.floor
    used: dict[int, set[int]] = {}
    for client, sequence in first:
        used.setdefault(client, set()).add(sequence)
    many = {client for client, ids in used.items() if sum([one - 1 not in ids for one in ids]) > MAX_STRETCHES}
    for txn in first.keys() - replayed.decided.keys():
        if txn.client not in many:
            raise Failure("DBS-15: a first record is decided", f"the record of {txn} at {first[txn]} is a duplicate")
    for op in history.ops:
        txn, is_forgotten = op.txn, isinstance(op.error, OutcomeUnknown) and not op.has_deadline
        if op.result is not None and op.status == "ok":
            txn, is_forgotten = op.result[0], op.result[1].status is Status.FORGOTTEN
        if txn is not None and is_forgotten and first.get(txn, floor) >= floor and txn.client not in many:
            raise Failure(
                "DBS-15: only compacted transactions are forgotten",
                f"{op}: it is at {first.get(txn)}, the floor is {floor}",
            )


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
    finally:
        for drive in simulation.cluster.drives.values():
            drive.close()
    story = world.story() if failure else ""
    return Outcome(seed, world.digest(), world.events, simulation.records, dict(world.counts), failure, detail, story)
