"""Limits of one client of a server: bounded memory, and turns with other clients."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import logdb
import logdb.aio
from logdb.clients.server_connection import ServerConnection
from logdb.log import LocalLog
from logdb.log.engine import Right
from logdb.security.access import add
from logdb.security.authenticator import Authenticator, Security
from logdb.server import contention_queue, leases, outbox, pending_answers, read_requests
from logdb.server.outbox import MAX_PARTED
from logdb.server.read_requests import ReadRequests
from logdb.server.waiting_requests import MAX_WATCHED_KEYS
from logdb.server.write_requests import WriteRequests
from logdb.store.watched import KEY_BYTES
from logdb.system.memory import resident_bytes
from logdb.transport import unread_answers
from logdb.wire.database_codec import MAX_REQUESTS, NUMBERS, PAGE_KEYS, PART_BYTES, requests_of
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb
from tests.harness.raw import Raw
from tests.harness.served import Served

DEADLINE_S = 30
VALUE = bytes(1 << 20)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "db")
    yield served
    served.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test

    asyncio.run(in_time())


def get(key: bytes) -> pb.Request:
    return pb.Request(get=pb.Get(key=key))


def put(key: bytes, value: bytes, sequence: int) -> pb.Request:
    return pb.Request(write=pb.Write(sequence=sequence, writes=pb.Writes(keys=[key], values=[value])))


# ---- numbers


@pytest.mark.parametrize("number", [1 << 63, (1 << 64) - 1])
def test_a_number_out_of_range_is_an_error_of_its_request(served: Served, number: int) -> None:
    async def test() -> None:
        async with Raw(served.address) as raw:
            await raw.ask(put(b"k", b"v", 1))
            for verb, names in NUMBERS.items():
                for name in names:
                    request = pb.Request()
                    setattr(getattr(request, verb), name, number)
                    (answer,) = await raw.ask(request)
                    assert answer.failure.kind == "ValueError", (verb, name)
                    assert str(number) in answer.failure.message
            (answer,) = await raw.ask(get(b"k"))
            assert answer.value == b"v"

    run(test())


def test_an_impossible_session_version_does_not_block_others(served: Served) -> None:
    async def test() -> None:
        async with Raw(served.address) as raw, Raw(served.address) as other:
            await raw.send(get(b"k"), seen=(1 << 64) - 1)
            await other.ask(put(b"k", b"v", 1))
            assert (await raw.answers(1))[1].failure.kind == "Unavailable"

    run(test())


def test_many_requests_in_one_message() -> None:
    """An empty request is two bytes on the wire, and a hundred in memory."""
    empty = pb.Requests(requests=[pb.Request()]).SerializeToString()
    assert len(requests_of(empty * MAX_REQUESTS).requests) == MAX_REQUESTS
    with pytest.raises(WireError, match="more than 4,096 requests"):
        requests_of(empty * (MAX_REQUESTS + 1))


# ---- bytes


def test_large_values_are_read_at_the_pace_of_the_client(served: Served) -> None:
    async def test() -> None:
        async with Raw(served.address) as raw, Raw(served.address) as other:
            await other.ask(put(b"k", VALUE, 1))
            await raw.send(*[get(b"k") for _ in range(200)])
            most = parted = 0
            for _ in range(50):
                await other.ask(get(b"other"))
                load = served.server.load()
                most, parted = max(most, load.answer_bytes), max(parted, load.parted)
            assert most <= 2 * PART_BYTES
            assert parted <= MAX_PARTED
            found = await raw.answers(200)
            assert {answer.value for answer in found.values()} == {VALUE}

    run(test())


def test_a_stop_sends_all_answers_in_parts_though_a_request_waits_for_their_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_PARTED", 2)

    async def test() -> None:
        async with Raw(served.address) as raw, Raw(served.address) as other:
            await other.ask(put(b"k", VALUE, 1))
            await raw.send(*[get(b"k") for _ in range(3)])
            while served.server.load().parted < 2:
                await other.ask(get(b"other"))
            stopping = asyncio.create_task(asyncio.to_thread(served.stop))
            with pytest.raises(grpc.aio.AioRpcError):  # it is owed nothing: its stream ends at once
                await other.stream.read()
            found = await raw.answers(2)
            assert {answer.value for answer in found.values()} == {VALUE}
            await stopping

    run(test())


@pytest.mark.parametrize("verb", ["watch", "frames", "scan", "history", "multi_get", "multi_scan"])
def test_pages_are_made_at_the_pace_of_the_client(served: Served, verb: str) -> None:
    requested = {
        "watch": pb.Request(watch=pb.Watch(since=0)),
        "frames": pb.Request(frames=pb.Frames(first=1, end=9)),
        "scan": pb.Request(scan=pb.Scan()),
        "history": pb.Request(history=pb.History(key=b"0")),
        "multi_scan": pb.Request(multi_scan=pb.MultiScan(ranges=[pb.ScanRange(), pb.ScanRange(start=b"3")])),
        "multi_get": pb.Request(multi_get=pb.MultiGet(keys=[b"%d" % number for number in range(8)])),
    }

    async def test() -> None:
        async with Raw(served.address) as raw, Raw(served.address) as other:
            for number in range(8):
                await other.ask(put(b"%d" % number, VALUE, number + 1))
            await raw.send(*[pb.Request.FromString(requested[verb].SerializeToString()) for _ in range(100)])
            most = 0
            for _ in range(50):
                await other.ask(get(b"other"))
                most = max(most, served.server.load().answer_bytes)
            assert most <= unread_answers.STREAM_BYTES + 3 * len(VALUE)
            found = await raw.answers(100)
            assert not any(answer.HasField("failure") for answer in found.values())

    run(test())


def test_a_client_that_reads_no_answers_is_disconnected_when_others_need_memory(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_answers, "ALL_BYTES", 4 << 20)
    monkeypatch.setattr(unread_answers, "STALLED_S", 0.2)

    async def test() -> None:
        async with Raw(served.address, client=1) as other:
            await other.ask(put(b"k", VALUE, 1))
            greedy = [Raw(served.address, client=2 + number) for number in range(16)]
            for raw in greedy:
                await raw.__aenter__()
                await raw.send(*[pb.Request(multi_get=pb.MultiGet(keys=[b"k"])) for _ in range(100)])
            for _ in range(20):
                (answer,) = await other.ask(get(b"k"))
                assert answer.value == VALUE
                assert served.server.load().answer_bytes <= 2 * unread_answers.ALL_BYTES + 2 * len(VALUE)
            for raw in greedy:
                await raw.__aexit__(None, None, None)
        while served.server.load().streams:
            await asyncio.sleep(0.01)
        assert served.server.load().answer_bytes == 0

    run(test())


def test_acknowledgements_after_the_end_of_a_stream_use_no_memory(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledgement of a write whose client disconnected during the sync."""
    synced = threading.Event()
    wait_durable = LocalLog.wait_durable

    def waiting(self: LocalLog, gsn: int) -> None:
        synced.wait(DEADLINE_S)
        wait_durable(self, gsn)

    async def test() -> None:
        async with Raw(served.address, client=1) as raw:
            await raw.ask(put(b"k", b"1", 1))  # the first sync runs in a thread; the server's loop continues
            served.host.acknowledgements._took_s = math.inf
            monkeypatch.setattr(LocalLog, "wait_durable", waiting)
            await raw.send(put(b"k", b"2", 2))
            while served.host.embedded.machine.coordinator.applied < 2:
                await asyncio.sleep(0.001)
        while served.server.load().streams:
            await asyncio.sleep(0.001)
        synced.set()
        async with Raw(served.address, client=2) as raw:
            await raw.ask(put(b"k", b"3", 1))
        while served.server.load().streams:
            await asyncio.sleep(0.001)
        assert served.server.load().answer_bytes == 0

    run(test())


# ---- turns


def test_one_client_does_not_keep_others_waiting(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a message with many scans is processed, other clients are answered between two of them."""
    answered_between = 0
    busy = False
    scan, write = ReadRequests.scan, WriteRequests.write

    def slow_scan(self: ReadRequests, *arguments: Any) -> Any:
        nonlocal busy
        busy = True
        time.sleep(unread_answers.TURN_S)
        return scan(self, *arguments)

    def seen_write(self: WriteRequests, *arguments: Any) -> None:
        nonlocal answered_between
        answered_between += busy
        write(self, *arguments)

    monkeypatch.setattr(ReadRequests, "scan", slow_scan)
    monkeypatch.setattr(WriteRequests, "write", seen_write)

    async def test() -> None:
        async with Raw(served.address) as raw, Raw(served.address) as other:
            await raw.send(*[pb.Request(scan=pb.Scan()) for _ in range(300)])
            taking = asyncio.create_task(raw.answers(300))
            for number in range(10):
                await other.ask(put(b"k", b"v", number + 1))
            assert not taking.done()
            assert answered_between
            await taking

    run(test())


# ---- counts


def test_requests_that_wait(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_answers, "MAX_WAITING", 10)

    async def test() -> None:
        async with Raw(served.address) as raw:
            await raw.send(*[pb.Request(watch=pb.Watch(wait_ms=60_000)) for _ in range(11)])
            ((number, refused),) = (await raw.answers(1)).items()
            assert (number, refused.failure.kind) == (11, "Unavailable")
            await raw.send(pb.Request(id=12, write=put(b"k", b"v", 1).write))
            assert len((await raw.answers(11))[1].changes.changes) == 1

    run(test())


def watch(*keys: bytes, number: int = 0) -> pb.Request:
    return pb.Request(id=number, watch=pb.Watch(keys=keys, has_keys=True, wait_ms=60_000))


def test_a_limit_of_watched_keys(served: Served) -> None:
    many = [b"%d" % number for number in range(MAX_WATCHED_KEYS + 1)]

    async def test() -> None:
        async with Raw(served.address) as raw:
            (answer,) = await raw.ask(watch(*many))
            assert answer.failure.kind == "ValueError"
            assert "the limit is 65,536" in answer.failure.message
            await raw.send(watch(*many[1:], number=1), put(many[-1], b"v", 1))
            assert (await raw.answers(2))[1].changes.changes[0].version == 1

    run(test())


def test_bytes_of_requests_that_wait(users: tuple[Served, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    served, ada, bob = users
    kept = watch(bytes(1_000)).watch.ByteSize() + KEY_BYTES
    monkeypatch.setattr(pending_answers, "MAX_WAITING_BYTES", 2 * kept)
    times = unread_answers.USER_STREAMS
    waiting = [watch(bytes(1_000), number=number) for number in (1, 2)]

    async def test() -> None:
        async with Raw(served.address, bob) as other, streams(served, ada, times + 1) as many:
            for raw in many[:-1]:
                await raw.send(*waiting)
                (answer,) = await raw.ask(watch(b"k", number=3))
                assert answer.failure.kind == "Unavailable"
                assert f"2 requests of this client wait already ({2 * kept:,} bytes)" in answer.failure.message
            (answer,) = await many[-1].ask(watch(b"k", number=3))
            assert answer.failure.kind == "Unavailable"
            assert f"{2 * times} of its user ({2 * times * kept:,} bytes)" in answer.failure.message
            await other.send(watch(bytes(2_500), number=1))  # one may keep more
            await other.ask(pb.Request(id=2, write=put(bytes(1_000), b"v", 1).write))  # this ends the watches
            for raw in many[:-1]:
                await raw.answers(2)
            await many[-1].send(*waiting)
            await many[-1].ask(pb.Request(id=3, get=get(b"k").get))
            assert served.server.load().waiting == 3

    run(test())


def test_bytes_of_the_waiting_requests_of_all_users(
    users: tuple[Served, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user may use what is left, and another one has its part all the same."""
    served, ada, bob = users
    kept = watch(bytes(1_000)).watch.ByteSize() + KEY_BYTES + unread_answers.WAITING_BYTES
    monkeypatch.setattr(unread_answers, "ALL_WAITING_BYTES", 4 * kept)

    async def test() -> None:
        async with Raw(served.address, ada) as one, Raw(served.address, bob) as other:
            for raw, count in ((one, 4), (other, 2)):
                await raw.send(*[watch(bytes(1_000), number=number) for number in range(1, count + 1)])
                (answer,) = await raw.ask(watch(bytes(1_000), number=9))
                assert answer.failure.kind == "Unavailable"
                assert "requests of all clients wait" in answer.failure.message
            await other.ask(pb.Request(id=10, write=put(bytes(1_000), b"v", 1).write))  # this ends the watches
            await one.answers(4)
            await one.send(watch(bytes(1_000), number=1))
            await one.ask(pb.Request(id=3, get=get(b"k").get))
            assert served.server.load().waiting == 1

    run(test())


def begin(lease: int) -> pb.Request:
    return pb.Request(begin=pb.Begin(lease=lease, key=b"k"))


def contended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction at a time may read the key k."""
    monkeypatch.setattr(contention_queue, "TURN_S", 3_600.0)
    monkeypatch.setattr(contention_queue, "CONTENDED_S", 3_600.0)
    served.loop.call(served.server.contention.mark_contended, b"k")


def test_a_limit_of_transactions_that_wait_for_their_turns(
    users: tuple[Served, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, ada, _ = users
    contended(served, monkeypatch)
    monkeypatch.setattr(leases, "MAX_WAITING", 2)
    times = unread_answers.USER_STREAMS

    async def test() -> None:
        async with streams(served, ada, times + 1) as many:
            assert (await many[0].ask(begin(9)))[0].version == 0
            for raw in many[:-1]:
                await raw.send(begin(1), begin(2))
                await raw.ask(pb.Request(id=9, begin=begin(3).begin))
            await many[-1].ask(begin(1))
            await many[0].send(pb.Request(id=10, end=pb.End(lease=2)))
            await many[0].ask(pb.Request(id=11, get=get(b"k").get))
            await many[-1].send(pb.Request(id=2, begin=begin(2).begin))
            await many[-1].ask(pb.Request(id=3, begin=begin(3).begin))

    run(test())


@pytest.mark.skipif(not resident_bytes(), reason="the system does not tell the memory of a process")
@pytest.mark.parametrize("verb", ["watch", "begin"])
def test_a_request_that_waits_keeps_no_other_of_its_message(
    served: Served, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    contended(served, monkeypatch)
    large = pb.Request(id=2, multi_get=pb.MultiGet(keys=[bytes(3 << 20)]))  # refused at once: the key is too large

    async def test() -> None:
        async with Raw(served.address) as raw:
            for number in range(60):
                if number == 10:
                    before = resident_bytes()
                await raw.send(watch(b"k", number=1) if verb == "watch" else begin(number + 1), large)
                answers = await raw.answers(2 if verb == "begin" and not number else 1)
                assert answers[2].failure.kind == "KeyTooLarge"
            assert resident_bytes() - before < 50 << 20

    run(test())


def test_a_limit_of_leased_snapshots(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "MAX_LEASES", 10)

    async def test() -> None:
        async with Raw(served.address) as raw:
            ended_writes = await raw.ask(*[pb.Request(begin=pb.Begin(lease=number)) for number in range(1, 12)])
            assert [answer.failure.kind for answer in ended_writes] == [""] * 10 + ["Unavailable"]
            await raw.send(pb.Request(id=100, end=pb.End(lease=1)), pb.Request(id=101, begin=pb.Begin(lease=11)))
            assert not (await raw.answers(1))[101].HasField("failure")

    run(test())


def test_many_keys_are_requested_in_pages(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[int] = []
    call = ServerConnection.call

    def seen(self: ServerConnection[Any], request: pb.Request, *arguments: Any, **more: Any) -> Any:
        if request.HasField("multi_get"):
            requested.append(len(request.multi_get.keys))
        return call(self, request, *arguments, **more)

    monkeypatch.setattr(ServerConnection, "call", seen)
    keys = [b"%d" % number for number in range(2 * PAGE_KEYS + 5)]
    with logdb.connect(served.address) as db:
        db.multi_put({key: key for key in keys[::2]})
        assert db.multi_get(keys) == {key: key for key in keys[::2]}
        assert db.at(db.version).multi_get(keys) == {key: key for key in keys[::2]}
    assert requested == 2 * [PAGE_KEYS, PAGE_KEYS, 5]


def test_a_client_that_does_not_wait_for_its_answer(served: Served) -> None:
    """Acknowledgements for a stream that has ended are dropped, and use no memory."""
    ended_writes: list[Any] = []
    acknowledgements = served.host.acknowledgements
    notify = acknowledgements.notify
    acknowledgements.notify = lambda *requested: ended_writes.append(requested)  # type: ignore[method-assign]

    async def test() -> None:
        async with Raw(served.address) as raw:
            await raw.send(put(b"k", b"v", 1))
            while not ended_writes:
                await asyncio.sleep(0.005)
        while served.server.load().streams:
            await asyncio.sleep(0.005)

    run(test())
    served.loop.call(notify, *ended_writes[0])
    with logdb.connect(served.address) as db:
        acknowledgements.notify = notify  # type: ignore[method-assign]
        db.put(b"k", b"2")
        assert [entry.value for entry in db.history(b"k")] == [b"2", b"v"]

    async def ended() -> None:
        while served.server.load().streams:
            await asyncio.sleep(0.005)

    run(ended())
    assert served.server.load().answer_bytes == 0


# ---- limits of a user


@pytest.fixture
def users(tmp_path: Path) -> Iterator[tuple[Served, str, str]]:
    """A server, and the tokens of two users."""
    tokens = [add(tmp_path / "tokens.toml", name, Right.WRITE) for name in ("ada", "bob")]
    served = Served(tmp_path / "db", Authenticator(Security(tokens=tmp_path / "tokens.toml")))
    yield served, tokens[0], tokens[1]
    served.close()


@asynccontextmanager
async def streams(served: Served, token: str, count: int, first: int = 100) -> AsyncIterator[list[Raw]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Raw(served.address, token, first + number)) for number in range(count)]


def test_answers_for_many_streams_of_one_user(users: tuple[Served, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All streams of a user share one limit, independent of their number; another user has its own."""
    served, ada, bob = users
    monkeypatch.setattr(unread_answers, "STREAM_BYTES", 2 << 20)

    async def test() -> None:
        async with Raw(served.address, bob) as other, streams(served, ada, 40) as greedy:
            await other.ask(put(b"k", VALUE, 1))
            for raw in greedy:
                await raw.send(*[pb.Request(multi_get=pb.MultiGet(keys=[b"k"])) for _ in range(100)])
            most, room = 0, unread_answers.USER_STREAMS * unread_answers.STREAM_BYTES
            while most < room:
                await other.ask(get(b"other"))
                most = served.server.load().answer_bytes
            for _ in range(20):
                await other.ask(get(b"k"))
                most = max(most, served.server.load().answer_bytes)
            assert most <= 2 * room + 2 * len(VALUE)
            await other.send(*[get(b"k") for _ in range(100)])
            assert len(await other.answers(100)) == 100

    run(test())


def test_streams_of_one_user_have_turns_as_one(users: tuple[Served, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    served, ada, bob = users
    scan, write = ReadRequests.scan, WriteRequests.write
    scans: list[int] = [0]

    def slow_scan(self: ReadRequests, *arguments: Any) -> Any:
        scans[-1] += 1
        time.sleep(unread_answers.TURN_S)
        return scan(self, *arguments)

    def seen_write(self: WriteRequests, *arguments: Any) -> None:
        scans.append(0)
        write(self, *arguments)

    monkeypatch.setattr(ReadRequests, "scan", slow_scan)
    monkeypatch.setattr(WriteRequests, "write", seen_write)

    async def test() -> None:
        async with Raw(served.address, bob) as other, streams(served, ada, 30) as greedy:
            for raw in greedy:
                await raw.send(*[pb.Request(scan=pb.Scan()) for _ in range(50)])
            while not scans[0]:
                await asyncio.sleep(0.001)
            for number in range(10):
                await other.send(*[put(b"k", b"v", 10 * number + each) for each in range(1, 4)])
                await other.answers(3)

    run(test())
    assert sum(scans) < 30 * 50, "the scans were done before the others had ended"
    waits = [sum(scans[at : at + 3]) for at in range(3, 30, 3)]
    assert min(waits) <= 15, "each batch of writes waited for a turn of each stream of another user"


def test_requests_and_snapshots_of_many_streams_of_one_user(
    users: tuple[Served, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, ada, bob = users
    monkeypatch.setattr(pending_answers, "MAX_WAITING", 2)
    monkeypatch.setattr(leases, "MAX_LEASES", 2)
    times = unread_answers.USER_STREAMS

    async def test() -> None:
        async with Raw(served.address, bob) as other, streams(served, ada, times + 1) as many:
            for raw in many[:-1]:
                begun = await raw.ask(*[pb.Request(begin=pb.Begin(lease=number)) for number in (1, 2)])
                assert [answer.failure.kind for answer in begun] == ["", ""]
                await raw.send(*[pb.Request(watch=pb.Watch(wait_ms=60_000)) for _ in range(2)])
                await raw.ask(pb.Request(id=9, get=get(b"k").get))  # these requests wait
            for refused in (pb.Request(begin=pb.Begin(lease=1)), pb.Request(watch=pb.Watch(wait_ms=60_000))):
                (answer,) = await many[-1].ask(refused)
                assert answer.failure.kind == "Unavailable"
                assert f"{2 * times}" in answer.failure.message
            (answer,) = await other.ask(pb.Request(begin=pb.Begin(lease=1)))
            assert not answer.HasField("failure")
            await other.ask(put(b"k", b"v", 1))  # this change ends the watches
            for raw in many[:-1]:
                await raw.answers(2)
            await many[0].send(pb.Request(id=20, end=pb.End(lease=1)))
            await many[0].ask(get(b"k"))
            (answer,) = await many[-1].ask(pb.Request(begin=pb.Begin(lease=1)))
            assert not answer.HasField("failure")
        while served.server.load().streams:
            await asyncio.sleep(0.01)
        assert served.server.load().users == 0

    run(test())


def test_a_snapshot_leased_twice_is_released_once(served: Served) -> None:
    """A page with a lease under the number of another snapshot replaces it."""

    async def test() -> None:
        async with Raw(served.address) as raw:
            await raw.ask(put(b"k", b"v", 1))
            keys = [b"%d" % number for number in range(PAGE_KEYS + 1)]
            for _ in range(3):
                await raw.ask(pb.Request(multi_get=pb.MultiGet(keys=keys, lease=1)))
            assert len(served.host.embedded.snapshots.leased()) == 1

    run(test())


def test_pages_of_scans_are_short_while_others_wait(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are still returned, once and in order."""
    monkeypatch.setattr(read_requests, "PAGE_S", 0.0)
    rows = {b"%05d" % number: b"v" for number in range(3_000)}

    async def first_page() -> pb.Rows:
        async with Raw(served.address) as raw:
            return (await raw.ask(pb.Request(scan=pb.Scan())))[0].rows

    async def test() -> None:
        async with await logdb.aio.connect(served.address) as db:
            await db.multi_put(rows)
            page = await first_page()
            assert page.more
            assert 0 < len(page.keys) < 1_000
            async with Raw(served.address, client=2):
                for limit in (None, 1, 700, 3_000, 5_000):
                    found = [row async for row in db.scan(limit=limit)]
                    assert found == sorted(rows.items())[:limit]
                    found = [row async for row in db.scan(reverse=True, limit=limit)]
                    assert found == sorted(rows.items(), reverse=True)[:limit]
        while served.server.load().streams:
            await asyncio.sleep(0.005)
        alone = await first_page()
        assert (len(alone.keys), alone.more) == (3_000, False)

    run(test())


NOWHERE = ["deleted", "deleted as a range", "newer than the snapshot"]


@pytest.mark.parametrize("why", NOWHERE)
def test_pages_without_rows_are_short_while_others_wait(
    served: Served, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A scan that found nothing kept the others waiting until its end."""
    monkeypatch.setattr(read_requests, "PAGE_S", 0.0)
    rows = {b"k%05d" % number: b"v" for number in range(1_500)}
    there = {b"a": b"1", b"k01000+": b"2", b"z": b"3"}

    async def test() -> None:
        async with await logdb.aio.connect(served.address) as db, Raw(served.address, client=2) as raw:
            await db.multi_put(there)
            before = await db.at()
            await db.multi_put(rows)
            if why == "deleted":
                await db.multi_put(dict.fromkeys(rows))
            elif why == "deleted as a range":
                await db.delete_prefix(b"k")
                await db.put(b"k01000+", b"2")
            view = before if why == NOWHERE[2] else await db.at()
            scan = {"start": b"k", "at": view.version, "resumes": True}
            for reverse in (False, True):
                page = (await raw.ask(pb.Request(scan=pb.Scan(reverse=reverse, end=b"l", **scan))))[0].rows
                assert (list(page.keys), page.more) == ([], True)
                assert b"k" < page.rest < b"l"
            several = pb.MultiScan(ranges=[pb.ScanRange(start=b"k")] * 3, at=view.version, resumes=True)
            (first,) = (await raw.ask(pb.Request(multi_scan=several)))[0].multi_rows.ranges
            assert (list(first.keys), first.more) == ([], True)
            scan.pop("resumes")
            page = (await raw.ask(pb.Request(scan=pb.Scan(**scan))))[0].rows
            assert list(page.keys) == [b"k01000+"], "a client that does not resume"
            for limit in (None, 1):
                for reverse in (False, True):
                    expected = sorted(there.items(), reverse=reverse)[:limit]
                    assert [row async for row in view.scan(reverse=reverse, limit=limit)] == expected
                    ranges = [(None, None), (b"k", b"k009"), (b"b", b"y")]
                    found = await view.multi_scan(ranges, reverse=reverse, limit=limit)
                    assert found == [expected, [], [(b"k01000+", b"2")]]
            async with db.transaction() as txn:
                assert [row async for row in txn.scan(b"z")] == [(b"z", b"3")]
                assert (await txn.multi_scan([(b"k", b"k009"), (b"z", None)]))[1] == [(b"z", b"3")]

    run(test())


def test_pages_of_keys_are_short_while_others_wait(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_requests, "PAGE_S", 0.0)
    rows = {b"k%05d" % number: b"v" for number in range(1_000)}

    async def test() -> None:
        async with await logdb.aio.connect(served.address) as db, Raw(served.address, client=2) as raw:
            await db.multi_put(rows)
            page = (await raw.ask(pb.Request(multi_get=pb.MultiGet(keys=list(rows)))))[0].values
            assert 0 < len(page.values) < 100
            assert await db.multi_get(list(rows)) == rows

    run(test())


def test_pages_of_histories_are_short_while_others_wait(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """All versions are still returned, once and in order."""
    monkeypatch.setattr(read_requests, "PAGE_S", 0.0)

    async def first_page() -> pb.Entries:
        async with Raw(served.address) as raw:
            return (await raw.ask(pb.Request(history=pb.History(key=b"k"))))[0].entries

    async def test() -> None:
        async with await logdb.aio.connect(served.address) as db:
            written = [(await db.put(b"k", b"%d" % number), b"%d" % number) for number in range(100)]
            page = await first_page()
            assert page.more
            assert 0 < len(page.versions) < 100
            async with Raw(served.address, client=2):
                assert [(entry.version, entry.value) async for entry in db.history(b"k")] == written[::-1]
        while served.server.load().streams:
            await asyncio.sleep(0.005)
        alone = await first_page()
        assert (len(alone.versions), alone.more) == (100, False)

    run(test())
