"""Large values at a server: they are sent in parts, between which other requests are served; a partial value is never
visible."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import logdb
import logdb.aio
from logdb.clients.server_connection import ServerConnection
from logdb.log.segments import Disk, incoming
from logdb.security.authenticator import Authenticator, Security
from logdb.server import uploads
from logdb.wire import database_codec
from logdb.wire.database_codec import LARGE_BYTES, MAX_MESSAGE_BYTES, PART_BYTES, WINDOW_BYTES
from logdb.wire.proto import database_pb2 as pb
from tests.harness.raw import Raw
from tests.harness.secured import Tokens
from tests.harness.served import Served
from tests.harness.server_process import ServerProcess
from tests.harness.worlds import OnSecureServer

LARGE = random.Random(1).randbytes(LARGE_BYTES + 12_345)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "db")
    yield served
    served.close()


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(180):
            await test

    asyncio.run(in_time())


def get(key: bytes, number: int = 0) -> pb.Request:
    return pb.Request(id=number, get=pb.Get(key=key))


def part(
    request: int, offset: int, *, data: bytes = bytes(PART_BYTES), length: int = LARGE_BYTES, number: int = 1
) -> pb.Request:
    upload = pb.Upload(number=number, length=length, offset=offset, data=data, verb="write")
    return pb.Request(id=request, upload=upload)


def write_of(request: int, key: bytes) -> pb.Request:
    writes = pb.Writes(keys=[key], values=[b""], uploaded=[0])
    return pb.Request(id=request, write=pb.Write(sequence=request, writes=writes))


def files_of(path: Path) -> list[str]:
    return [file.name for file in (path / "log").glob(f"{incoming.PREFIX}*")]


async def until(happened: Callable[[], bool]) -> None:
    while not happened():
        await asyncio.sleep(0.005)


# ---- whole values


@pytest.mark.parametrize("kept", ["on disk", "in memory"])
def test_values_of_all_sizes(tmp_path: Path, kept: str) -> None:
    served = Served(tmp_path / "db" if kept == "on disk" else None)
    rng = random.Random(2)
    edges = 0, 1, 4_097, PART_BYTES - 20, PART_BYTES, PART_BYTES + 1, 3 << 20, LARGE_BYTES - 1, LARGE_BYTES, len(LARGE)
    values = {b"%d" % size: rng.randbytes(size) for size in edges}
    try:
        with logdb.connect(served.address) as db:
            for key, value in values.items():
                db.put(key, value)
            assert {key: db.get(key) for key in values} == values
            assert db.multi_get(values) == values
            assert dict(db.scan()) == values
            assert dict(db.at(db.version).scan(reverse=True)) == values
            assert [entry.value == values[b"%d" % len(LARGE)] for entry in db.history(b"%d" % len(LARGE))] == [True]
            changed = [dict(change.changes) for change in db.watch(since=0, timeout=0)]
            assert changed == [{key: value} for key, value in values.items()]
            if kept == "on disk":
                served.stop()
                served.start()
                assert {key: db.get(key) for key in values} == values
                assert files_of(tmp_path / "db") == []
                db.multi_put(dict.fromkeys(values, b"small"))
                db.compact()
                assert {key: db.get(key) for key in values} == dict.fromkeys(values, b"small")
    finally:
        served.close()


def test_a_transaction_with_several_large_values(served: Served) -> None:
    """A transaction with the maximum size; after a conflict none of its values is written."""
    values = {b"%d" % number: bytes([number]) + LARGE for number in range(4)}

    async def test() -> None:
        async with (
            await logdb.aio.connect(served.address) as db,
            await logdb.aio.connect(served.address) as other,
        ):
            async with db.transaction() as txn:
                assert await txn.get(b"0") is None
                for key, value in values.items():
                    txn.put(key, value)
                txn.put(b"small", b"v")
            assert await other.multi_get(values) == values
            with pytest.raises(logdb.ConflictError):
                async with db.transaction() as txn:
                    assert await txn.get(b"0") == values[b"0"]
                    await other.put(b"0", b"changed")
                    for key in values:
                        txn.put(key, LARGE)
            assert await db.multi_get(values) == {**values, b"0": b"changed"}
            assert not (await db.test_and_multi_put([logdb.equals(b"0", LARGE)], {b"1": LARGE})).committed
            assert (await db.test_and_multi_put([logdb.equals(b"2", values[b"2"])], {b"0": LARGE})).committed
            assert await db.get(b"0") == LARGE
        await until(lambda: not served.host.embedded.snapshots.leased())
        await until(lambda: not files_of(served.path or Path()))

    run(test())


def test_a_value_that_is_too_large(served: Served) -> None:
    with logdb.connect(served.address) as db:
        with pytest.raises(logdb.ValueTooLarge):
            db.put(b"k", bytes(logdb.MAX_VALUE_BYTES + 1))
        with pytest.raises(logdb.TransactionTooLarge):
            db.multi_put(dict.fromkeys([b"1", b"2", b"3", b"4", b"5"], bytes(logdb.MAX_VALUE_BYTES)))
        db.put(b"k", bytes(logdb.MAX_VALUE_BYTES))
        assert db.get(b"k") == bytes(logdb.MAX_VALUE_BYTES)


def test_over_tls(tmp_path: Path) -> None:
    world = OnSecureServer(tmp_path)
    try:
        world.db.put(b"k", LARGE)
        assert world.db.get(b"k") == LARGE
    finally:
        world.close()


# ---- turns, and memory


def test_other_requests_are_served_between_parts(served: Served) -> None:
    """Requests of the same client and of others, during an upload and a download."""

    async def test() -> None:
        async with Raw(served.address) as raw, Raw(served.address, client=2) as other:
            for at in range(0, LARGE_BYTES, PART_BYTES):
                await raw.send(part(1, at, data=LARGE[at : at + PART_BYTES]), get(b"none", 100 + at))
                seen, taken = set[int](), 0
                while 100 + at not in seen or taken < at + PART_BYTES:
                    for answer in pb.Responses.FromString(await raw.stream.read()).responses:
                        seen.add(answer.id)
                        taken = max(taken, answer.progress)
                await other.ask(get(b"none"))
            await raw.send(write_of(1, b"k"))
            assert (await raw.answers(1))[1].version
            await raw.send(get(b"k", 1), get(b"none", 2))
            assert list(await raw.answers(1)) == [2]
            await other.ask(get(b"none"))
            assert (await raw.answers(1))[1].value == LARGE[:LARGE_BYTES]

    run(test())


def test_no_message_is_large(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a transaction that writes and reads 40,000 keys."""
    sizes: list[int] = []
    requests_of, responses_of = database_codec.requests_of, database_codec.responses_of
    monkeypatch.setattr("logdb.server.session.requests_of", lambda raw: sizes.append(len(raw)) or requests_of(raw))
    monkeypatch.setattr(
        "logdb.clients.server_connection.responses_of", lambda raw: sizes.append(len(raw)) or responses_of(raw)
    )
    values = {b"%0200d" % number: bytes(200) for number in range(40_000)}
    with logdb.connect(served.address) as db:
        with db.transaction() as txn:
            assert txn.multi_get(values) == {}
            for key, value in values.items():
                txn.put(key, value)
        db.put(b"k", LARGE)
        assert db.multi_get(values) == values
        assert db.get(b"k") == LARGE
        assert len(list(db.watch(keys=values, since=0, timeout=0))) == 1
    assert max(sizes) < MAX_MESSAGE_BYTES


def test_a_client_that_is_ahead_of_the_server(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a stream's uploads is bounded; an upload that exceeds it is rejected, and removed."""
    may_write = False
    take_room = uploads.Upload.take_room

    async def delayed(self: uploads.Upload, part: pb.Upload) -> None:
        await until(lambda: may_write)
        await take_room(self, part)

    monkeypatch.setattr(uploads.Upload, "take_room", delayed)

    async def test() -> None:
        nonlocal may_write
        async with Raw(served.address) as raw:
            for at in range(0, WINDOW_BYTES + 2 * PART_BYTES, PART_BYTES):
                await raw.send(part(1, at))
            assert "ahead of what was taken" in (await raw.answers(1))[1].failure.message
            may_write = True
            await raw.send(part(1, WINDOW_BYTES + 2 * PART_BYTES), get(b"k", 2))
            assert list(await raw.answers(1)) == [2]
            await until(lambda: not files_of(served.path or Path()))

    run(test())


def test_uploads_wait_for_memory_and_stalled_ones_are_cancelled(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.stop()
    monkeypatch.setattr(uploads, "MAX_VALUES", 1)
    monkeypatch.setattr(uploads, "STALLED_S", 0.2)
    served.start()

    async def test() -> None:
        async with Raw(served.address, client=1) as stalled, await logdb.aio.connect(served.address) as db:
            await stalled.send(part(1, 0))
            await until(lambda: served.server.load().values == 1)
            await asyncio.gather(*[db.put(b"%d" % number, LARGE) for number in range(3)])
            assert "nothing of the upload came" in (await stalled.answers(1))[1].failure.message
            assert await db.get(b"2") == LARGE
        await until(lambda: served.server.load().values == 0)

    run(test())


def test_large_requests_wait_for_memory(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a request that is larger than the whole limit."""
    served.stop()
    monkeypatch.setattr(uploads, "MAX_REQUESTS_BYTES", 1 << 20)
    served.start()
    values = {b"%d" % number: bytes(100_000) for number in range(20)}

    async def test() -> None:
        async with await logdb.aio.connect(served.address) as one, await logdb.aio.connect(served.address) as two:
            await asyncio.gather(*[db.multi_put(values) for db in (one, two) for _ in range(3)])
            assert await one.multi_get(values) == values
        assert served.server.load().request_bytes == 0

    run(test())


# ---- rejected uploads


@pytest.mark.parametrize(
    ("requests", "kind"),
    [
        ([part(1, 5)], "WireError"),
        ([part(1, 0), part(1, 0)], "WireError"),
        ([part(1, 0), part(1, PART_BYTES, length=LARGE_BYTES + 1)], "WireError"),
        ([part(1, 0, data=b"")], "WireError"),
        ([part(1, 0, length=LARGE_BYTES - 1)], "WireError"),
        ([part(1, 0, length=0)], "WireError"),
        ([part(1, 0, length=logdb.MAX_VALUE_BYTES + 1)], "ValueTooLarge"),
        ([part(1, 0, length=1 << 40)], "TransactionTooLarge"),
        ([part(1, 0, number=2)], "WireError"),
        ([part(1, 0, number=0, length=PART_BYTES)], "WireError"),
        ([part(1, 0), write_of(1, b"k")], "WireError"),
        ([write_of(1, b"k")], "WireError"),
        ([pb.Request(id=1, upload=pb.Upload(length=LARGE_BYTES, data=b"1", verb="nonsense"))], "WireError"),
        ([pb.Request(id=1, upload=pb.Upload(length=LARGE_BYTES, data=b"1", verb="upload"))], "WireError"),
        ([pb.Request(id=1, upload=pb.Upload(number=1, length=LARGE_BYTES, data=b"1", verb="get"))], "WireError"),
        (
            [pb.Request(id=1, upload=pb.Upload(length=database_codec.MAX_QUESTION_BYTES + 1, data=b"1", verb="get"))],
            "TransactionTooLarge",
        ),
    ],
)
def test_invalid_uploads(served: Served, requests: list[pb.Request], kind: str) -> None:
    async def test() -> None:
        async with Raw(served.address) as raw:
            await raw.send(*requests)
            assert (await raw.answers(1))[1].failure.kind == kind
            (answer,) = await raw.ask(get(b"k", 9))
            assert not answer.HasField("value")
            await until(lambda: not files_of(served.path or Path()))
        await until(lambda: served.server.load()[-2:] == (0, 0))

    run(test())


def test_an_upload_of_another_request_than_announced(served: Served) -> None:
    other = pb.Request(id=1, get=pb.Get(key=bytes(PART_BYTES))).SerializeToString()
    first, rest = other[:PART_BYTES], other[PART_BYTES:]

    async def test() -> None:
        async with Raw(served.address) as raw:
            options: dict[str, Any] = {"length": len(other), "number": 0}
            await raw.send(part(1, 0, data=first, **options), part(1, len(first), data=rest, **options))
            assert "the uploaded request is not" in (await raw.answers(1))[1].failure.message

    run(test())


def test_rights_are_checked_before_an_upload_is_accepted(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens.toml")
    served = Served(tmp_path / "db", Authenticator(Security(tokens=tokens.path)))
    seen: list[str] = []

    async def test() -> None:
        async with Raw(served.address, tokens.read) as raw:
            await raw.send(*[part(1, at) for at in range(0, WINDOW_BYTES, PART_BYTES)])
            seen.append((await raw.answers(1))[1].failure.kind)
            assert served.server.load().values == 0
            (answer,) = await raw.ask(get(b"k", 9))
            assert not answer.HasField("failure")

    try:
        run(test())
        with logdb.connect(served.address, token=tokens.read) as db, pytest.raises(logdb.AccessDenied):
            db.put(b"k", LARGE)
        assert (seen, files_of(tmp_path / "db")) == (["AccessDenied"], [])
    finally:
        served.close()


# ---- uploads that do not complete


def test_a_cancelled_upload_and_one_of_a_disconnected_client(served: Served) -> None:
    async def test() -> None:
        async with Raw(served.address) as raw:
            await raw.send(part(1, 0))
            await until(lambda: len(files_of(served.path or Path())) == 1)
            await raw.send(pb.Request(id=2, cancel=pb.Cancel(request=1)))
            await until(lambda: not files_of(served.path or Path()))
            await raw.send(part(3, 0))
            await until(lambda: len(files_of(served.path or Path())) == 1)
        await until(lambda: not files_of(served.path or Path()))
        async with await logdb.aio.connect(served.address) as db:
            assert [row async for row in db.scan()] == []

    run(test())


def test_a_caller_that_is_cancelled_during_an_upload(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its value is not written, and the next upload succeeds."""
    sent = 0
    next_part = ServerConnection._next_part

    def seen(self: ServerConnection[Any]) -> pb.Request | None:
        nonlocal sent
        found = next_part(self)
        sent += found is not None
        return found

    monkeypatch.setattr(ServerConnection, "_next_part", seen)

    async def test() -> None:
        async with await logdb.aio.connect(served.address) as db:
            putting = asyncio.ensure_future(db.put(b"cancelled", LARGE))
            await until(lambda: sent > 5)
            putting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await putting
            await db.put(b"k", LARGE)
            assert [key async for key, _ in db.scan()] == [b"k"]
            getting = asyncio.ensure_future(db.get(b"k"))
            await asyncio.sleep(0)
            getting.cancel()
            assert await db.get(b"k") == LARGE
        await until(lambda: not files_of(served.path or Path()))

    run(test())


def test_a_disk_without_room(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Disk, fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    with logdb.connect(served.address) as db:
        db.put(b"small", b"v")
        with monkeypatch.context() as patched:
            patched.setattr(Disk, "allocate", full)
            with pytest.raises(logdb.Unavailable, match=r"there is no space.*free some space"):
                db.put(b"k", LARGE)
        assert dict(db.scan()) == {b"small": b"v"}
        db.put(b"k", LARGE)
        assert db.get(b"k") == LARGE


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_server_that_is_killed_in_the_middle(tmp_path: Path, seed: int) -> None:
    """Each put that returned is stored completely, once, and no others; incomplete uploads leave no file."""
    rng = random.Random(seed)
    process = ServerProcess(tmp_path / "db")

    async def test() -> None:
        async with await logdb.aio.connect(process.address, timeout=120) as db:
            versions: dict[int, int] = {}

            async def write(worker: int) -> None:
                for number in range(worker, 8, 2):
                    versions[number] = await db.put(b"k%d" % number, bytes([number]) + LARGE)

            writers = [asyncio.create_task(write(worker)) for worker in range(2)]
            for _ in range(2):
                await asyncio.sleep(rng.uniform(0.02, 0.5))
                process.kill()
                await asyncio.to_thread(process.start)
            await asyncio.gather(*writers)
            written = [(change.version, *change.changes) async for change in db.watch(since=0, timeout=0)]
            assert written == sorted((version, b"k%d" % number) for number, version in versions.items())
            for number in range(8):
                assert await db.get(b"k%d" % number) == bytes([number]) + LARGE

    try:
        run(test())
        assert files_of(tmp_path / "db") == []
    finally:
        process.close()
