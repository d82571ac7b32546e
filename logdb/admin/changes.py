"""Changes of a cluster: adding and finalizing shards, replacing servers, starting a whole cluster.

Each change can be repeated after an interruption: a part that is done is not done twice. If the cluster's servers run
on this machine, missing servers are started; otherwise the error names their number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from logdb.admin.layout import Layout
from logdb.admin.processes import POLL_S, StartedServers, running
from logdb.admin.server_query import Answer, ask
from logdb.admin.status import ClusterStatus, KnownServer, observe
from logdb.clients.background_loop import in_shared_loop
from logdb.clients.log_client import Connection, RemoteLog
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import LogFailed
from logdb.log.requests import Configuration, ConfiguredServer
from logdb.security.credentials import NONE, Credentials
from logdb.system.addresses import role_in

TIMEOUT_S: Final = 60.0
"""Maximum time of a change, and for spare servers to register."""
CONNECT_S: Final = 5.0

Progress = Callable[[str], AbstractContextManager[Callable[[int, int | None], None]]]
"""A progress bar with that title; its function is called with the progress and the total."""


@contextmanager
def without_progress(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """None."""
    yield lambda done, of: None


Enough = Callable[[Configuration], bool]


def never(view: Configuration) -> bool:
    """Whether the view suffices: False for every view."""
    return False


class Operator:
    """Operates the cluster at `endpoints`, or the one whose directory is `layout`, whose servers it can start.
    `progress`: shows the progress. `credentials`: for the servers."""

    def __init__(
        self,
        endpoints: Sequence[str],
        layout: Layout | None,
        progress: Progress = without_progress,
        credentials: Credentials = NONE,
    ) -> None:
        self._endpoints, self._layout, self._progress, self._credentials = endpoints, layout, progress, credentials

    @property
    def is_local(self) -> bool:
        """Whether the cluster's directory is on this machine."""
        return self._layout is not None

    # ---- looking

    def status(self) -> ClusterStatus:
        """The status of the cluster. Raises Unavailable if no server answers at the endpoints."""
        name = self._layout.file.name if self._layout else ""
        return in_shared_loop(observe(self._known(), name, self._credentials))

    def _known(self) -> list[KnownServer]:
        if self._layout is None:
            return [KnownServer(endpoint, "") for endpoint in self._endpoints]
        servers = self._layout.file.servers.values()
        processes = running(self._layout)
        return [KnownServer(one.address, one.role, one.name, processes.get(one.name)) for one in servers]

    # ---- the whole

    def bring_up(self) -> list[str]:
        """Start the servers that do not run, add the first shards of a new cluster, and wait until the cluster uses
        all started servers. Returns their names. On an error, or Ctrl-C, it stops them again. Raises Unavailable,
        OSError."""
        assert self._layout is not None
        up = running(self._layout)
        missing = [node for node in self._layout.file.nodes.values() if node.name not in up]
        started = StartedServers(self._layout, self._credentials)
        try:
            with self._progress("starting servers") as tick:
                started.start(missing, tick)
            with self._log() as log, self._progress("adding shards") as tick:
                self._add_first_shards(log, self._layout, tick)
            with self._progress("registering servers") as tick:
                self._await_registration({node.name for node in missing}, tick)
        except BaseException:
            started.end()
            raise
        return [node.name for node in missing]

    def _add_first_shards(self, log: RemoteLog, layout: Layout, tick: Callable[[int, int | None], None]) -> None:
        """Add shards up to the configured number. Shard numbers are never reused, so they count all that were added."""
        while (made := _view(log).next_shard - 1) < layout.file.shards:
            tick(made, layout.file.shards)
            self._spares(log, layout.members_per_shard)
            log.add_shard()
        tick(made, made)

    def _await_registration(self, names: set[str], tick: Callable[[int, int | None], None]) -> None:
        """Return when the cluster uses all servers of these processes. Raises Unavailable after TIMEOUT_S."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            servers = [one for one in self.status().servers if one.name in names]
            waiting = [one for one in servers if not one.registered]
            tick(len(servers) - len(waiting), len(servers))
            if not waiting:
                return
            if time.monotonic() > deadline:
                one = waiting[0]
                raise Unavailable(f"{one.role} {one.name} has not joined within {TIMEOUT_S:g} s: {one.state}")
            time.sleep(POLL_S)

    # ---- shards and servers

    def add_shard(self, servers: Sequence[str] = ()) -> int:
        """Add a shard of these spares (numbers, names or addresses), or of any; on this machine, missing spares are
        started. Returns its number. Raises Unavailable, ValueError."""
        with self._log() as log:
            if servers:
                return log.reconfigure(calls.AddShard(tuple(self._chosen(log, servers))))
            before = _view(log).next_shard
            if self._layout is None:
                return log.add_shard()
            size = self._layout.members_per_shard
            spares = self._spares_started(log, size, lambda view: view.next_shard > before)
            try:
                if len(spares) == size:
                    return log.reconfigure(calls.AddShard(tuple(spares)))
            except Unavailable:
                if _view(log).next_shard == before:
                    raise
            return _view(log).next_shard - 1  # the log itself was waiting for servers, and has used these

    def finalize_shard(self, shard: int, grace: int) -> None:
        """Stop appends to a shard, after `grace` more cuts. Raises Unavailable."""
        with self._log() as log:
            log.finalize_shard(shard, grace)

    def add_replica(self, shard: int) -> int:
        """Add a server, which may be started for it, to a finalized shard. Returns its number. Raises Unavailable."""
        with self._log() as log:
            config = next((one for one in _view(log).shards if one.shard == shard), None)
            wanted = self._layout is not None and config is not None and config.state is calls.ShardState.FINALIZED
            by = self._spares_started(log, 1)[0] if wanted else 0  # else it is refused, and says why
            return log.reconfigure(calls.AddReplica(shard, by))

    def set_cut_interval(self, seconds: float) -> None:
        """The least time between two cuts. Raises Unavailable."""
        with self._log() as log:
            log.set_cut_interval(seconds)

    def replace_server(self, which: str) -> tuple[int, int, int]:
        """Put a spare server, a new one if need be, in the place of this one: its number, name or address. Returns
        (who was replaced, by whom, of which shard). Raises Unavailable, ValueError."""
        with self._log() as log:
            before = _view(log)
            shard, server = self._member(before, which)
            if self._layout is None:
                return server, log.reconfigure(calls.ReplaceServer(server, 0)), shard

            def joined(view: Configuration) -> list[int]:
                """The servers that have come to the shard meanwhile."""
                return sorted(_members(view, shard) - _members(before, shard))

            spares = self._spares_started(log, 1, lambda view: bool(joined(view)))
            try:
                if spares:
                    return server, log.reconfigure(calls.ReplaceServer(server, spares[0])), shard
            except Unavailable:
                if not joined(_view(log)):
                    raise
            return server, joined(_view(log))[0], shard  # the log itself was waiting for a server, and has used it

    def _member(self, view: Configuration, which: str) -> tuple[int, int]:
        """(shard, server); the newest one that is at that address."""
        members = [(shard.shard, member) for shard in view.shards for member in shard.members]
        for shard, member in sorted(members, key=lambda found: found[1].server, reverse=True):
            if self._is(member, which):
                return shard, member.server
        why = f"{which} is not a server of a shard"
        if any(self._is(spare, which) for spare in view.spares):
            why = f"{which} is a spare"
        elif self._layout is not None and (self._layout.storage, which) in self._layout.file.servers:
            why += ": if it was dropped after a failure, `logdb cluster up` starts it as a spare, which takes its place"
        raise ValueError(f"{why}; the shards have {_listed([member for _, member in members])}")

    def _is(self, member: ConfiguredServer, which: str) -> bool:
        """Whether this is the number, name or address of a server."""
        if self._layout is not None and (self._layout.storage, which) in self._layout.file.servers:
            return member.address == self._layout.file.servers[self._layout.storage, which].address
        return which in (str(member.server), member.address)

    def _log(self) -> RemoteLog:
        """The cluster's log, for changes. Raises Unavailable."""
        endpoints = self._endpoints if self._layout is None else self._layout.endpoints
        return RemoteLog(in_shared_loop(Connection.open(endpoints, CONNECT_S, self._credentials)), TIMEOUT_S)

    # ---- spares

    def _chosen(self, log: RemoteLog, which: Sequence[str]) -> list[int]:
        """The ids of the named spares, when they have registered. Raises ValueError."""
        deadline = time.monotonic() + CONNECT_S
        while True:
            spares = _view(log).spares
            found = {one: spare.server for one in which for spare in spares if self._is(spare, one)}
            missing = [one for one in which if one not in found]
            if not missing:
                return list(found.values())
            if time.monotonic() > deadline:
                raise ValueError(f"{missing[0]} is not a spare server; there are {_listed(spares)}")
            time.sleep(POLL_S)

    def _spares_started(self, log: RemoteLog, count: int, enough: Enough = never) -> list[int]:
        """The same; servers that are down, and then new ones, are started if there are fewer. On an error, or Ctrl-C,
        those that hold no records are stopped and removed again. Raises AccessDenied before, if that is not for this
        client to do."""
        assert self._layout is not None
        log.require(calls.Reconfigure)
        if not self._layout.has_storage_servers:
            engine = self._layout.file.engine.name
            raise Unavailable(f"the founders of a log on {engine} hold all of its records: no server can be added")
        servers = [one for (role, _), one in self._layout.file.servers.items() if role == self._layout.storage]
        view = _view(log)
        members = {member.address for shard in view.shards for member in shard.holders}
        alive = self._alive(view.spares)
        up = running(self._layout)
        separate = [one for one in servers if one.name not in up and not role_in(one.address)]
        idle = [one for one in separate if one.address not in members]
        wanted = [one.name for one in idle][: max(0, count - len(alive))]
        new = self._layout.add_storage(max(0, count - len(alive) - len(wanted)))
        started = StartedServers(self._layout, self._credentials)
        try:
            with self._progress("starting servers") as tick:
                started.start([self._layout.file.node(self._layout.storage, name) for name in wanted + new], tick)
            return self._spares(log, count, enough)
        except BaseException:
            kept = self._holding(log, wanted + new)
            started.end(keep=kept)
            kept |= self._holding(log, new)  # the log may have used one of them just before it ended
            self._layout.remove([name for name in new if name not in kept])
            raise

    def _holding(self, log: RemoteLog, names: Sequence[str]) -> set[str]:
        """The storage servers of `names` that the log may have used for a shard meanwhile: all, if it does not answer
        now."""
        assert self._layout is not None
        try:
            view: Configuration = log.call(calls.View(), CONNECT_S)
        except (TimeoutError, LogFailed, Unavailable):
            return set(names)
        used = {holder.address for shard in view.shards for holder in shard.holders}
        return {name for name in names if self._layout.file.server(self._layout.storage, name).address in used}

    def _spares(self, log: RemoteLog, count: int, enough: Enough = never) -> list[int]:
        """The ids of `count` running spares, when they have registered; fewer if the view is `enough`. Raises
        Unavailable."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            view = _view(log)
            alive = self._alive(view.spares)
            if len(alive) >= count or enough(view):
                return alive[:count]
            if time.monotonic() > deadline:
                what = f"{count} spare servers are needed, and {len(alive)} answer"
                raise Unavailable(f"{what} (`logdb cluster status` says why)")
            time.sleep(POLL_S)

    def _ask(self, address: str) -> Coroutine[Any, Any, Answer]:
        return ask(address, "", credentials=self._credentials)

    def _alive(self, spares: Sequence[ConfiguredServer]) -> list[int]:
        return [spare.server for spare in spares if in_shared_loop(self._ask(spare.address)).serving]


def _view(log: RemoteLog) -> Configuration:
    """The newest configuration. Raises Unavailable."""
    try:
        view: Configuration = log.call(calls.View(), TIMEOUT_S)
    except TimeoutError as error:
        raise Unavailable(f"no leader of the ordering layer has answered within {TIMEOUT_S:g} seconds") from error
    return view


def _members(view: Configuration, shard: int) -> set[int]:
    return {member.server for one in view.shards if one.shard == shard for member in one.members}


def _listed(members: Sequence[ConfiguredServer]) -> str:
    return ", ".join(f"{member.server} at {member.address}" for member in members) or "none"
