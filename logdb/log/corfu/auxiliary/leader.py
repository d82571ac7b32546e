"""The leader of the auxiliary, besides Paxos: it follows the reports of units and sequencers, and begins new epochs.

All of its state is soft: a new leader starts without it and learns from the next reports. Two leaders may seal the same
epoch at the same time: both know everything that was written in it, and one of their commands takes effect (COR-4).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from logdb.cores.effects import Address, Effect, Send
from logdb.log.corfu.auxiliary import commands as c
from logdb.log.corfu.auxiliary.chains import kept_of, without_silent
from logdb.log.corfu.auxiliary.config import AuxiliaryConfig
from logdb.log.corfu.auxiliary.state import ProjectionState, Server
from logdb.log.corfu.messages import ChangeRequest, Report, Seal, Sealed, SequencerReport, Update
from logdb.log.corfu.projection import ShardConfig, Unit


class Sealing:
    """An epoch that is being sealed. `answers`: by unit. `until`: when units that did not answer are left out."""

    __slots__ = ("answers", "epoch", "until")

    def __init__(self, epoch: int, until: int) -> None:
        self.epoch, self.until = epoch, until
        self.answers: dict[int, Sealed] = {}


class Leader:
    """`commands`: to be proposed. `waiting`: the clients whose changes are not applied yet. `is_ticking`: its timer is
    set."""

    def __init__(self, config: AuxiliaryConfig, out: list[Effect], now: int) -> None:
        self._config, self._out = config, out
        self.commands: list[c.Command] = []
        self.waiting: dict[int, Address] = {}
        self.is_ticking = False
        self._began_at = self._looked_at = now
        self._reports: dict[int, tuple[Report, int]] = {}
        self._sequencers: dict[Address, tuple[SequencerReport, int]] = {}
        self._changes: dict[int, ChangeRequest] = {}
        self._sealing: Sealing | None = None
        self._proposed: dict[Any, int] = {}

    def last(self) -> int:
        """The GSN of the last record, as far as reported."""
        return max([0, *(report.last for report, _ in self._reports.values())])

    def _propose(self, key: Any, command: c.Command, now: int) -> None:
        """Propose a command, but not again before it had time to be chosen."""
        if self._proposed.get(key, 0) <= now:
            self._proposed[key] = now + 4 * self._config.heartbeat_ns
            self.commands.append(command)

    # ---- reports

    def on_report(self, report: Report, sender: Address, state: ProjectionState, now: int) -> None:
        """A storage unit reports its state."""
        server = state.server_of(report.nonce)
        if server is None:
            self._propose(report.nonce, c.Register(report.nonce, sender), now)
            return
        self._reports[server.server] = report, now
        if report.version < state.version or report.server != server.server or server.is_gone:
            self._update(server, state, now)
        config = state.shards.get(server.shard)
        if config is None or not config.has(server.server):
            return
        copied = c.Copied(server.server, report.copied)
        first = next((unit for unit in config.units if unit.since), None)
        if first is not None and (first.server, first.since) == copied:
            self._propose(copied, copied, now)
        decided = c.Decided(config.shard, self._decided(config))
        if decided.position > state.decided.get(config.shard, 1):
            self._propose(("decided", config.shard), decided, now)

    def _decided(self, config: ShardConfig) -> int:
        """The position before which all units of a chain have the entries; 0: not all have reported to this leader. Of
        a unit that is silent, its last report counts: it has what it had."""
        if config.holds_streams or any(unit.server not in self._reports for unit in config.units):
            return 0
        return min([self._reports[unit.server][0].decided for unit in config.units], default=0)

    def on_sequencer(self, report: SequencerReport, sender: Address, state: ProjectionState, now: int) -> None:
        """A sequencer reports for which epoch it assigns positions."""
        self._sequencers[sender] = report, now
        if report.epoch < state.epoch:
            self._out.append(Send(sender, Update(0, report.nonce, state.view(), False)))

    def _update(self, server: Server, state: ProjectionState, now: int) -> None:
        is_released = server.is_gone and not self._is_needed(server, state, now)
        self._out.append(Send(server.address, Update(server.server, server.nonce, state.view(), is_released)))

    def _is_needed(self, server: Server, state: ProjectionState, now: int) -> bool:
        """Whether a unit that has left its shard must keep its entries, since too few units are complete. If these are
        enough to go on, and no other unit can join, only the unit itself can, once it is empty."""
        config = state.shards.get(server.shard)
        if config is None or all(unit.server != server.server for unit in config.former):
            return False
        can_join = bool(config.joining or self._spares(state, now)) or not self._is_settled(now)
        return can_join or len(config.complete) < config.least

    def on_applied(self, command: c.Command, state: ProjectionState, now: int) -> None:
        """A command was applied: send the projection to those that wait for it."""
        self._changes = {number: one for number, one in self._changes.items() if number not in state.results}
        if isinstance(command, c.NewEpoch):
            self._sealing = None
            for server in state.servers.values():
                if server.shard and self._is_alive(server.server, now):
                    self._update(server, state, now)
            found = self._sequencers.get(state.sequencer)
            if found is not None:
                self._out.append(Send(state.sequencer, Update(0, found[0].nonce, state.view(), False)))
            self.look(state, now)

    # ---- who is there

    def _is_alive(self, server: int, now: int) -> bool:
        found = self._reports.get(server)
        return found is not None and now < found[1] + self._config.suspect_after_ns

    def _is_settled(self, now: int) -> bool:
        """Whether every living server has had the time to report to this leader."""
        return now >= self._began_at + self._config.suspect_after_ns

    def _may_be_alive(self, server: int, now: int) -> bool:
        """Whether the server reports, or has not had the time to."""
        return self._is_alive(server, now) or not self._is_settled(now)

    def _spares(self, state: ProjectionState, now: int) -> list[int]:
        return [one.server for one in state.spares() if self._is_alive(one.server, now)]

    def _living_sequencers(self, now: int) -> dict[Address, int]:
        """The nonces of the sequencers that report, by address."""
        oldest = now - self._config.suspect_after_ns
        return {address: one.nonce for address, (one, at) in sorted(self._sequencers.items()) if at > oldest}

    def _has_sequencer(self, state: ProjectionState, now: int) -> bool:
        return bool(state.nonce) and self._living_sequencers(now).get(state.sequencer) == state.nonce

    # ---- changes

    def on_change(self, request: ChangeRequest, state: ProjectionState, now: int) -> None:
        """A client requests a change."""
        if not request.request:
            return  # a command with request 0 carries out no change
        if request.kind == "Trim" and len(request.numbers) == 1:
            self._propose(request.request, c.Trim(request.request, *request.numbers), now)
            return
        numbers = self._with_spares(request, state, now)
        error = state.error_of(request.kind, numbers)
        if not error:
            self._changes[request.request] = request
            self.look(state, now)
        elif self._is_settled(now) or all(self._is_alive(one.server, now) for one in state.spares()):
            self._propose(request.request, c.Reject(request.request, error), now)
        # Else a spare may still report, and the client repeats its request.

    def _with_spares(self, request: ChangeRequest, state: ProjectionState, now: int) -> tuple[int, ...]:
        """The fields of a change, with spare units where the client has named none; 0 if there are too few."""
        spares = self._spares(state, now)
        match request.kind, request.numbers:
            case (("AddShard" | "AddStreamShard"), servers):
                chosen = servers or tuple(spares[: self._config.units])
                is_enough = len(chosen) >= self._config.units or (servers and request.kind == "AddStreamShard")
                return chosen if is_enough else ()
            case (("ReplaceServer" | "AddReplica"), (number, 0)):
                return (number, *spares[:1]) if spares else (number, 0)
        return request.numbers

    # ---- epochs

    def look(self, state: ProjectionState, now: int) -> None:
        """Begin to seal the epoch if something must change, or propose the next one when the units have answered."""
        if now > self._looked_at + self._config.suspect_after_ns:
            self._began_at = now  # it was suspended: the reports of this time are still to come
        self._looked_at = now
        if self._sealing is not None and self._sealing.epoch != state.epoch:
            self._sealing = None
        for change in list(self._changes.values()):
            if error := state.error_of(change.kind, self._with_spares(change, state, now)):
                del self._changes[change.request]
                self._propose(change.request, c.Reject(change.request, error), now)
        if self._sealing is None:
            if not self._must_change(state, now) or not self._can_change(state, now):
                return
            self._sealing = Sealing(state.epoch, now + self._config.suspect_after_ns)
            self._seal(self._sealing, state.shards.values())
        self._finish(self._sealing, state, now)

    def on_timer(self, state: ProjectionState, now: int) -> None:
        """Repeat what was not answered."""
        self.is_ticking = False
        self._proposed = {key: until for key, until in self._proposed.items() if until > now}
        if self._sealing is not None:
            self._seal(self._sealing, state.shards.values())
        self.look(state, now)

    def _must_change(self, state: ProjectionState, now: int) -> bool:
        """Whether the epoch must end: for a change, a lost server, a spare that can join, or since another leader has
        begun to seal it."""
        if self._changes:
            return True
        if not self._has_sequencer(state, now) and self._living_sequencers(now):
            named = self._sequencers.get(state.sequencer)
            if not state.nonce or (named is not None and named[0].nonce != state.nonce) or self._is_settled(now):
                return True  # there was none, it has restarted, or it is silent
        living = {server for server in self._reports if self._is_alive(server, now)}
        spares = len(self._spares(state, now))
        for config in state.shards.values():
            kept = kept_of(config, living)
            if not config.holds_streams and not (kept and state.is_enough(config, len(kept) + spares)):
                if state.is_over(config) and self._is_settled(now) and without_silent(config, living) != config.units:
                    return True
                continue  # nothing else can be changed for it
            if any(self._is_wrong(unit, state, now) for unit in config.units):
                return True
            if kept and any(unit.server in living and unit not in kept for unit in config.units):
                return True
            if len(config.members) < config.size and spares:
                return True
            if kept and kept[0].since and any(one.is_sealed and one.server not in living for one in config.former):
                return True  # the entries that it would be copied from are elsewhere, too
        return False

    def _is_wrong(self, unit: Unit, state: ProjectionState, now: int) -> bool:
        """Whether a unit is silent, or another leader has begun to seal it."""
        found = self._reports.get(unit.server)
        return not self._may_be_alive(unit.server, now) or (found is not None and found[0].sealed >= state.epoch)

    def _can_change(self, state: ProjectionState, now: int) -> bool:
        """Whether an epoch can begin: otherwise sealing would only stop the appends."""
        living = {server for server in self._reports if self._is_alive(server, now)}
        return self._joins(state, living, self._spares(state, now)) is not None

    def _joins(
        self, state: ProjectionState, servers: Collection[int], spares: list[int]
    ) -> tuple[tuple[int, int], ...] | None:
        """The spare unit for each place of a chain that these servers leave open; first for the chains that would be
        too short. None: a live shard would be too short, or lose entries (COR-5)."""
        joins: list[tuple[int, int]] = []
        kept = {config.shard: kept_of(config, servers) for config in state.shards.values()}

        def is_short(config: ShardConfig) -> bool:
            return not state.is_enough(config, len(kept[config.shard]))

        spares = spares.copy()
        for config in sorted(state.shards.values(), key=is_short, reverse=True):
            units = kept[config.shard]
            if config.is_live and not config.holds_streams and not units:
                return None
            staying = [unit for unit in units if not unit.is_leaving]
            count = max(0, config.size - len(staying)) if units or config.holds_streams else 0
            joins += [(config.shard, server) for server in spares[:count]]
            if config.is_live and not state.is_enough(config, len(units) + min(count, len(spares))):
                return None
            del spares[:count]
        return tuple(joins)

    def _seal(self, sealing: Sealing, shards: Iterable[ShardConfig]) -> None:
        for config in shards:
            for server, address in config.disks.items():
                if server not in sealing.answers:
                    self._out.append(Send(address, Seal(sealing.epoch)))

    def on_sealed(self, answer: Sealed, state: ProjectionState, now: int) -> None:
        """A unit rejects an epoch."""
        if self._sealing is not None and answer.epoch >= self._sealing.epoch == state.epoch:
            self._sealing.answers[answer.server] = answer
            self.look(state, now)

    def _finish(self, sealing: Sealing, state: ProjectionState, now: int) -> None:
        answers = sealing.answers
        for config in state.shards.values():
            is_complete = any(not unit.since and unit.server in answers for unit in config.units)
            needed = [unit.server for unit in config.units] if is_complete else config.disks
            waits_for = [server for server in needed if server not in answers]
            if now < sealing.until and any(self._may_be_alive(server, now) for server in waits_for):
                return
        living = self._living_sequencers(now)
        sequencer = state.sequencer if self._has_sequencer(state, now) else next(iter(living), "")
        spares = self._spares(state, now)
        request, kind = 0, ""
        numbers: tuple[int, ...] = ()
        for change in self._changes.values():
            numbers = self._with_spares(change, state, now)
            if not state.error_of(change.kind, numbers):
                request, kind = change.request, change.kind
                break
            numbers = ()
        joins = self._joins(state, answers, [one for one in spares if one not in numbers])
        if joins is None and numbers:  # the chains need the spare units themselves
            request, kind, numbers = 0, "", ()
            joins = self._joins(state, answers, spares)
        if joins is None:
            return
        in_chains = {unit.server for config in state.shards.values() for unit in config.units}
        found = [answer for answer in answers.values() if answer.server in in_chains]
        decided = [(config.shard, self._decided(config)) for config in state.shards.values()]
        command = c.NewEpoch(
            state.epoch,
            tuple(sorted(answers)),
            max([0, *(one.highest for one in found)]),
            max([0, *(one.last for one in found)]),
            max([0, *(one.time for one in found)]),
            sequencer,
            living.get(sequencer, 0),
            joins,
            request,
            kind,
            numbers,
            tuple([(shard, position) for shard, position in decided if position]),
        )
        self._propose(("epoch", state.epoch), command, now)
