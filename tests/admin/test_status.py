"""The status computed from the servers' answers; `tests/cli/test_clusters.py` tests the requests."""

from __future__ import annotations

from dataclasses import replace

from logdb_cli import clusters

from logdb.admin.server_query import Answer
from logdb.admin.status import ClusterStatus, KnownServer, made_of
from logdb.cluster.messages import Answered, Answers
from logdb.cores.effects import SECOND
from logdb.log.requests import ShardState
from logdb.wire.envelopes import MAPPING, VERSION, Hello
from tests.harness.configurations import ENGINE, Configured, Member, Shard, Tail

FINALIZED, LIVE = ShardState.FINALIZED, ShardState.LIVE


def reply_of(address: str, role: str, answer: object = None) -> Answer:
    return Answer(Hello(VERSION, "demo", role, address), True, answer, "")


VIEW = Configured(
    9,
    (
        Shard(1, FINALIZED, (Member(1, "s1:1"), Member(2, "s2:1"))),
        Shard(2, LIVE, (Member(5, "s1:1"), Member(4, "s4:1")), joining=(4,)),
    ),
    next_shard=3,
    spares=(Member(6, "s2:1"),),
)
"""s1 and s2 have lost their disks, and are other servers now."""
ROLES = {"o1:1": "ordering", "o2:1": "ordering", "m1:1": MAPPING} | dict.fromkeys(("s1:1", "s2:1", "s4:1"), "storage")


def seen(**answers: object) -> ClusterStatus:
    """With these answers of o1, o2 and m1; s4 is silent."""
    replies = {address: reply_of(address, role, answers.get(address[:2])) for address, role in ROLES.items()}
    replies["s4:1"] = Answer(None, False, None, "connection refused")
    known = {address: KnownServer(address, role, address[:2]) for address, role in ROLES.items()}
    return made_of("demo", ENGINE, known, replies, VIEW)


def test_the_whole() -> None:
    status = seen(o1=Tail(70, 3, cut=8), m1=Answers((Answered(1, 64, None),)))
    assert (status.leader, status.tail, status.oldest, status.cut) == ("o1:1", 70, 3, 8)
    by_name = {server.name: server for server in status.servers}
    assert {name: server.state for name, server in by_name.items()} == {
        "o1": "leads",
        "o2": "follows",
        "m1": "serves",
        "s1": "serves",
        "s2": "serves",
        "s4": "connection refused",
    }
    assert status.cut_interval_ms == 0
    assert (by_name["m1"].applied, by_name["m1"].lag) == (64, 6)
    assert [server.name for server in status.spares] == ["s2"]


def test_the_newest_server_at_an_address_counts() -> None:
    status = seen(o1=Tail(70, 3, cut=8))
    numbers = {server.name: (server.number, server.shard) for server in status.servers if server.role == "storage"}
    assert numbers == {"s1": (5, 2), "s2": (6, 0), "s4": (4, 2)}
    there = {server.address: server for server in status.servers}
    assert [clusters.shard_row(one, there) for one in status.shards] == [
        (1, "finalized", "1=s1 (gone), 2=s2 (gone)"),
        (2, "live", "5=s1, 4=s4 (silent)"),
    ]


def test_servers_that_were_replaced_and_such_as_clients_do_not_reach() -> None:
    tail = Tail(70, 3, cut=8, unreachable=(5,), interval_ns=2_500_000)
    config = Shard(2, LIVE, (Member(5, "s1:1"), Member(7, "s4:1")), joining=(7,), replaced=(Member(6, "s2:1"),))
    replies = {address: reply_of(address, role, tail if address == "o1:1" else None) for address, role in ROLES.items()}
    known = {address: KnownServer(address, role, address[:2]) for address, role in ROLES.items()}
    status = made_of("demo", ENGINE, known, replies, VIEW._replace(shards=(config,), spares=()))
    assert {server.name: server.state for server in status.servers if server.role == "storage"} == {
        "s1": "serves, but a client does not reach it",
        "s2": "serves until its successor has caught up",
        "s4": "serves",
    }
    there = {server.address: server for server in status.servers}
    assert clusters.shard_row(status.shards[0], there)[2] == "5=s1, 7=s4 (joining), 6=s2 (replaced)"
    assert status.cut_interval_ms == 2.5


def test_without_a_leader_the_newest_configuration_is_shown() -> None:
    status = seen()
    assert (status.leader, status.tail, status.cut, status.oldest) == ("", None, None, 1)
    assert [one.state for one in status.shards] == ["finalized", "live"]
    assert status.rates(seen(o1=Tail(70, 3, cut=8))) == (None, None)
    assert all(server.lag is None for server in status.servers)


def test_of_two_claimed_leaders_the_one_that_is_further_counts() -> None:
    status = seen(o1=Tail(70, 3, cut=8), o2=Tail(71, 3, cut=9))
    assert (status.leader, status.tail, status.cut) == ("o2:1", 71, 9)


def test_rates() -> None:
    before = replace(seen(o1=Tail(70, 3, cut=8)), time_ns=10 * SECOND)
    now = replace(seen(o1=Tail(100, 3, cut=9)), time_ns=12 * SECOND)
    assert now.rates(before) == (0.5, 15)
    document = now.document(before)
    assert (document["cuts_per_s"], document["records_per_s"], document["tail"]) == (0.5, 15, 100)


def test_a_server_of_another_ordering_layer_does_not_serve_this_one() -> None:
    replies = {address: reply_of(address, role) for address, role in ROLES.items()}
    for address, founding in (("o1:1", 10), ("o2:1", 10), ("s1:1", 10), ("s2:1", 11)):
        hello = replies[address].hello
        assert hello is not None
        replies[address] = replies[address]._replace(hello=hello._replace(founding=founding))
    known = {address: KnownServer(address, role, address[:2]) for address, role in ROLES.items()}
    servers = {server.name: server for server in made_of("demo", ENGINE, known, replies, VIEW).servers}
    assert servers["s2"].state == "belongs to another ordering layer (b, expected a)"
    assert [name for name, server in servers.items() if not server.alive] == ["s2"]
