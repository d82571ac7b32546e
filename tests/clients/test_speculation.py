"""Transactions that read values written by their own process speculatively: fewer requests, and correct results."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import logdb
import logdb.aio
from logdb.clients import server_connection
from logdb.clients.cluster_backend import ClusterBackend
from logdb.clients.remote_backend import RemoteBackend
from logdb.clients.server_connection import ServerConnection
from logdb.cluster import messages
from logdb.cluster.client import commit_client, requests
from logdb.cluster.mapping_server import replica
from logdb.cluster.messages import Decided
from logdb.embedded.acknowledgements import Acknowledgements
from logdb.server import contention_queue
from logdb.server.outbox import Outbox
from logdb.store.records import Commit, TxnId, encode_commit
from logdb.txn import speculation
from logdb.wire.database_codec import check_request
from logdb.wire.limits import MAX_RECORD_BYTES
from logdb.wire.proto import database_pb2 as pb
from tests.harness.clusters import Cluster
from tests.harness.served import Served

Database = logdb.aio.Database
Transaction = logdb.aio.Transaction


@pytest.fixture(autouse=True)
def long_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend the time limits of speculation, since a machine may be busy."""
    monkeypatch.setattr(speculation, "MAX_AGE_S", 60.0)
    monkeypatch.setattr(speculation, "SUPPRESSED_S", 60.0)


@pytest.fixture(params=["server", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served | Cluster]:
    """The server or cluster that clients connect to; the cluster has two open segments."""
    if request.param == "server":
        yield request.getfixturevalue("served")
    else:
        cluster = Cluster(tmp_path, storage=2, aggregators=0, mapping=1)
        cluster.start(2)
        yield cluster
        cluster.close()


READS = {"begin", "get", "multi_get", "Get", "TakeTurn"}
COMMITS = {"write", "commit", "Commit"}


@pytest.fixture
def requests_sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The numbers of read and commit requests that clients sent."""
    counted: Counter[str] = Counter()
    call, put = ServerConnection.call, ClusterBackend.put

    def count(name: str) -> None:
        counted["reads"] += name in READS
        counted["commits"] += name in COMMITS

    def calling(self: ServerConnection[Any], request: pb.Request, *args: Any, **options: Any) -> Any:
        count(request.WhichOneof("verb") or "")
        return call(self, request, *args, **options)

    def putting(self: ClusterBackend, request: Any, *args: Any) -> Any:
        count(type(request).__name__)
        return put(self, request, *args)

    monkeypatch.setattr(ServerConnection, "call", calling)
    monkeypatch.setattr(ClusterBackend, "put", putting)
    return counted


def with_clients(place: Served | Cluster, count: int, test: Callable[..., Coroutine[Any, Any, None]]) -> None:
    """Run the test with `count` clients, in whose database b"n" is 0."""
    address = place.address if isinstance(place, Served) else place.ordering[0]

    async def main() -> None:
        clients = [await logdb.aio.connect(address) for _ in range(count)]
        await clients[0].put(b"n", b"0")
        await test(*clients)
        for client in clients:
            if isinstance(place, Cluster):
                assert not client._host._core.leases.versions
            await client.close()

    asyncio.run(main())


async def add(txn: Transaction, key: bytes = b"n") -> int:
    value = int(await txn.get(key) or b"0")
    txn[key] = b"%d" % (value + 1)
    return value


def test_one_read_request_serves_many_transactions(place: Served | Cluster, requests_sent: Counter[str]) -> None:
    async def test(db: Database) -> None:
        await db.run(add)
        requests_sent.clear()
        results = await asyncio.gather(*[db.run(add) for _ in range(100)])
        assert sorted(results) == list(range(1, 101))
        assert [await db.run(add) for _ in range(10)] == list(range(101, 111))
        assert requests_sent == {"reads": 0, "commits": 110}

    with_clients(place, 1, test)


def test_only_transactions_of_run_speculate(place: Served | Cluster, requests_sent: Counter[str]) -> None:
    async def test(db: Database) -> None:
        await db.run(add)
        requests_sent.clear()
        async with db.transaction() as txn:
            await add(txn)
        assert requests_sent == {"reads": 1, "commits": 1}
        assert await db.run(add) == 2

    with_clients(place, 1, test)


def test_concurrent_appends_to_the_same_lists_are_not_lost(place: Served | Cluster) -> None:
    keys = [b"a", b"b", b"c"]

    async def append(txn: Transaction, token: bytes, key: bytes, also: bytes) -> bytes:
        """Append to one list or two; the second is read before or after the first is written."""
        found = await txn.get(key) or b""
        txn[key] = found + token
        if also != key:
            txn[also] = (await txn.get(also) or b"") + token
        return found

    async def test(*clients: Database) -> None:
        appended: list[tuple[bytes, bytes, bytes, bytes]] = []

        async def appending(number: int) -> None:
            for turn in range(12):
                token, key, also = b"%d.%d;" % (number, turn), keys[number % 3], keys[(number * turn) % 3]
                found = await clients[number % 3].run(append, token, key, also)
                appended.append((token, key, also, found))

        await asyncio.gather(*[appending(number) for number in range(9)])
        lists = await clients[0].multi_get(keys)
        for token, key, also, found in appended:
            assert lists[key].startswith(found + token)
            assert lists[also].count(token) == 1
        assert sum(each.count(b";") for each in lists.values()) == sum(
            1 + (key != also) for _, key, also, _ in appended
        )

    with_clients(place, 3, test)


def test_a_sum_over_several_keys_is_constant(place: Served | Cluster) -> None:
    """Two clients transfer and read the sum: it is always correct, also inside a transaction."""
    accounts = [b"%d" % number for number in range(4)]

    async def transfer(txn: Transaction, source: bytes, target: bytes) -> None:
        left = int(await txn.get(source) or b"0") - 1
        if left < 0:
            raise LookupError(source)
        txn[source] = b"%d" % left
        txn[target] = b"%d" % (int(await txn.get(target) or b"0") + 1)

    async def total(txn: Transaction) -> int:
        one = int(await txn.get(accounts[0]) or b"0")
        whole = one + sum(map(int, (await txn.multi_get(accounts[1:])).values()))
        assert whole == 20
        return whole

    async def test(*clients: Database) -> None:
        await clients[0].multi_put(dict.fromkeys(accounts, b"5"))
        refused = 0

        async def busy(db: Database, number: int) -> None:
            nonlocal refused
            for turn in range(12):
                source, target = accounts[(number + turn) % 4], accounts[0]
                if source != target:
                    try:
                        await db.run(transfer, source, target)
                    except LookupError:
                        refused += 1
                assert await db.run(total) == 20

        await asyncio.gather(*[busy(db, number) for number in range(4) for db in clients])
        values = (await clients[0].multi_get(accounts)).values()
        assert sum(map(int, values)) == 20
        assert min(map(int, values)) >= 0
        assert refused

    with_clients(place, 2, test)


async def outdated(one: Database, other: Database, values: dict[bytes, bytes]) -> None:
    """`one` has a speculated value of b"n", and `other` has written newer values since."""
    host = one._host
    assert isinstance(host, RemoteBackend | ClusterBackend)
    host.speculation._suppressed_until.clear()
    host.speculation.forget([b"n"])
    await one.run(add)
    assert host.speculation.speculated(b"n") is not None
    await other.multi_put(values)


def test_wrong_speculation_has_no_effect(place: Served | Cluster) -> None:
    """Not on exceptions, on results without writes, or on other values that are read."""

    async def refused(txn: Transaction) -> None:
        raise LookupError(await txn.get(b"n"))

    async def too_large(txn: Transaction) -> None:
        value = int(await txn.get(b"n") or b"0")
        txn.put(b"large", bytes(10 if value == 100 else 1 << 30))

    async def looked_at(txn: Transaction) -> int:
        return int(await txn.get(b"n") or b"0")

    async def closed(txn: Transaction) -> int:
        value = await add(txn)
        txn.close()
        return value

    async def summed(txn: Transaction) -> int:
        txn[b"sum"] = b"%d" % await looked_at(txn)
        return int(await txn.get(b"n") or b"0") + int(await txn.get(b"m") or b"0")

    async def found(txn: Transaction) -> int:
        txn[b"sum"] = b"%d" % await looked_at(txn)
        values = await txn.multi_get([b"n", b"m"])
        return int(values[b"n"]) + int(values[b"m"])

    async def scanned(txn: Transaction) -> int:
        txn[b"sum"] = b"%d" % await looked_at(txn)
        return sum([int(value) async for _, value in txn.scan(b"m", b"o")])

    async def gathered(txn: Transaction) -> int:
        values = await asyncio.gather(txn.get(b"n"), txn.get(b"m"), txn.get(b"n"))
        txn[b"sum"] = values[0] or b""
        assert values[0] == values[2]
        return int(values[0] or b"0") + int(values[1] or b"0")

    async def test(one: Database, other: Database) -> None:
        values = {b"n": b"100", b"m": b"1"}
        await outdated(one, other, values)
        with pytest.raises(LookupError, match="100"):
            await one.run(refused)
        await outdated(one, other, values)
        await one.run(too_large)
        assert await one.get(b"large") == bytes(10)
        for body, answer in (
            (looked_at, 100),
            (closed, 100),
            (summed, 101),
            (found, 101),
            (scanned, 101),
            (gathered, 101),
        ):
            await outdated(one, other, values)
            assert await one.run(body) == answer, body
            assert await one.get(b"n") == b"100"
            if body not in (looked_at, closed):
                assert await one.get(b"sum") == b"100"
                await one.delete(b"sum")

    with_clients(place, 2, test)


class Stop(BaseException):
    """A BaseException that is not an Exception."""


@pytest.mark.parametrize("kind", [SystemExit, Stop, asyncio.CancelledError])
def test_wrong_speculation_raises_no_base_exception(place: Served | Cluster, kind: type[BaseException]) -> None:
    """The body raises it because of a value that it read; also a cancellation that was not requested."""

    async def ends(txn: Transaction) -> None:
        raise kind(int(await txn.get(b"n") or b"0"))

    async def test(one: Database, other: Database) -> None:
        await outdated(one, other, {b"n": b"100"})
        try:
            await one.run(ends)
        except kind as error:
            assert error.args == (100,)

    with_clients(place, 2, test)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit])
def test_an_interrupt_is_not_retried_after_wrong_speculation(
    place: Served | Cluster, kind: type[BaseException]
) -> None:
    runs = 0

    async def interrupted(txn: Transaction) -> None:
        nonlocal runs
        await txn.get(b"n")
        runs += 1
        raise kind

    async def test(one: Database, other: Database) -> None:
        await outdated(one, other, {b"n": b"100"})
        try:
            await one.run(interrupted)
        except kind:
            assert runs == 1

    with_clients(place, 2, test)


def test_a_transaction_continues_if_its_speculation_was_right(
    place: Served | Cluster, requests_sent: Counter[str]
) -> None:
    runs = 0

    async def summed(txn: Transaction) -> int:
        nonlocal runs
        runs += 1
        both = [int(await txn.get(key) or b"0") for key in (b"n", b"m", b"n")]
        txn[b"sum"] = b"%d" % sum(both)
        assert txn.snapshot
        return sum(both)

    async def test(db: Database) -> None:
        await db.put(b"m", b"7")
        await db.run(add)
        requests_sent.clear()
        assert await db.run(summed) == 9
        assert runs == 1
        assert requests_sent == {"reads": 3, "commits": 1}

    with_clients(place, 1, test)


@pytest.mark.parametrize("more", ["nothing", "after", "meanwhile"])
@pytest.mark.parametrize("changed", [b"n", b"m"])
def test_all_speculated_values_are_verified(place: Served | Cluster, changed: bytes, more: str) -> None:
    """The commit verifies them, or the client does before an unspeculated read; also those read during the
    verification."""

    async def both(txn: Transaction) -> int:
        total = int(await txn.get(b"n") or b"0")
        if more == "meanwhile":
            verified = asyncio.create_task(txn.get(b"x"))
            await asyncio.sleep(0)
            total += int(await txn.get(b"m") or b"0")
            await verified
        else:
            total += int(await txn.get(b"m") or b"0")
            if more == "after":
                await txn.get(b"x")
        txn[b"total"] = b"%d" % total
        return total

    async def test(one: Database, other: Database) -> None:
        async def written(txn: Transaction) -> None:
            await add(txn)
            await add(txn, b"m")

        await one.run(written)
        await other.put(changed, b"100")
        assert await one.run(both) == 101
        assert await one.get(b"total") == b"101"

    with_clients(place, 2, test)


@pytest.mark.parametrize("reads", ["get", "multi_get", "scan", "multi_scan"])
@pytest.mark.parametrize("changed", [b"n", b"m"])
def test_verified_speculation_still_conflicts_with_later_writes(
    place: Served | Cluster, changed: bytes, reads: str
) -> None:
    async def test(one: Database, other: Database) -> None:
        runs = 0

        async def slowly(txn: Transaction) -> None:
            nonlocal runs
            runs += 1
            value = int(await txn.get(b"n") or b"0")
            if reads == "get":
                more = await txn.get(b"m") or b""
            elif reads == "multi_get":
                more = (await txn.multi_get([b"m"]))[b"m"]
            elif reads == "scan":
                ((_, more),) = [row async for row in txn.scan(b"m", b"m\0")]
            else:
                _, ((_, more),) = await txn.multi_scan([(b"a", b"b"), (b"m", b"m\0")])
            if runs == 1:
                await other.put(changed, b"100")
            txn[b"seen"] = b"%d" % (value + int(more))

        await one.put(b"m", b"7")
        await one.run(add)
        await one.run(slowly)
        most = 3 if changed == b"n" else 2  # the second run still speculates on n, unless it has a turn there
        assert 2 <= runs <= most
        assert await one.get(b"seen") == (b"107" if changed == b"n" else b"101")

    with_clients(place, 2, test)


def test_a_commit_has_the_id_and_the_label_of_its_transaction(
    place: Served | Cluster, requests_sent: Counter[str]
) -> None:
    async def test(db: Database) -> None:
        txn_id = ""

        async def named(txn: Transaction) -> None:
            nonlocal txn_id
            txn_id = txn.id
            await add(txn)

        await db.run(add)
        before = await db.version()
        requests_sent.clear()
        await db.run(named)
        assert requests_sent == {"reads": 0, "commits": 1}
        assert (await db.outcome(txn_id)).committed
        changes = [change async for change in db.watch(since=before, timeout=0)]
        assert [change.label for change in changes] == ["named"]

    with_clients(place, 1, test)


@pytest.mark.parametrize("true_again", [False, True])
def test_a_body_that_suppresses_the_failure_does_not_commit(place: Served | Cluster, true_again: bool) -> None:
    """A failed verification is final, even if the body suppresses the exception."""

    other: Any = None

    async def hides(txn: Transaction) -> bytes:
        await add(txn)
        try:
            answer = await txn.get(b"m") or b"absent"
        except Exception:
            answer = b"failed"
            if true_again:
                await other.put(b"n", b"1")
        txn[b"answer"] = answer
        return answer

    async def test(one: Database, client: Database) -> None:
        nonlocal other
        other = client
        await one.put(b"n", b"0")
        await outdated(one, other, {b"n": b"100", b"m": b"1"})
        assert await one.run(hides) == b"1"
        assert await one.multi_get([b"n", b"answer"]) == {
            b"n": b"2" if true_again else b"101",
            b"answer": b"1",
        }
        if isinstance(place, Served):
            assert not place.host.embedded.snapshots.leased()

    with_clients(place, 2, test)


def test_deleted_and_absent_keys(place: Served | Cluster, requests_sent: Counter[str]) -> None:
    async def toggle(txn: Transaction) -> bool:
        exists = await txn.get(b"t") is not None
        if exists:
            txn.delete(b"t")
        else:
            txn[b"t"] = b""
        return exists

    async def test(one: Database, other: Database) -> None:
        assert await one.run(toggle) is False
        requests_sent.clear()
        assert [await one.run(toggle) for _ in range(4)] == [True, False, True, False]
        assert requests_sent == {"reads": 0, "commits": 4}
        await one.run(toggle)
        await other.put(b"t", b"x")
        assert await one.run(toggle) is True
        assert await one.get(b"t") is None

    with_clients(place, 2, test)


def test_wrong_speculation_does_not_raise_too_large(place: Served | Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(one: Database, other: Database) -> None:
        await outdated(one, other, {b"n": b"100"})

        def check(request: pb.Request, large: Sequence[bytes]) -> int:
            if b"2" in request.write.writes.values:
                raise logdb.TransactionTooLarge(2, 1)
            return check_request(request, large)

        def encode(commit: Commit) -> bytes:
            return encode_commit(commit) + bytes(MAX_RECORD_BYTES if b"2" in commit.writes.values() else 0)

        monkeypatch.setattr(server_connection, "check_request", check)
        monkeypatch.setattr(commit_client, "encode_commit", encode)
        assert await one.run(add) == 100

    with_clients(place, 2, test)


def test_transactions_that_read_an_aborted_write_run_again(place: Served | Cluster) -> None:
    async def test(one: Database, other: Database) -> None:
        await outdated(one, other, {b"n": b"100"})
        assert sorted(await asyncio.gather(*[one.run(add) for _ in range(20)])) == list(range(100, 120))

    with_clients(place, 2, test)


def test_a_transaction_aborted_without_a_reason_runs_again(
    place: Served | Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mapping server keeps the reasons of the newest transactions only."""
    decided = replica.Replica.decided

    def forgetful(self: replica.Replica, txn: TxnId) -> Decided | None:
        found = decided(self, txn)
        return found if found is None or found.verdict.committed else found._replace(verdict=replica.UNEXPLAINED)

    async def test(one: Database, other: Database) -> None:
        await outdated(one, other, {b"n": b"100"})
        monkeypatch.setattr(replica.Replica, "decided", forgetful)
        assert await one.run(add) == 100
        if isinstance(place, Cluster):
            with pytest.raises(logdb.Unavailable, match="nothing was written"):
                await one.test_and_multi_put([logdb.absent(b"n")], {b"n": b"1"})
            assert await one.get(b"n") == b"101"

    with_clients(place, 2, test)


def test_wrong_speculation_does_not_count_as_an_attempt(place: Served | Cluster) -> None:
    async def test(one: Database, other: Database) -> None:
        await outdated(one, other, {b"n": b"100"})
        assert await one.run(add, attempts=1) == 100

    with_clients(place, 2, test)


def test_writes_of_others_suppress_speculation_for_a_while(
    place: Served | Cluster, requests_sent: Counter[str]
) -> None:
    async def test(one: Database, other: Database) -> None:
        await outdated(one, other, {b"n": b"100"})
        requests_sent.clear()
        assert [await one.run(add) for _ in range(3)] == [100, 101, 102]
        assert requests_sent == {"reads": 3, "commits": 4}

    with_clients(place, 2, test)


def test_own_turns_and_own_puts_do_not_suppress_speculation(served: Served, requests_sent: Counter[str]) -> None:
    async def test(db: Database) -> None:
        await db.run(add)
        served.server.contention.mark_contended(b"n")
        async with db.transaction() as txn:
            await txn.get(b"n")
            assert [await db.run(add) for _ in range(2)] == [1, 2]
        await db.put(b"n", b"100")
        requests_sent.clear()
        assert [await db.run(add) for _ in range(2)] == [100, 101]
        assert requests_sent == {"reads": 1, "commits": 2}

    with_clients(served, 1, test)


def test_queued_transactions_of_others_suppress_speculation_for_a_while(
    served: Served, requests_sent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention_queue, "TURN_S", 60.0)

    async def test(one: Database, other: Database) -> None:
        await one.run(add)
        served.server.contention.mark_contended(b"n")
        async with other.transaction() as txn:
            await txn.get(b"n")
            assert await one.run(add) == 1
            requests_sent.clear()
            waits = asyncio.create_task(one.run(add))
            await asyncio.sleep(0)
            await txn.get(b"m")
        assert await waits == 2
        assert requests_sent == {"reads": 2, "commits": 1}

    with_clients(served, 2, test)


def test_a_cancelled_transaction_does_not_fail_others(place: Served | Cluster) -> None:
    async def test(db: Database) -> None:
        await db.run(add)
        tasks = [asyncio.create_task(db.run(add)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        counted = [each for each in results if isinstance(each, int)]
        assert len(counted) >= 10
        assert len(set(counted)) == len(counted)
        assert int(await db.get(b"n") or b"0") > max(counted)
        assert await db.run(add) >= len(counted) + 1

    with_clients(place, 1, test)


def test_commits_resent_after_a_restart_are_applied_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of commits is sent again; some of them had been ordered before their stream was lost."""
    answer = Outbox.answer
    answered, loses = 0, True

    def some(self: Outbox, response: pb.Response, **options: Any) -> None:
        nonlocal answered
        answered += 1
        if answered <= 20 or not loses:
            answer(self, response, **options)

    async def test(db: Database) -> None:
        await db.run(add)
        nonlocal loses
        monkeypatch.setattr(Outbox, "answer", some)
        adding = [asyncio.create_task(db.run(add)) for _ in range(50)]
        while answered < 25:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(served.stop)
        loses = False
        await asyncio.to_thread(served.start)
        assert sorted(await asyncio.gather(*adding)) == list(range(1, 51))
        assert await db.get(b"n") == b"51"

    with_clients(served, 1, test)


def test_an_unknown_outcome_is_raised_and_not_retried(place: Served | Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(db: Database) -> None:
        runs = 0

        async def counting(txn: Transaction) -> int:
            nonlocal runs
            runs += 1
            return await add(txn)

        await db.run(add)
        call, put = ServerConnection.call, ClusterBackend.put

        def late(self: ServerConnection[Any], request: pb.Request, *args: Any, **options: Any) -> Any:
            return call(self, request, *args, **options | {"timeout_s": 0.0})

        def late_put(self: ClusterBackend, request: Any, timeout_s: float | None) -> Any:
            return put(self, request, 0.5 if isinstance(request, requests.Commit) else timeout_s)

        monkeypatch.setattr(Acknowledgements, "notify", lambda *_: None)
        monkeypatch.setattr(ServerConnection, "call", late)
        monkeypatch.setattr(ClusterBackend, "put", late_put)
        if isinstance(place, Cluster):
            monkeypatch.setitem(db._host._core._handlers, messages.Verdicts, lambda *_: None)
        with pytest.raises(logdb.OutcomeUnknown):
            await db.run(counting)
        assert runs == 1
        monkeypatch.undo()
        assert await db.run(add) == 2

    with_clients(place, 1, test)
