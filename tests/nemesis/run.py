"""A round: a cluster and clients start, faults overlap, all faults are undone, and the history is checked."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import logdb
import logdb.log
from logdb.clients.log_client import RemoteLog
from logdb.cluster.client import requests as calls
from logdb.errors import LogDBError
from logdb.log.contract import LogFailed
from logdb.log.engine import ENGINES, Shape, engine_of
from logdb.log.requests import AddShard, Configuration, ConfiguredShard, FinalizeShard, ReplaceServer, ShardState
from logdb.system.addresses import location_of
from tests.nemesis.faults import ALONE, GROUND_FAULTS, PROCESS_FAULTS, Fault, Scene, Wrong
from tests.nemesis.following import Follower
from tests.nemesis.history import Entry, load
from tests.nemesis.judging import End, judge
from tests.nemesis.logs import check_log, everything
from tests.nemesis.servers import Loopback, Process, Servers
from tests.nemesis.workloads import text_of
from tests.sim.engines import Policy, simulation_of
from tests.sim.world import Failure

ALIVE = b"alive"
"""The key that is written when all faults are undone."""
STARTS_S = 120.0
LIVES_S = 60.0
"""Time for a transaction to commit after all faults are undone, on a busy machine."""
STRAY = (LogDBError, LogFailed, TimeoutError, OSError, ValueError)
"""The errors that an operator may get during faults."""


@dataclass(frozen=True)
class Setting:
    """The servers and clients of a round. `ordering`: number of founders, 0: one server of a directory. `storage`
    servers start at once, more up to `reserve` as they are needed. `policy`: "" is the first that the engine's
    simulation names. `nodes`: the number of nodes with a server of each role; 0: a process for each server."""

    engine: str = ENGINES[0]
    ordering: int = 3
    aggregators: int = 1
    storage: int = 6
    reserve: int = 12
    mapping: int = 2
    shards: int = 2
    nodes: int = 0
    policy: str = ""
    planted: str = ""
    clients: int = 2
    think_ms: float = 25.0
    timeout_s: float = 5.0
    gap_s: float = 0.4
    at_once: int = 4

    @property
    def shape(self) -> Shape | None:
        """The shape of the cluster, as far as its engine has shards, storage servers and aggregators."""
        if not self.ordering:
            return None
        engine, policy = engine_of(self.engine), self.policy or next(iter(simulation_of(self.engine).POLICIES))
        has_storage = engine.operations.storage_role != engine.founder_role
        shards = self.shards if AddShard in simulation_of(self.engine).CHANGES else 1
        shape = Shape(
            shards=shards,
            replicas=self.failing.replicas if has_storage else self.ordering,
            ordering=self.ordering,
            mapping=self.mapping,
            aggregators=self.aggregators if "aggregators" in engine.operations.shape_fields else 0,
            spares=self.reserve - shards * self.failing.replicas if has_storage else 0,
            policy=policy,
            engine=self.engine,
        )
        return shape.on_nodes(self.nodes) if self.nodes else shape

    @property
    def failing(self) -> Policy:
        """The policy for failed servers."""
        policies = simulation_of(self.engine).POLICIES
        return policies[self.policy or next(iter(policies))]


@dataclass
class Tally:
    """Counts over all rounds. `faults`: by kind and role; `results`: results of operations, by operation and result."""

    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    results: Counter[tuple[str, str]] = field(default_factory=Counter)
    commits: int = 0
    problems: list[str] = field(default_factory=list)
    recoveries_s: list[float] = field(default_factory=list)


class Round:
    """One cluster, from its start to the checks of its history."""

    def __init__(
        self, ground: Loopback, setting: Setting, seed: int, tally: Tally, report: Callable[[str], None]
    ) -> None:
        self.ground, self.setting, self.tally, self.report = ground, setting, tally, report
        self.draw = random.Random(seed)
        self.servers = Servers(ground, setting.shape, planted=setting.planted)
        self._changes = simulation_of(setting.engine).CHANGES
        self.scene = Scene(self.servers, self.draw)
        self.problems: list[str] = []
        self._active: dict[str, tuple[float, str, Fault]] = {}
        self._log: RemoteLog | None = None
        self._follower: Follower | None = None
        self._change: threading.Thread | None = None
        self._lost: set[int] = set()
        self._weak: set[int] = set()
        self._wiped_founders = {process.name for process in self.servers.having("founder")}
        self._clients = 0

    def run(self, faults: int) -> None:
        """Run the round. Violations go to the tally; unexpected errors are raised."""
        try:
            self._start()
            self._suffer(faults)
            self._recover()
            self._end_clients()
            self._judge() if self.servers.has_database else self._judge_log()
        except Exception:
            self.problems += self._fallen()
            raise
        finally:
            self.tally.problems += self.problems
            if self._follower is not None:
                self._follower.stop()
            if self._log is not None:
                self._log.close()
            self.servers.close()

    # ---- start

    def _start(self) -> None:
        started = time.monotonic()
        storage = self.servers.having("storage")
        first = [process for process in self.servers.processes.values() if process not in storage]
        first += storage[: self.setting.storage]
        for process in first:
            process.start()
        self._wait(lambda: self._all_ready(first), STARTS_S, "servers start")
        if self.servers.is_cluster:
            self._log = logdb.log.connect(self.servers.founders, timeout=5.0)
            self._wait(self._make_shards, STARTS_S, "shards are made")
            self._wait(self._all_members, STARTS_S, "all founders are members")
        if self.servers.has_database:
            self._follower = Follower(self.servers.endpoints)
        for _ in range(self.setting.clients):
            self._hire_client()
        self._wait(lambda: any(map(self._wrote, self.servers.clients)), STARTS_S, "a client writes")
        self.report(f"started in {time.monotonic() - started:.1f} s")

    def _all_ready(self, processes: list[Process]) -> bool:
        for process in processes:
            if process.exit_code is not None:
                raise Wrong(f"{process.name} does not start: {process.exit_code}: {process.log[-2000:]}")
        return all(process.ready for process in processes)

    def _wrote(self, client: str) -> bool:
        return b'"type": "ok"' in self.servers.history(client).read_bytes()

    def _wait(self, is_met: Callable[[], bool], bound_s: float, condition: str) -> None:
        until = time.monotonic() + bound_s
        while not is_met():
            if time.monotonic() > until:
                raise Wrong(f"not within {bound_s:g} s: {condition}; {self._state()}")
            time.sleep(0.1)

    def _state(self) -> str:
        clients = [client for client in self.servers.clients.values() if client.running]
        servers = [server for server in self.servers.processes.values() if server.lives]
        down = [process.name for process in [*clients, *servers] if not process.ready]
        return f"not ready: {down}; {self._view()}"

    def _make_shards(self) -> bool:
        """Add shards of the spares until enough shards are live."""
        view = self._view()
        if view is None:
            return False
        live = list(filter(_is_live, view.shards))
        if not live or (AddShard in self._changes and len(live) < self.setting.shards):
            self._hire_servers(view)
            if AddShard in self._changes and len(view.spares) >= self.setting.failing.replicas:
                with contextlib.suppress(*STRAY):
                    self._log.add_shard()
            return False
        return True

    def _view(self) -> Configuration | None:
        if self._log is None:
            return None
        with contextlib.suppress(*STRAY):
            return self._log.configuration()
        return None

    def _hire_servers(self, view: Configuration) -> None:
        """Start storage servers that have never run, if spares are scarce."""
        storage = self.servers.having("storage")
        fresh = [process for process in storage if not process.lives]
        starting = [process for process in storage if process.running and not process.ready]
        for process in fresh[: max(0, self.setting.failing.replicas - len(view.spares) - len(starting))]:
            process.start()

    def _hire_client(self) -> None:
        self._clients += 1
        number = (self._clients - 1) % self.setting.clients + 1
        client = self.servers.client(
            f"c{number}-{self._clients}",
            seed=self.draw.randrange(1 << 32),
            timeout_s=self.setting.timeout_s,
            think_ms=self.setting.think_ms,
        )
        client.start()

    # ---- faults

    def _suffer(self, faults: int) -> None:
        done, next_at = 0, time.monotonic()
        while done < faults or self._active:
            self._undo(time.monotonic())
            self._look_after()
            if done < faults and self._has_room() and time.monotonic() >= next_at:
                done += self._begin()
                next_at = time.monotonic() + self.draw.expovariate(1 / self.setting.gap_s)
            time.sleep(0.05)

    def _has_room(self) -> bool:
        names = [kind.__name__ for kind in ALONE]
        return len(self._active) < self.setting.at_once and all(
            what not in names for _, what, _ in self._active.values()
        )

    def _undo(self, now: float) -> None:
        for name, (until, what, fault) in list(self._active.items()):
            if now >= until:
                try:
                    lasts = next(fault)
                    self._active[name] = now + lasts, what, fault
                except StopIteration:
                    del self._active[name]
                except Wrong as wrong:
                    del self._active[name]
                    self._report(str(wrong))

    def _look_after(self) -> None:
        """Raises Wrong if a server or client without a fault has ended."""
        if self._fallen():
            raise Wrong("ended by itself")

    def _fallen(self) -> list[str]:
        """The processes that have ended by themselves, with the end of their logs."""
        return [
            f"{process.name} ended by itself with {process.exit_code}: {process.log[-2000:]}"
            for process in list(self.servers.all_processes())
            if process.exit_code is not None and process.name not in self._active
        ]

    def _report(self, problem: str) -> None:
        self.problems.append(problem)
        self.report(f"PROBLEM {problem}")

    def _begin(self) -> int:
        """Begin one fault, or change the cluster. Returns 1 if it did."""
        if self.setting.failing.finalizes and (view := self._view()) is not None:
            self._hire_servers(view)
        kinds = {**PROCESS_FAULTS, **(GROUND_FAULTS if self.ground.network is not None else {})}
        weights = [weight for weight, _ in kinds.values()]
        choices: list[Any] = [*kinds, self._kill_client, self._change_something]
        (kind,) = self.draw.choices(choices, [*weights, 2, 5])
        if kind not in kinds:
            return int(kind())
        by_role: dict[str, list[Process]] = {}
        for process in self.servers.processes.values():
            if process.ready and process.name not in self._active and self._has(process.role, *kinds[kind][1]):
                by_role.setdefault(process.role, []).append(process)
        if not by_role:
            return 0
        role = self.draw.choice(list(by_role))
        victim = self._victim(role, by_role[role])
        if self._active and kind in ALONE:
            return 0
        if self._is_careful(role, kind.__name__) or (kind.__name__ == "wipe" and not self._wipes(victim)):
            return 0
        self._count(kind.__name__, victim, role)
        fault = kind(self.scene, victim)
        self._active[victim.name] = time.monotonic() + next(fault), kind.__name__, fault
        return 1

    def _has(self, role: str, *traits: str) -> bool:
        """Whether servers of this role have one of the traits."""
        return not self.servers.traits[role].isdisjoint(traits)

    def _victim(self, role: str, candidates: list[Process]) -> Process:
        """Of the founders, the leader half of the time."""
        if self._has(role, "founder") and self.draw.random() < 0.5:
            leader = self.servers.leader()
            leading = [process for process in candidates if process.name == leader]
            if leading:
                return leading[0]
        return self.draw.choice(candidates)

    def _count(self, kind: str, victim: Process, role: str) -> None:
        what = "leader" if self._has(role, "founder") and self.servers.leader() == victim.name else role
        self.tally.faults[kind, what] += 1
        self.report(f"{kind} {victim.name}")

    def _kill_client(self) -> bool:
        """Kill a client, with its operations under way; another one takes its place."""
        running = [client for client in self.servers.clients.values() if client.running]
        if not running:
            return False
        client = self.draw.choice(running)
        client.kill()
        self._hire_client()
        self.tally.faults["kill", "client"] += 1
        return True

    # ---- wiping: no more than the protocol survives

    def _is_careful(self, role: str, kind: str) -> bool:
        """Where failures finalize shards, no storage server may be suspected when no fresh servers are left for new
        shards."""
        if not self._has(role, "storage") and kind not in ("split", "blackout"):
            return False
        return self.setting.failing.finalizes and all(process.lives for process in self.servers.having("storage"))

    def _wipes(self, target: Process) -> bool:
        """Whether other servers hold all its records. If so, it counts as lost from now on."""
        checks = {"mapping": self._wipes_map, "founder": self._wipes_replica, "storage": self._wipes_records}
        return all(check(target) for trait, check in checks.items() if self._has(target.role, trait))

    def _wipes_map(self, target: Process) -> bool:
        others = [process for process in self.servers.having("mapping") if process is not target]
        return any(process.ready and process.name not in self._active for process in others)

    def _wipes_records(self, target: Process) -> bool:
        """Whether none of its shards is weak: lacks a disk that was lost. Servers with other faults do not count, since
        they have their disks, and keep what they have until others have it."""
        view = self._view()
        if view is None or any(what == "wipe" for _, what, _ in self._active.values()):
            return False
        self._weak = {config.shard for config in view.shards if config.shard in self._weak and self._is_weak(config)}
        address = self.servers.address(target.name)
        shards, servers = set(), set()
        for config in view.shards:
            for server in {*config.holders, *config.replaced}:
                if location_of(server.address) == address and server.server not in self._lost:
                    shards.add(config.shard)
                    servers.add(server.server)
        if shards & self._weak:
            return False
        if not shards and any(config.joining for config in view.shards):
            return False  # it may have left one of these, and have what the joining server lacks
        self._lost |= servers
        self._weak |= shards
        return True

    def _is_weak(self, config: ConfiguredShard) -> bool:
        return bool(config.joining) or any(member.server in self._lost for member in config.members)

    def _wipes_replica(self, target: Process) -> bool:
        """Whether more than half of the founders keep their promises. If so, this one counts as wiped until it has
        joined again."""
        self._all_members()
        if len(self._wiped_founders | {target.name}) > (self.setting.ordering - 1) // 2:
            return False
        self._wiped_founders.add(target.name)
        return True

    def _all_members(self) -> bool:
        """Whether every founder has joined the others (again)."""
        self._wiped_founders = {
            name for name in self._wiped_founders if self.servers.metric(name, "logdb_joining") != 0
        }
        return not self._wiped_founders

    # ---- changes

    def _change_something(self) -> bool:
        """Add or finalize a shard, replace a server, or compact: in a thread, since it may take long."""
        if not self._has_changed():
            return False
        choices: list[tuple[str, Callable[[], Any]]] = []
        view = self._view()
        if view is not None:
            choices += self._reconfigurations(view)
        if self._follower is not None and self._follower.seen:
            seen = self._follower.seen
            choices.append(("compact", functools.partial(self._compact, self.draw.choice(seen[-100:]).version)))
        if not choices:
            return False
        what, change = self.draw.choice(choices)

        def carry_out() -> None:
            try:
                change()
            except STRAY as error:
                self.report(f"{what}, in vain: {error}")
                self.tally.faults[f"{what}, in vain", "cluster"] += 1
            else:
                self.tally.faults[what, "cluster"] += 1

        self.report(what)
        self._change = threading.Thread(target=carry_out, daemon=True)
        self._change.start()
        return True

    def _compact(self, before: int) -> None:
        with logdb.connect(self.servers.endpoints, timeout=5.0) as db:
            db.compact(before=before)

    def _reconfigurations(self, view: Configuration) -> list[tuple[str, Callable[[], Any]]]:
        assert self._log is not None
        self._hire_servers(view)
        live = list(filter(_is_live, view.shards))
        fresh = [process for process in self.servers.having("storage") if not process.lives]
        choices: list[tuple[type, str, Callable[[], Any]]] = []
        if len(view.spares) >= self.setting.failing.replicas and len(live) < self.setting.shards + 1:
            choices.append((AddShard, "add shard", self._log.add_shard))
        if len(live) > 1 and len(view.spares) + len(fresh) >= self.setting.failing.replicas:
            shard, grace = self.draw.choice(live).shard, self.draw.choice((0, 0, 10))
            finalize = functools.partial(self._log.finalize_shard, shard, grace)
            choices.append((FinalizeShard, "finalize shard", finalize))
        if live and view.spares:
            member = self.draw.choice(self.draw.choice(live).members)
            replace = functools.partial(self._log.replace_server, member.server)
            choices.append((ReplaceServer, "replace server", replace))
        return [(name, change) for kind, name, change in choices if kind in self._changes]

    # ---- end of a round

    def _recover(self) -> None:
        """Wait until all servers are up and transactions commit at every server that clients connect to."""
        started = time.monotonic()
        self._wait(self._is_whole, STARTS_S, "all servers are ready again")
        self._wait(self._has_changed, STARTS_S, "a change that was under way is carried out")
        for name in self.servers.with_database:
            self._commits(name)
        self.tally.recoveries_s.append(time.monotonic() - started)

    def _has_changed(self) -> bool:
        return self._change is None or not self._change.is_alive()

    def _is_whole(self) -> bool:
        self._look_after()
        clients = [client for client in self.servers.clients.values() if client.running]
        servers = [server for server in self.servers.processes.values() if server.lives]
        ready = all(process.ready for process in [*clients, *servers])
        return ready and self._all_members() and (self._log is None or self._has_shard())

    def _has_shard(self) -> bool:
        """Whether a shard is live; where failures finalize shards, add one."""
        view = self._view()
        return view is not None and (any(map(_is_live, view.shards)) or self._make_shards())

    def _commits(self, name: str) -> None:
        with logdb.connect(self.servers.address(name), timeout=LIVES_S) as db:
            db.put(ALIVE, name.encode())

    def _end_clients(self) -> None:
        for client in [client for client in self.servers.clients.values() if client.running]:
            code = client.end(LIVES_S)
            if code != 0:
                self._report(f"{client.name} ended with {code}: {client.log[-3000:]}")

    def _end(self, entries: list[Entry]) -> End:
        """Read the final state of the database."""
        doubtful = [entry.txn for entry in entries if entry.status == "info" and entry.txn]
        assert self._follower is not None
        with logdb.connect(self.servers.endpoints, timeout=LIVES_S) as db:
            settled = {txn: db.outcome(txn) for txn in doubtful}
            version, oldest = db.version, db.oldest_version
            results = list(db.watch(since=oldest, timeout=0))
            state = _in_history_form(dict(db.at(version=version).scan()))
        if not self._follower.reach(results[-1].version, LIVES_S):
            self._report(f"the feed of {self._follower.version} does not go on: {self._follower.failure}")
        elif [seen for seen in self._follower.seen if oldest < seen.version <= results[-1].version] != results:
            self._report("the feed that was followed differs from the one that is there")
        commits = [(change.version, change.label, _in_history_form(change.changes)) for change in self._follower.seen]
        end = End(version, commits, state, settled, oldest)
        end.reads_ahead = not self.servers.is_cluster
        end.states = [self._state_of(process, version) for process in self.servers.having("mapping")]
        return end

    def _state_of(self, target: Process, version: int) -> dict[bytes, bytes]:
        """The state as this one of several equal servers returns it. The others run: it may lag, and reads large values
        from the log."""
        rows: dict[bytes, bytes] = {}
        with self.servers.application_of(target) as application:
            page = calls.Page(version, (), b"")
            while page.rest is not None:
                page = application.call(calls.Scan(page.rest or None, consistency=calls.SNAPSHOT, version=version))
                rows.update(page.rows)
        return _in_history_form(rows)

    def _history(self) -> list[Entry]:
        entries = load(map(self.servers.history, self.servers.clients))
        for entry in entries:
            self.tally.results[entry.f, entry.error.get("error", "") or entry.status] += 1
        return entries

    def _judge_log(self) -> None:
        assert self._log is not None
        entries = self._history()
        try:
            found = everything(self._log, LIVES_S)
            check_log(entries, found)
        except Failure as failure:
            self._report(f"{failure.check}: {failure}")
        self.report(f"{len(entries)} operations judged")

    def _judge(self) -> None:
        entries = self._history()
        end = self._end(entries)
        self.tally.commits += len(end.commits)
        end.commits = [commit for commit in end.commits if commit[2]]
        for problem in judge(entries, end):
            self._report(problem)
        self.report(f"{len(entries)} operations, {len(end.commits)} commits judged")


def _is_live(config: ConfiguredShard) -> bool:
    return config.state is ShardState.LIVE


def _in_history_form(items: Mapping[bytes, Any]) -> dict[bytes, Any]:
    """The same as in histories, without the keys that the nemesis itself wrote."""
    shown = {key: text_of(key.decode(), value) for key, value in items.items() if key != ALIVE}
    return {key: None if text is None else text.encode() for key, text in shown.items()}
