"""Changes by an operator while the cluster changes at the same time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from logdb.admin import changes
from logdb.admin.changes import Operator
from logdb.admin.layout import Layout
from logdb.errors import AccessDenied, Unavailable
from logdb.log.engine import Shape
from logdb.log.requests import Reconfigure, ReplaceServer, ShardState
from logdb.node.node import NodeConfig
from tests.harness.configurations import Configured, Member, Shard

ONE_SHARD = Configured(5)
TAKEN = Configured(7, next_shard=3)
"""A shard was added with all spares."""


class Scripted:
    """A log whose configuration is, one after another, one of these; it refuses every change."""

    def __init__(self, *views: Configured) -> None:
        self.views = list(views)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def require(self, kind: type) -> None:
        pass

    def call(self, request: Any, timeout: float | None) -> Configured:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    def reconfigure(self, change: Any) -> int:
        raise Unavailable("a shard has 2 servers, and there are 0 spares")


class Ghosts:
    """Servers that were started, but have no process."""

    def __init__(self, *_: Any) -> None:
        pass

    def start(self, servers: Any, tick: Any) -> None:
        pass

    def end(self, keep: Collection[str] = ()) -> None:
        pass


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setattr(changes, "StartedServers", Ghosts)
    monkeypatch.setattr(changes, "TIMEOUT_S", 0.2)
    return Operator((), Layout.make(tmp_path, Shape(1, 2, 1, 0), {}, 20_000))


def see(operator: Operator, monkeypatch: pytest.MonkeyPatch, *views: Configured, alive: int = 0) -> None:
    monkeypatch.setattr(operator, "_log", lambda: Scripted(*views))
    monkeypatch.setattr(operator, "_alive", lambda spares: [spare.server for spare in spares][:alive])


def test_the_cluster_uses_the_started_spares_itself(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    see(operator, monkeypatch, ONE_SHARD, ONE_SHARD, ONE_SHARD, TAKEN)
    assert operator.add_shard() == 2


def test_the_cluster_uses_the_spares_just_before_the_request(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = ONE_SHARD._replace(spares=(Member(3, "a:1"), Member(4, "a:2")))
    see(operator, monkeypatch, ONE_SHARD, waiting, waiting, TAKEN, alive=2)
    assert operator.add_shard() == 2


def test_spares_that_do_not_come(operator: Operator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    see(operator, monkeypatch, ONE_SHARD)
    before = Layout(tmp_path).file.servers
    with pytest.raises(Unavailable, match="2 spare servers are needed, and 0 answer"):
        operator.add_shard()
    assert Layout(tmp_path).file.servers == before


def test_the_cluster_uses_the_started_spare_for_the_server_itself(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waited for a spare, and then stopped and forgot the new member."""
    before = ONE_SHARD._replace(shards=(Shard(1, ShardState.LIVE, (Member(1, "a:1"), Member(2, "a:2"))),))
    after = ONE_SHARD._replace(shards=(Shard(1, ShardState.LIVE, (Member(2, "a:2"), Member(3, "a:3"))),))
    see(operator, monkeypatch, before, before, before, after)
    assert operator.replace_server("a:1") == (1, 3, 1)


def test_a_started_server_that_holds_records_meanwhile_stays(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept: list[str] = []
    addresses = [one.address for (role, _), one in Layout(tmp_path).file.servers.items() if role == "storage"]
    members = tuple(Member(number, address) for number, address in enumerate(addresses, 1))
    log = Scripted(ONE_SHARD._replace(shards=(Shard(1, ShardState.LIVE, members),)))

    def start(_: Ghosts, servers: Sequence[NodeConfig], tick: Any) -> None:
        now = Shard(1, ShardState.LIVE, (members[0], Member(3, servers[0].address)))
        log.views = [ONE_SHARD._replace(shards=(now,))]

    monkeypatch.setattr(operator, "_log", lambda: log)
    monkeypatch.setattr(operator, "_alive", lambda spares: [])
    monkeypatch.setattr(Ghosts, "start", start)
    monkeypatch.setattr(Ghosts, "end", lambda _, keep=(): kept.extend(keep))
    with pytest.raises(Unavailable, match="2 spare servers are needed, and 0 answer"):
        operator.add_shard()
    assert kept == ["s3"]
    assert {name for _, name in Layout(tmp_path).file.servers} == {"o1", "s1", "s2", "s3"}


def test_a_rejection_is_raised(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    see(operator, monkeypatch, ONE_SHARD._replace(spares=(Member(3, "a:1"), Member(4, "a:2"))), alive=2)
    with pytest.raises(Unavailable, match="a shard has 2 servers, and there are 0 spares"):
        operator.add_shard()


@pytest.mark.parametrize("change", [Operator.add_shard, lambda operator: operator.replace_server("a:1")])
def test_no_server_is_started_without_the_right_to_change_the_cluster(
    operator: Operator, change: Callable[[Operator], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: Scripted, kind: type) -> None:
        assert kind is Reconfigure
        raise AccessDenied("this client may only read")

    shard = Shard(1, ShardState.LIVE, (Member(1, "a:1"),))
    see(operator, monkeypatch, ONE_SHARD._replace(shards=(shard,)))
    monkeypatch.setattr(Scripted, "require", denied)
    monkeypatch.setattr(Ghosts, "start", lambda *_: pytest.fail("a server was started"))
    with pytest.raises(AccessDenied, match="this client may only read"):
        change(operator)


def test_the_newest_server_at_an_address_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older one was there before it lost its disk, and is a member of a shard that was finalized for that."""
    asked: list[Any] = []
    old, new = Member(1, "a:1"), Member(5, "a:1")
    shards = [Shard(n, ShardState.LIVE, (one,)) for n, one in enumerate((old, new), 1)]
    operator = Operator(["o:1"], None)
    log = Scripted(ONE_SHARD._replace(shards=tuple(shards)))
    monkeypatch.setattr(log, "reconfigure", lambda change: asked.append(change) or 7)
    monkeypatch.setattr(operator, "_log", lambda: log)
    assert operator.replace_server("a:1") == (5, 7, 2)
    assert operator.replace_server("1") == (1, 7, 1)
    assert asked == [ReplaceServer(5, 0), ReplaceServer(1, 0)]
    with pytest.raises(ValueError, match="b:1 is not a server of a shard; the shards have 1 at a:1, 5 at a:1"):
        operator.replace_server("b:1")


def test_a_server_without_a_shard_is_not_replaced(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how a server that was dropped comes back."""
    see(operator, monkeypatch, ONE_SHARD._replace(spares=(Member(3, "a:1"),)))
    with pytest.raises(ValueError, match="a:1 is a spare; the shards have none"):
        operator.replace_server("a:1")
    with pytest.raises(ValueError, match=r"s2 is not a server of a shard: if it was dropped .* `logdb cluster up`"):
        operator.replace_server("s2")
