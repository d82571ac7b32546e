"""The leader of the MMS, besides Paxos: it follows the reports of the servers, and proposes commands.

All of it is soft state: a new leader begins with nothing and learns from the next reports.
"""

from __future__ import annotations

from typing import Any

from logdb.cores.effects import SECOND, Address, Effect, Send
from logdb.log.ziplog.messages import ChangeRequest, Freeze, Member, Report, ShardConfig, Update
from logdb.log.ziplog.mms import commands as c
from logdb.log.ziplog.mms.config import MmsConfig
from logdb.log.ziplog.mms.state import MembershipState


class Leader:
    """`commands`: to be proposed. `waiting`: the clients whose changes are not applied yet. `stable`: by shard.

    `is_ticking`: its timer is set. `epoch_at`: when the next epoch begins, if one is needed. `proposed`: when each
    command may be proposed again.
    """

    def __init__(self, config: MmsConfig, out: list[Effect], now: int) -> None:
        self._config, self._out = config, out
        self.commands: list[c.Command] = []
        self.waiting: dict[int, Address] = {}
        self.stable: dict[int, int] = {}
        self.is_ticking = False
        self.epoch_at: int | None = None
        self.epoch_timer_at = 0
        self._began_at = self._epoch_began_at = self._counted_from = now
        self._epoch_base = 0
        self._reports: dict[int, tuple[Report, int]] = {}
        self._known_since: dict[int, int] = {}  # by server, as far as this leader has seen
        self._records: dict[int, int] = {}
        self.proposed: dict[Any, int] = {}

    # ---- proposing

    def _propose(self, key: Any, command: c.Command, now: int) -> None:
        """Propose a command, but not again before it had time to be chosen."""
        if self.proposed.get(key, 0) <= now:
            self.proposed[key] = now + 4 * self._config.heartbeat_ns
            self.commands.append(command)

    def on_change(self, request: ChangeRequest, state: MembershipState, now: int) -> None:
        """A client requests a change."""
        number = request.request
        match request.kind, request.numbers:
            case "AddShard", servers:
                chosen = servers or tuple(self._spares(state, now)[: self._config.members])
                if len(chosen) < self._config.members:
                    if now < self._began_at + self._config.suspect_after_ns:
                        return  # servers have not reported to this leader yet; the client requests it again
                    chosen = ()
                self._propose(number, c.AddShard(now, number, chosen), now)
            case "FinalizeShard", (shard, _):
                self._propose(number, c.FinalizeShard(now, number, shard), now)
            case "ReplaceServer", (server, by):
                if (spare := self._spare(by, state, now)) is not None:
                    self._propose(number, c.ReplaceServer(now, number, server, spare), now)
            case "AddReplica", (shard, by):
                if (spare := self._spare(by, state, now)) is not None:
                    self._propose(number, c.AddReplica(now, number, shard, spare), now)
            case "SetCutInterval", (interval_ns,):
                self._propose(number, c.SetInterval(now, number, interval_ns), now)
            case "Trim", (gsn,):
                self._propose(number, c.Trim(now, number, gsn), now)

    def _is_alive(self, server: int, now: int) -> bool:
        found = self._reports.get(server)
        return found is not None and now < found[1] + self._config.suspect_after_ns

    def _spare(self, server: int, state: MembershipState, now: int) -> int | None:
        """The spare server with this number, or any (0). Returns 0 if there is none; None if servers have not had the
        time to report to this leader yet, as one that has just been registered: the client requests its change again.
        """
        spares = self._spares(state, now)
        if server in spares or (spares and not server):
            return server or spares[0]
        since = self._known_since.get(server, now) if server in state.servers else self._began_at
        return server if now >= since + self._config.suspect_after_ns else None

    def _spares(self, state: MembershipState, now: int) -> list[int]:
        """Spare servers that answer, and have nothing of an earlier shard."""
        return [
            one.server
            for one in state.servers.values()
            if not one.shard and not one.is_gone and self._is_alive(one.server, now)
            if not self._reports[one.server][0].shard
        ]

    # ---- servers

    def on_report(self, report: Report, sender: Address, state: MembershipState, now: int) -> None:
        """A server reports its state."""
        if report.nonce in state.lost:
            return  # it comes late: what it reports was on the disk that is lost (ZIP-11)
        server = next((one for one in state.servers.values() if one.nonce == report.nonce), None)
        if server is None:
            self._register(report, sender, state, now)
            return
        self._reports[server.server] = report, now
        config = state.shards.get(server.shard)
        if report.change < state.change or report.server != server.server:
            self._update(server.server, state)
        if config is None or report.shard != config.shard or report.view != config.view:
            return
        member = next((one for one in config.members if one.server == server.server), None)
        if member is None:
            return
        self.stable[config.shard] = max(report.stable, self.stable.get(config.shard, 0))
        self._count(report, state, now)
        if report.is_synced and not member.is_synced:
            self._propose(("synced", server.server, config.view), c.Synced(now, *config[:2], server.server), now)
        if self._has_drained(config, report):
            self._propose(("drained", config.shard), c.Drained(now, *config[:2]), now)
        if report.is_frozen:
            self._recover(config, report, server.server, state, now)
        elif report.suspects and (config.is_in_set or (config.is_established and self._is_noted(config, state))):
            self._freeze(config)
        self._open(state, now)

    @staticmethod
    def _has_drained(config: ShardConfig, report: Report) -> bool:
        """Whether a shard that was finalized has no more records. A member knows by then that it has left the set: a
        client of the set in which it was finds no tail any more (ZIP-6)."""
        is_over = report.stable >= config.bound - 1 and report.epoch >= config.bound
        return config.is_draining and not config.is_drained and not config.joining and is_over

    def _register(self, report: Report, address: Address, state: MembershipState, now: int) -> None:
        """Register a server with a new disk, once it has answered with the number of the next change. The report of a
        disk that was lost before comes too late for that (ZIP-11)."""
        newest = max([0, *(one.since for one in state.servers.values() if one.address == address)])
        if report.change > newest:
            self._propose(report.nonce, c.Register(now, report.nonce, address, report.change), now)
        else:
            self._out.append(Send(address, Update(state.change + 1, 0, report.nonce, None)))

    def _is_noted(self, config: ShardConfig, state: MembershipState) -> bool:
        """Whether shards that have joined wait for a member of this one."""
        members = {member.server for member in config.members}
        return any(members.intersection(noted) for _, noted in state.barriers)

    def _update(self, server: int, state: MembershipState) -> None:
        found = state.servers[server]
        update = Update(
            state.change,
            server,
            found.nonce,
            state.shards.get(found.shard),
            state.epoch,
            state.opened,
            state.oldest,
            state.left,
        )
        self._out.append(Send(found.address, update))

    def _freeze(self, config: ShardConfig) -> None:
        """Freeze the members from which the next view may begin."""
        for member in config.members:
            if member.is_complete:
                self._out.append(Send(member.address, Freeze(config.shard, config.view)))

    def _recover(self, config: ShardConfig, report: Report, source: int, state: MembershipState, now: int) -> None:
        """A server is frozen: the next view begins with it, if it may; else with another one."""
        known = (*config.members, *config.former)
        change = state.changing.get(config.shard)
        if config.is_drained and change is None:
            return
        leaving = change.leaving if change is not None else 0
        others = [one.server for one in known if one.server not in (source, leaving)]
        alive = [one for one in others if self._is_alive(one, now) and not state.servers[one].is_gone]
        sources = self._sources(config, state)
        if change is not None and self._has_better(config, sources, source, leaving, alive):
            return  # that one is frozen with the next tick
        if source not in sources:
            self._freeze(config)
            return
        spares = self._spares(state, now)
        if change is not None and change.joining in spares:
            spares = [change.joining, *(one for one in spares if one != change.joining)]
        silent = [one.server for one in config.members if one.server not in (source, leaving, *alive)]
        size = len(config.members) + (change is not None and not leaving)
        rest = [leaving, *silent] if leaving not in (0, source) else silent
        chosen = [source, *alive, *spares, *rest][:size]
        command = c.Recover(now, config.shard, config.view, report.stable, tuple(chosen))
        self._propose(("recover", config.shard, config.view), command, now)

    def _sources(self, config: ShardConfig, state: MembershipState) -> list[int]:
        """The servers with which the next view may begin: complete ones. One that may lack acknowledged records may be
        the source only if all others may lack some too, or have lost their disks (ZIP-12)."""
        complete = [one for one in (*config.members, *config.former) if one.is_complete]
        if config.has_records and not config.is_drained:
            having = [
                one
                for one in complete
                if not self._may_lack(config, one, state) and not state.servers[one.server].is_gone
            ]
            complete = having or complete
        return [one.server for one in complete]

    def _report_of(self, server: int, state: MembershipState) -> Report | None:
        """The report of a complete server; None if it has sent none since the last view of its shard was established.
        An earlier one that comes late says nothing: the server has served that view since."""
        report = self._reports[server][0] if server in self._reports else None
        if report is None or report.shard != state.servers[server].shard:
            return None
        return report if report.view >= state.established.get(report.shard, 0) else None

    def _may_lack(self, config: ShardConfig, member: Member, state: MembershipState) -> bool:
        """Whether a complete server may lack records that it has acknowledged. Nothing is acknowledged in a view before
        it is established, and what it begins with is durable at its source, and at members that are synced. A member
        that has not reported in this view may yet turn out to have everything."""
        is_former = member in config.former  # `is_synced` says then that it was synced in an earlier view
        if not config.is_established and not is_former and (member is config.members[0] or member.is_synced):
            return False
        report = self._report_of(member.server, state)
        return report is not None and report.may_lack and (report.view == config.view or is_former)

    @staticmethod
    def _has_better(config: ShardConfig, sources: list[int], source: int, leaving: int, alive: list[int]) -> bool:
        """Whether another member than `source` should be the next primary: the first possible one of those that stay,
        and are not silent."""
        stay = [one.server for one in config.members if one.server in sources and one.server in (source, *alive)]
        stay = [one for one in stay if one != leaving]
        return bool(stay) and stay[0] != source

    def _replace_all(self, config: ShardConfig, alive: list[int], state: MembershipState, now: int) -> None:
        """Begin the next view of a shard that never had records, with any servers that answer."""
        chosen = [*alive, *self._spares(state, now)][: len(config.members)]
        if len(chosen) == len(config.members):
            command = c.Recover(now, config.shard, config.view, 0, tuple(chosen), is_first=True)
            self._propose(("recover", config.shard, config.view), command, now)

    def _open(self, state: MembershipState, now: int) -> None:
        """Open the shards that have joined when all noted servers have entered."""
        passed = 0
        for version, noted in state.barriers:
            if not all(self._has_entered(server, version, state) for server in noted):
                break
            passed = version
        if passed:
            self._propose(("open", passed), c.Open(now, passed), now)

    def _has_entered(self, server: int, version: int, state: MembershipState) -> bool:
        """Whether a noted server has entered a version; or it cannot serve the view any more in which it was noted."""
        found = state.servers.get(server)
        if found is None or found.is_gone:
            return True
        report = self._report_of(server, state)
        return report is not None and (report.is_frozen or report.version >= version)

    # ---- epochs

    def _count(self, report: Report, state: MembershipState, now: int) -> None:
        """Measure rates, and begin the next epoch when one is needed."""
        self._records[report.shard] = self._records.get(report.shard, 0) + report.records
        if report.epoch != state.epoch.base or not (report.records or report.wanted):
            return
        interval = state.interval_ns // 4 if report.wanted else state.interval_ns
        due = max(now, self._epoch_began_at + interval)
        self.epoch_at = due if self.epoch_at is None else min(due, self.epoch_at)

    def on_applied(self, state: MembershipState, now: int) -> None:
        """A command was applied: inform the servers at once of all that must not wait for their next report."""
        if state.epoch.base != self._epoch_base:
            self._epoch_base = state.epoch.base
            self._epoch_began_at = now
            self.epoch_at = None
        for server in state.servers:
            self._known_since.setdefault(server, now)
            if state.servers[server].is_gone:
                self._reports.pop(server, None)
            else:
                self._update(server, state)

    def on_timer(self, is_epoch: bool, state: MembershipState, now: int) -> None:
        """Begin an epoch, or look after shards that lack a member."""
        if is_epoch:
            if self.epoch_at is not None and self.epoch_at <= now:
                self.epoch_at = None
                self._propose(("epoch", state.epoch.base), c.NextEpoch(now, self._rates(state, now)), now)
            return
        self.is_ticking = False
        self.proposed = {key: until for key, until in self.proposed.items() if until > now}
        for config in state.shards.values():
            alive = [one.server for one in config.members if self._is_alive(one.server, now)]
            is_gone = any(state.servers[one.server].is_gone for one in config.members)
            is_lacking = is_gone or len(alive) < len(config.members)
            if config.shard in state.changing:
                self._freeze(config)
            if config.is_drained:
                continue
            sources = self._sources(config, state)
            former = [one.server for one in config.former if one.server in sources and self._is_alive(one.server, now)]
            if is_lacking and not config.has_records:
                self._replace_all(config, [one for one in alive if not state.servers[one].is_gone], state, now)
            elif former and not any(one.server in sources and one.server in alive for one in config.members):
                self._return(config, former, state, now)
            elif (is_gone and config.is_in_set) or (
                is_lacking and not config.is_in_set and (former or self._spares(state, now))
            ):
                self._freeze(config)
        self._open(state, now)

    def _return(self, config: ShardConfig, former: list[int], state: MembershipState, now: int) -> None:
        """Begin the next view with a server that was replaced: no complete member of this one answers."""
        for server in former:
            report = self._report_of(server, state)
            if report is not None and report.is_frozen and now >= self._began_at + self._config.suspect_after_ns:
                self._recover(config, report, server, state, now)
                return

    def _rates(self, state: MembershipState, now: int) -> tuple[tuple[int, int], ...]:
        """Records per second of each shard: half what was measured since the last epoch, half what was expected."""
        elapsed = max(1, now - self._counted_from)
        rates = []
        for shard, config in state.shards.items():
            if config.is_in_set:
                measured = self._records.get(shard, 0) * SECOND // elapsed
                rates.append((shard, (measured + state.rates.get(shard, measured)) // 2))
        self._records.clear()
        self._counted_from = now
        return tuple(rates)
