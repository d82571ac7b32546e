"""The replicated state of the MMS: servers, shards, the epoch. A function of the commands alone."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from logdb.cores.effects import MILLISECOND, SECOND, Address, ProtocolViolation
from logdb.log.ziplog.epochs import BITS, NO_EPOCH, Epoch, Share, base_at
from logdb.log.ziplog.messages import Member, ShardConfig, Spare, View
from logdb.log.ziplog.mms import commands as c

REMEMBERED: Final = 1_000
"""The number of changes whose results are remembered."""
MAX_INTERVAL_NS: Final = 10 * SECOND
"""Maximum time between two epochs."""
SMALLEST_SHARE: Final = 64
"""A rate is at least the largest one divided by this."""


@dataclass(slots=True)
class Server:
    """A storage server. `is_gone`: another disk has come in its place. `since`: the change that registered it."""

    server: int
    address: Address
    nonce: int
    shard: int = 0
    is_gone: bool = False
    since: int = 0


class Result(NamedTuple):
    """The result of a command of a client."""

    request: int
    result: int
    error: str


class MemberChange(NamedTuple):
    """An operator's change of the members of a shard, which its next view carries out. `leaving`: the member that is
    replaced, 0: none is; `joining`: the spare server that comes, or another one if it has failed by then."""

    request: int
    shard: int
    leaving: int
    joining: int


class MembershipState:
    """The state after a command. `change`: how many commands have changed the configuration or the epoch. `barriers`:
    (version, the numbers of the servers that have to enter it before shards that joined in it are opened).
    `established`: by shard, its last view that was established. `changing`: by shard, the change of its members that
    its next view carries out. `lost`: the nonces of all disks that are lost, also of servers that were removed since
    (ZIP-11)."""

    def __init__(self, interval_ns: int) -> None:
        self.interval_ns = interval_ns
        self.origin = self.change = self.cut = self.left = 0
        self.next_server = self.next_shard = self.oldest = self.set_base = 1
        self.servers: dict[int, Server] = {}
        self.shards: dict[int, ShardConfig] = {}
        self.epoch = NO_EPOCH
        self.rates: dict[int, int] = {}
        self.barriers: list[tuple[int, tuple[int, ...]]] = []
        self.established: dict[int, int] = {}
        self.changing: dict[int, MemberChange] = {}
        self.results: dict[int, Result] = {}
        self.lost: list[int] = []

    @property
    def opened(self) -> int:
        """Shards that joined the set in this version or before may accept records."""
        return self.barriers[0][0] - 1 if self.barriers else self.epoch.version

    def view(self) -> View:
        """The configuration, without shards all of whose records are trimmed."""
        spares = [Spare(one.server, one.address) for one in self.servers.values() if not (one.shard or one.is_gone)]
        return View(
            self.change,
            tuple([config for config in self.shards.values() if not self._is_trimmed(config)]),
            self.next_shard,
            self.oldest,
            tuple(spares),
            self.epoch.version,
            self.set_base,
            self.left,
            self.origin,
            self.interval_ns,
        )

    # ---- commands

    def apply(self, command: c.Command) -> Result | None:
        """Carry out a command. Returns the result of a client's."""
        self.origin = self.origin or command.time
        self.change += 1
        match command:
            case c.Register(_, nonce, address, since):
                self._register(nonce, address, since)
            case c.Recover():
                return self._recover(command)
            case c.Synced():
                self._synced(command)
            case c.Drained(_, shard, view):
                config = self.shards.get(shard)
                if config is not None and config.view == view and config.is_draining and not config.joining:
                    self.shards[shard] = config._replace(is_drained=True)
                    self._let_pass({member.server for member in config.members})
                    self._remove_trimmed()
            case c.NextEpoch(time, rates):
                self.rates = dict(rates)
                self._begin_epoch(time)
            case c.Open(_, version):
                self.barriers = [barrier for barrier in self.barriers if barrier[0] > version]
            case _:
                return self._change(command)
        return None

    def _change(self, command: Any) -> Result | None:
        """A client's command, once: it may have been proposed several times. Returns None if it is not carried out
        yet."""
        done = self.results.get(command.request)
        if done is not None or any(change.request == command.request for change in self.changing.values()):
            return done
        result, error = 0, ""
        match command:
            case c.AddShard(_, _, servers):
                result, error = self._add_shard(servers)
            case c.FinalizeShard(time, _, shard):
                result, error = self._finalize(shard, time)
            case c.ReplaceServer(_, request, server, by):
                found = self.servers.get(server)
                error = self._change_members(MemberChange(request, found.shard if found else 0, server, by))
                if not error:
                    return None
            case c.AddReplica(_, request, shard, server):
                error = self._change_members(MemberChange(request, shard, 0, server))
                if not error:
                    return None
            case c.SetInterval(_, _, interval_ns):
                if 0 <= interval_ns <= MAX_INTERVAL_NS:
                    result = self.interval_ns = interval_ns
                else:
                    error = (
                        f"there are 0 to {MAX_INTERVAL_NS // SECOND} s between two cuts, not {interval_ns / SECOND:g}"
                    )
            case c.Trim(_, _, gsn):
                result = self.oldest = max(self.oldest, gsn)
                self._remove_trimmed()
        return self._end_change(command.request, result, error)

    def _end_change(self, request: int, result: int, error: str = "") -> Result:
        """Note the result of a client's command."""
        self.results[request] = Result(request, result, error)
        if len(self.results) > REMEMBERED:
            del self.results[next(iter(self.results))]
        return self.results[request]

    def _register(self, nonce: int, address: Address, since: int | None) -> None:
        servers = list(self.servers.values())
        if nonce in self.lost or any(server.nonce == nonce for server in servers):
            return
        if since is not None and any(one.address == address and one.since >= since for one in servers):
            return  # this disk was lost before it was registered, and another one has come in its place
        for server in servers:
            if server.address == address and not server.is_gone:
                server.is_gone = True
                self.lost.append(server.nonce)
                if not server.shard:
                    del self.servers[server.server]
        self.servers[self.next_server] = Server(self.next_server, address, nonce, since=self.change)
        self.next_server += 1

    def _add_shard(self, servers: tuple[int, ...]) -> tuple[int, str]:
        found = [self.servers.get(number) for number in servers]
        if len(set(servers)) < max(1, len(servers)) or any(
            server is None or server.shard or server.is_gone for server in found
        ):
            return 0, "there are not enough spare servers that answer"
        shard = self.next_shard
        self.next_shard += 1
        members = tuple([self._member(shard, server, 0, is_complete=True) for server in servers])
        self.shards[shard] = ShardConfig(shard, 1, members, 0, 0, 1, False, False)
        return shard, ""

    def _member(self, shard: int, number: int, valid: int, *, is_complete: bool) -> Member:
        """Make a server a member of a shard, not synced."""
        server = self.servers[number]
        server.shard = shard
        return Member(number, server.address, valid, False, is_complete)

    def _release(self, number: int) -> None:
        """A server does not belong to its shard any more: it becomes a spare, on an empty disk."""
        self._let_pass({number})
        server = self.servers[number]
        server.shard = 0
        if server.is_gone:
            del self.servers[number]

    def _change_members(self, change: MemberChange) -> str:
        """Have the members of a shard changed with its next view. Returns why that is impossible, "" if it is not."""
        config, spare = self.shards.get(change.shard), self.servers.get(change.joining)
        if config is None or self._is_trimmed(config):
            if change.leaving:
                return f"server {change.leaving} belongs to no shard"
            return f"shard {change.shard} {'was trimmed away' if 0 < change.shard < self.next_shard else 'is unknown'}"
        if change.leaving and all(one.server != change.leaving for one in config.members):
            return f"server {change.leaving} was replaced: it leaves shard {config.shard} when its records were copied"
        if change.leaving and len(config.members) == 1:
            return f"server {change.leaving} is the only member of shard {config.shard}"
        if not (change.leaving or config.is_draining):
            return f"shard {config.shard} accepts appends, only a finalized one can have more replicas"
        if spare is None or spare.shard or spare.is_gone:
            return "there is no spare server that answers"
        if config.shard in self.changing:
            return f"another member of shard {config.shard} is being changed"
        self.changing[config.shard] = change
        return ""

    def _is_trimmed(self, config: ShardConfig) -> bool:
        """Whether a shard is finalized, and all its records are trimmed."""
        return config.is_draining and max(config.bound, 2) <= self.oldest

    def _remove_trimmed(self) -> None:
        """Remove drained shards all of whose records are trimmed: their servers become spares."""
        for config in [one for one in self.shards.values() if one.is_drained and self._is_trimmed(one)]:
            del self.shards[config.shard]
            self.established.pop(config.shard, None)
            for member in (*config.members, *config.former):
                self._release(member.server)
            change = self.changing.pop(config.shard, None)
            if change is not None:
                self._end_change(change.request, 0, f"shard {config.shard} was trimmed away")

    def _finalize(self, shard: int, time: int) -> tuple[int, str]:
        config = self.shards.get(shard)
        if config is None:
            return 0, f"unknown shard {shard}"
        if not config.is_draining:
            noted = self._set_members()
            self.shards[shard] = config = config._replace(is_draining=True)
            if config.is_in_set:
                self._leave(config, time, noted)
        return shard, ""

    def _recover(self, command: c.Recover) -> Result | None:
        """Begin a view. Complete servers that are left out stay until the view is established (ZIP-10). A drained shard
        begins one only to change its members.

        Returns the result of the operator's change that the view carries out.
        """
        config = self.shards.get(command.shard)
        if config is None or config.view != command.view or (config.is_drained and config.shard not in self.changing):
            return None
        source, shard = command.members[0], command.shard
        before = {member.server: member for member in (*config.members, *config.former)}
        chosen = [self.servers.get(number) for number in command.members if number not in before]
        if any(one is None or one.shard or one.is_gone for one in chosen):
            return None  # another shard has got this spare server meanwhile
        if config.has_records and source not in before:
            return None  # the view was established meanwhile, and has released it
        if source in before and self.servers[source].is_gone:
            return None
        if config.has_records and command.is_first:
            return None  # the shard has joined the set meanwhile, and the source is not frozen
        assert not config.has_records or before[source].is_complete, "ZIP-8: the source lacks records"
        barriers = [(version, still_awaited(noted, source, before)) for version, noted in self.barriers]
        self.barriers = [barrier for barrier in barriers if barrier[1]]
        if config.is_in_set:
            self._leave(config, command.time, still_awaited(self._set_members(), source, before))
            config = self.shards[shard]
        cut = max(config.bound - 1, command.stable) if config.is_drained else command.stable
        complete = {number for number, member in before.items() if member.is_complete}
        members = tuple(
            [
                self._member(
                    shard,
                    number,
                    cut if number in complete else 0,
                    is_complete=number in complete or not config.has_records,
                )
                for number in command.members
            ]
        )
        former = []
        for number, member in before.items():
            if number in command.members:
                continue
            if member.is_complete and config.has_records and not self.servers[number].is_gone:
                former.append(member)
            else:
                self._release(number)
        self.shards[shard] = config._replace(
            view=config.view + 1, members=members, since=0, first=0, is_drained=False, former=tuple(former)
        )
        return self._members_changed(config, command.members)

    def _let_pass(self, servers: Collection[int]) -> None:
        """Wait in no barrier for these servers any more."""
        barriers = [(version, tuple([one for one in noted if one not in servers])) for version, noted in self.barriers]
        self.barriers = [barrier for barrier in barriers if barrier[1]]

    def _members_changed(self, before: ShardConfig, members: tuple[int, ...]) -> Result | None:
        """A view has begun. Returns the result of the operator's change of the members, if there was one."""
        change = self.changing.pop(before.shard, None)
        if change is None:
            return None
        new = [one for one in members if all(one != member.server for member in before.members)]
        if not new or change.leaving in members:
            return self._end_change(change.request, 0, "no other server that answers can take the place")
        return self._end_change(change.request, change.joining if change.joining in new else new[0])

    def _synced(self, command: c.Synced) -> None:
        config = self.shards.get(command.shard)
        server = self.servers.get(command.server)
        if config is None or config.view != command.view or server is None or server.is_gone:
            return
        members = tuple(
            [
                one._replace(is_synced=True, is_complete=True) if one.server == command.server else one
                for one in config.members
            ]
        )
        was_established = config.is_established
        config = config._replace(members=members)
        if config.is_established and not was_established:
            self.established[config.shard] = config.view
            self._let_pass({member.server for member in members})  # none of them serves an earlier view
            for member in config.former:
                self._release(member.server)
            config = config._replace(former=())
        self.shards[command.shard] = config
        if config.is_established and not config.is_draining and not config.is_in_set:
            noted = self._set_members()
            joined = config._replace(since=self.epoch.version + 1, bound=0)
            self.shards[command.shard] = joined
            self._begin_epoch(command.time, noted)
            self.shards[command.shard] = joined._replace(first=self.epoch.base)

    # ---- epochs

    def _set_members(self) -> tuple[int, ...]:
        """The servers of all shards of the set."""
        return tuple([one.server for config in self.shards.values() if config.is_in_set for one in config.members])

    def _leave(self, config: ShardConfig, time: int, noted: tuple[int, ...]) -> None:
        """A shard leaves the set with the next epoch."""
        self.shards[config.shard] = config._replace(bound=self._next_base(time))
        self._begin_epoch(time, noted)
        self.left = self.epoch.base - 1

    def _next_base(self, time: int) -> int:
        return max(self.epoch.end + 1, base_at(time, self.origin))

    def _begin_epoch(self, time: int, noted: tuple[int, ...] | None = None) -> None:
        """Begin an epoch. `noted`: with a new set of shards, the servers that have to enter it first."""
        base = self._next_base(time)
        end = base - 1 + (max(1, self.interval_ns // MILLISECOND) << BITS)
        version = self.epoch.version + (noted is not None)
        shards = sorted([config for config in self.shards.values() if config.is_in_set])
        floor = max([1, *(-(-self.rates.get(config.shard, 0) // SMALLEST_SHARE) for config in shards)])
        shares = [Share(one.shard, one.view, max(floor, self.rates.get(one.shard, 0))) for one in shards]
        self.epoch = Epoch(version, base, end, tuple(shares))
        self.cut += 1
        if noted is not None:
            self.set_base = base
            if noted:
                self.barriers.append((version, noted))

    # ---- snapshots

    def to_bytes(self) -> bytes:
        """A snapshot."""
        state = {name: value for name, value in vars(self).items() if name != "servers"}
        state["servers"] = [list(asdict(server).values()) for server in self.servers.values()]
        return json.dumps(state, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> MembershipState:
        """The state of a snapshot. Raises ProtocolViolation."""
        state = cls(0)
        try:
            saved = json.loads(snapshot)
            vars(state).update(saved)
            state.servers = {server[0]: Server(*server) for server in saved["servers"]}
            state.shards = {int(number): config_of(fields) for number, fields in saved["shards"].items()}
            version, base, end, shares = saved["epoch"]
            state.epoch = Epoch(version, base, end, tuple([Share(*share) for share in shares]))
            state.rates = {int(shard): rate for shard, rate in saved["rates"].items()}
            state.barriers = [(version, tuple(noted)) for version, noted in saved["barriers"]]
            state.established = {int(shard): view for shard, view in state.established.items()}
            state.changing = {int(shard): MemberChange(*fields) for shard, fields in saved["changing"].items()}
            state.results = {int(number): Result(*fields) for number, fields in saved["results"].items()}
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolViolation(f"a snapshot that is none: {error}") from error
        return state

    def check(self) -> None:
        """Raises AssertionError."""
        assert self.epoch.base <= self.epoch.end + 1, "ZIP-1"
        for config in self.shards.values():
            assert not config.is_in_set or config.is_established, "ZIP-10: an incomplete shard in the set"
            assert any(one.is_complete for one in (*config.members, *config.former)), "ZIP-10: no complete server"
            assert not (config.is_established and config.former), "ZIP-10: a server waits for an established view"
        owners = [one.server for config in self.shards.values() for one in (*config.members, *config.former)]
        assert len(owners) == len(set(owners)), "a server is in two shards"
        assert self.changing.keys() <= self.shards.keys(), "a shard that was removed is being changed"
        assert self.established.keys() <= self.shards.keys()
        assert {one for _, noted in self.barriers for one in noted} <= set(owners), "ZIP-6: a spare server is noted"
        assert {one.shard for one in self.epoch.shares} == {
            config.shard for config in self.shards.values() if config.is_in_set
        }, "ZIP-1: the epoch has other shards than the set"


def still_awaited(noted: tuple[int, ...], source: int, before: Collection[int]) -> tuple[int, ...]:
    """The noted servers for which shards that join must still wait, when `source` of a shard with the complete servers
    `before` is frozen. It stands for its view with clients that ask all members of several shards. Of a set with one
    shard they ask none, and any other complete server may yet place records that a later view begins with (ZIP-6)."""
    has_others = any(one not in before for one in noted)
    return tuple([one for one in noted if one != source and not (has_others and one in before)])


def config_of(fields: list[Any]) -> ShardConfig:
    """A shard of JSON."""
    config = ShardConfig(*fields)
    return config._replace(members=_members_of(fields[2]), former=_members_of(fields[-1]))


def _members_of(fields: list[Any]) -> tuple[Member, ...]:
    return tuple([Member(*member) for member in fields])
