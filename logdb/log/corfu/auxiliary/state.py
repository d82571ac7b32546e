"""The state of the auxiliary after the commands up to a slot: the projection, and the storage units."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from logdb.cores.effects import Address, ProtocolViolation
from logdb.log.corfu.auxiliary import commands as c
from logdb.log.corfu.auxiliary.chains import covers, former_of, kept_of, without_silent
from logdb.log.corfu.projection import Former, Range, ShardConfig, Spare, Unit, View, position_of

REMEMBERED_RESULTS: Final = 1_000
"""Number of results of changes that are kept for repeated requests."""


@dataclass(slots=True)
class Server:
    """A storage unit. `nonce`: of its disk. `shard`: 0 for a spare. `is_gone`: it left its shard, or lost its disk."""

    server: int
    nonce: int
    address: Address
    shard: int = 0
    is_gone: bool = False


class Result(NamedTuple):
    """The result of a change: see `ChangeResponse`."""

    request: int
    result: int
    error: str


class ProjectionState:
    """For the fields see `View`. `decided`: by shard, the first position that is not known to be on all units of the
    chain: no entry before it can change any more."""

    def __init__(self) -> None:
        self.version = self.epoch = 1
        self.start = self.next_shard = self.oldest = 1
        self.time = self.last = self.nonce = 0
        self.sequencer: Address = ""
        self.ranges: list[Range] = []
        self.streams: list[Range] = []
        self.shards: dict[int, ShardConfig] = {}
        self.decided: dict[int, int] = {}
        self.servers: dict[int, Server] = {}
        self.results: dict[int, Result] = {}

    def apply(self, command: c.Command) -> Result | None:
        """Carry out a command. Returns the result of a client's change."""
        result = self._apply(command)
        if result is not None:
            self.results[result.request] = result
            while len(self.results) > REMEMBERED_RESULTS:
                del self.results[next(iter(self.results))]
        return result

    def _apply(self, command: c.Command) -> Result | None:
        match command:
            case c.Register():
                self._register(command)
            case c.NewEpoch():
                return self._begin_epoch(command)
            case c.Copied():
                self._copied(command)
            case c.Decided(shard, position):
                self._decide(shard, position)
            case c.Trim(request, gsn):
                if gsn > self.oldest:
                    self._trim(gsn)
                return Result(request, self.oldest, "")
            case c.Reject(request, error):
                return self.results.get(request) or Result(request, 0, error)
        return None

    # ---- storage units

    def _register(self, command: c.Register) -> None:
        if self.server_of(command.nonce) is not None:
            return
        for server in self.servers.values():
            if server.address == command.address and not server.shard:
                server.is_gone = True
        number = len(self.servers) + 1
        self.servers[number] = Server(number, command.nonce, command.address)
        self.version += 1

    def server_of(self, nonce: int) -> Server | None:
        """The storage unit with this disk."""
        return next((one for one in self.servers.values() if one.nonce == nonce), None)

    def spares(self) -> list[Server]:
        """Units without a shard."""
        return [one for one in self.servers.values() if not one.shard and not one.is_gone]

    def _release(self, unit: Unit) -> None:
        self.servers[unit.server].is_gone = True

    def _copied(self, command: c.Copied) -> None:
        """A unit is complete when those before it are: the head of a chain has all entries, or none of them has."""
        config = self.shards.get(self.servers[command.server].shard)
        at = next((at for at, one in enumerate(config.units) if one.since), None) if config is not None else None
        if config is None or at is None or (config.units[at].server, config.units[at].since) != command:
            return
        units = (*config.units[:at], config.units[at]._replace(since=0), *config.units[at + 1 :])
        former = () if not config.holds_streams and at + 1 >= config.size else config.former
        self.shards[config.shard] = config._replace(units=units, former=former)
        self.version += 1

    def _decide(self, shard: int, position: int) -> None:
        """Former units are of no use any more for a unit that joins later, nor needed, if the others are complete."""
        config = self.shards.get(shard)
        if config is None or position <= self.decided.get(shard, 1):
            return
        self.decided[shard] = position
        if config.former and not config.joining and len(config.complete) >= config.least:
            self.shards[shard] = config._replace(former=())
            self.version += 1

    # ---- epochs

    def _begin_epoch(self, command: c.NewEpoch) -> Result | None:
        """Begin the next epoch, unless another one has begun meanwhile or a shard would lose entries (COR-5)."""
        if command.epoch != self.epoch or (command.request and command.request in self.results):
            return None
        sealed, shards = set(command.sealed), {}
        start, time = max(self.start, command.highest + 1), max(self.time, command.time)
        for config in self.shards.values():
            kept = kept_of(config, sealed)
            joins = [server for shard, server in command.joins if shard == config.shard and self._is_spare(server)]
            is_possible = (kept and self.is_enough(config, len(kept) + len(joins))) or config.holds_streams
            if not is_possible and config.is_live:
                return None
            if is_possible:
                former = former_of(config, kept, sealed, self.epoch + 1, start, time)
                shards[config.shard] = config._replace(units=kept, former=former)
            else:
                is_over = self.is_over(config) and not config.holds_streams
                shards[config.shard] = config._replace(units=without_silent(config, sealed)) if is_over else config
        for number, config in self.shards.items():
            for unit in config.units:
                if unit not in shards[number].units:
                    self._release(unit)
        self.shards = shards
        self.epoch += 1
        self.version += 1
        self.start = start
        for shard, position in command.decided:
            if shard in self.shards:
                self.decided[shard] = max(self.decided.get(shard, 1), position)
        self.time, self.last = time, max(self.last, command.last)
        self.sequencer, self.nonce = command.sequencer, command.nonce
        result = self._change(command.request, command.kind, command.numbers) if command.request else None
        for shard, server in command.joins:
            found = self.shards.get(shard)  # None: trimmed away since the command was proposed
            if found is not None and len(found.members) < found.size and self._is_spare(server):
                self._join(shard, server)
        self._set_range(self.ranges, holds_streams=False)
        self._set_range(self.streams, holds_streams=True)
        return result

    def is_enough(self, config: ShardConfig, count: int) -> bool:
        """Whether the chain of a shard may have so few units. One that has fewer already may go on with these."""
        return count >= min(config.least, len(config.units))

    def is_over(self, config: ShardConfig) -> bool:
        """Whether nothing is left to decide in a shard, so that all complete units have the same."""
        last = max([at for at, one in enumerate(self.ranges) if config.shard in one.shards], default=-1) + 1
        end = self.ranges[last].first if last < len(self.ranges) else self.start
        return not config.is_live and self.decided.get(config.shard, 1) >= end

    def _join(self, shard: int, number: int, *, is_new: bool = False) -> None:
        """Add a spare to the end of a chain. Only in a new shard it lacks no entries. Positions that may not be
        decided yet are decided with it. A stream replica copies all that is older than the epoch."""
        server, config = self.servers[number], self.shards[shard]
        server.shard = shard
        since = self.start if config.holds_streams else self.decided.get(shard, 1)
        unit = Unit(number, server.address, 0 if is_new else since, joined=self.epoch)
        self.shards[shard] = config._replace(units=(*config.units, unit))

    def _set_range(self, ranges: list[Range], *, holds_streams: bool) -> None:
        """Begin a range if the live shards of this kind have changed."""
        shards = self.shards.values()
        live = tuple(sorted([one.shard for one in shards if one.is_live and one.holds_streams is holds_streams]))
        if (ranges[-1].shards if ranges else ()) == live:
            return
        if ranges and ranges[-1].first == self.start:
            ranges.pop()
        if not ranges or ranges[-1].shards != live:
            ranges.append(Range(self.start, live))

    def _is_spare(self, number: int) -> bool:
        server = self.servers.get(number)
        return server is not None and not server.shard and not server.is_gone

    # ---- changes

    def error_of(self, kind: str, numbers: tuple[int, ...]) -> str:
        """Why a change is not possible, "" if it is. Spare units must be chosen already."""
        match kind, numbers:
            case (("AddShard" | "AddStreamShard"), servers):
                if len(set(servers)) < len(servers):
                    return "a shard needs different servers"
                return "" if servers and all(map(self._is_spare, servers)) else "there are too few spare servers"
            case "FinalizeShard", (shard, _):
                return "" if shard in self.shards else f"unknown shard {shard}"
            case "ReplaceServer", (number, by):
                server = self.servers.get(number)
                if server is None or not server.shard or server.is_gone:
                    return f"server {number} is in no shard"
                members = self.shards[server.shard].members
                if all(unit.server != number for unit in members):
                    return f"server {number} is being replaced already"
                if len(members) == 1:
                    return f"server {number} is the only one of its shard"
                return "" if self._is_spare(by) else "there is no spare server"
            case "AddReplica", (shard, by):
                if shard not in self.shards:
                    return f"unknown shard {shard}"
                if self.shards[shard].is_live:
                    return f"shard {shard} is live: only a finalized one can have more replicas"
                return "" if self._is_spare(by) else "there is no spare server"
        return f"a log on Corfu does not offer {kind}"

    def _change(self, request: int, kind: str, numbers: tuple[int, ...]) -> Result:
        error = self.error_of(kind, numbers)
        if error:
            return Result(request, 0, error)
        result = 0
        match kind, numbers:
            case (("AddShard" | "AddStreamShard"), servers):
                result = self.next_shard
                self.next_shard += 1
                self.shards[result] = ShardConfig(result, (), len(servers), True, kind == "AddStreamShard")
                self.decided[result] = self.start
                for server in servers:
                    self._join(result, server, is_new=True)
            case "FinalizeShard", (shard, _):
                result = shard
                self.shards[shard] = self.shards[shard]._replace(is_live=False)
            case "ReplaceServer", (number, by):
                result, shard = by, self.servers[number].shard
                config = self.shards[shard]
                units = tuple([one._replace(is_leaving=one.server == number or one.is_leaving) for one in config.units])
                self.shards[shard] = config._replace(units=units)
                self._join(shard, by)
            case "AddReplica", (shard, by):
                result, config = by, self.shards[shard]
                self.shards[shard] = config._replace(size=config.size + 1)
                self._join(shard, by)
        return Result(request, result, "")

    def _trim(self, gsn: int) -> None:
        """Remove ranges that are trimmed as a whole, and finalized shards without a range."""
        self.oldest = gsn
        self.version += 1
        for ranges in (self.ranges, self.streams):
            while len(ranges) > 1 and ranges[1].first <= position_of(self.oldest):
                del ranges[0]
        used = {shard for one in (*self.ranges, *self.streams) for shard in one.shards}
        for config in list(self.shards.values()):
            if config.shard not in used and not config.is_live:
                del self.shards[config.shard]
                self.decided.pop(config.shard, None)
                for unit in config.units:
                    self._release(unit)

    # ---- the projection

    def view(self) -> View:
        """The projection."""
        return View(
            self.version,
            self.epoch,
            tuple([self.shards[number] for number in sorted(self.shards)]),
            self.next_shard,
            self.oldest,
            tuple([Spare(one.server, one.address) for one in self.spares()]),
            tuple(self.ranges),
            self.start,
            self.time,
            self.last,
            self.sequencer,
            self.nonce,
            tuple(self.streams),
        )

    # ---- snapshots

    def to_bytes(self) -> bytes:
        """A snapshot."""
        state = {name: value for name, value in vars(self).items() if name != "servers"}
        state["servers"] = [list(asdict(server).values()) for server in self.servers.values()]
        return json.dumps(state, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> ProjectionState:
        """The state of a snapshot. Raises ProtocolViolation."""
        state = cls()
        try:
            saved = json.loads(snapshot)
            vars(state).update(saved)
            state.servers = {server[0]: Server(*server) for server in saved["servers"]}
            state.shards = {int(number): _config_of(fields) for number, fields in saved["shards"].items()}
            state.decided = {int(shard): position for shard, position in saved.get("decided", {}).items()}
            state.ranges = [Range(first, tuple(shards)) for first, shards in saved["ranges"]]
            state.streams = [Range(first, tuple(shards)) for first, shards in saved["streams"]]
            state.results = {int(number): Result(*fields) for number, fields in saved["results"].items()}
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolViolation(f"not a snapshot of the auxiliary: {error}") from error
        return state

    def check(self) -> None:
        """Raises AssertionError."""
        for config in self.shards.values():
            if config.holds_streams:
                continue
            assert covers(config, config.disks), f"COR-5: shard {config.shard} has lost entries"
            gaps = [bool(unit.since) for unit in config.units]
            assert gaps == sorted(gaps), f"COR-5: in shard {config.shard}, a complete unit comes after another one"
        for ranges in (self.ranges, self.streams):
            firsts = [one.first for one in ranges]
            assert firsts == sorted(set(firsts)), "COR-3: ranges overlap"
            assert all(first <= self.start for first in firsts), "COR-3: a range begins behind the sealed tail"
        owners = [unit.server for config in self.shards.values() for unit in config.units]
        assert len(owners) == len(set(owners)), "a unit is in two chains"


def _config_of(fields: list[Any]) -> ShardConfig:
    shard, units, size, is_live, holds_streams, *rest = fields  # snapshots of earlier versions have no former units
    former = tuple([Former(*unit) for unit in rest[0]]) if rest else ()
    return ShardConfig(shard, tuple([Unit(*unit) for unit in units]), size, is_live, holds_streams, former)
