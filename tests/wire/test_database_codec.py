"""The database's wire: errors keep their type, and invalid bytes end only their own stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logdb
from logdb import errors
from logdb.api.results import Change
from logdb.txn.transaction import TransactionOver
from logdb.wire import database_codec
from logdb.wire.database_codec import METHOD, PROTOCOL, RELEASE
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb
from tests.harness.served import Served

ERRORS = [
    errors.LogDBError("something"),
    errors.ConflictError(b"\xff", 7, "winner", 5, in_range=True),
    errors.NotANumber(b"\xff"),
    errors.Unavailable("the disk is full"),
    errors.DatabaseInUse("/a/path", "process 1"),
    errors.OutcomeUnknown("0000000000000001-2", "the log failed"),
    errors.VersionTrimmed(1, 2),
    errors.FutureVersion(9, 8),
    errors.FutureVersion("of the time 9", 8),
    errors.ReadOnly("read_only=True"),
    errors.LimitExceeded(2, 1),
    errors.KeyTooLarge(2, 1, " b'k'"),
    errors.ValueTooLarge(2, 1),
    errors.TransactionTooLarge(1 << 40, 1),
    errors.DatabaseClosed("data"),
    errors.NotADatabase("no"),
    errors.UnsupportedFormat("/a", 2, 1),
    errors.ProtocolMismatch("a:1", 2, "9", 1, "8"),
    errors.AccessDenied("no"),
    errors.Corruption("/a\udc80", None, "torn"),
    errors.Corruption("/a", 12, "torn"),
    errors.IndexUnavailable("users", "by name"),
    errors.UniqueViolation("users", "by name", ("Ada",), (1,), (2,)),
    errors.TableMismatch("no"),
    errors.WriterFenced("orders", 1, 2),
    errors.BackupError("no"),
    errors.ColdTierError("no"),
    TransactionOver("over"),
    WireError("garbage"),
    ValueError("a value"),
    TypeError("a type"),
    KeyError("a pin"),
]


def arrived(error: Exception) -> Exception:
    return database_codec.failure_from(pb.Failure.FromString(database_codec.failure_to(error).SerializeToString()))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_keep_their_type(error: Exception) -> None:
    received = arrived(error)
    assert type(received) is type(error)
    assert str(received) == str(error).replace("\udc80", "?")
    assert {name: str(value).replace("\udc80", "?") for name, value in vars(error).items()} == {
        name: str(value) for name, value in vars(received).items()
    }
    if isinstance(error, errors.LogDBError):
        assert isinstance(received, errors.LogDBError)
        assert received.advice is error.advice


def test_every_error_has_a_sample() -> None:
    assert {type(error) for error in ERRORS} == set(database_codec.KINDS.values())


def test_an_unexpected_error_keeps_its_text() -> None:
    received = arrived(ZeroDivisionError("by zero"))
    assert isinstance(received, database_codec.ServerFailed)
    assert str(received) == "ZeroDivisionError: by zero"


items = st.dictionaries(st.binary(min_size=1), st.none() | st.binary())


@given(items)
def test_writes_arrive(written: dict[bytes, bytes | None]) -> None:
    writes = pb.Writes()
    database_codec.fill_writes(writes, written)
    assert database_codec.checked_writes(pb.Writes.FromString(writes.SerializeToString())) == written
    change = Change(1, 2, "label", written)
    assert (
        database_codec.change_from(pb.Change.FromString(database_codec.change_to(change).SerializeToString())) == change
    )


def test_conditions_arrive() -> None:
    made = [
        logdb.equals(b"k", b""),
        logdb.equals(b"k", bytes(10_000)),
        logdb.absent(b"k"),
        logdb.exists(b"k"),
        logdb.version_equals(b"k", 0),
        logdb.version_less(b"k", (1 << 64) - 1),
        logdb.version_greater(b"k", 1),
    ]
    raw = pb.Write(conditions=database_codec.conditions_to(made)).SerializeToString()
    assert database_codec.conditions_from(pb.Write.FromString(raw).conditions) == made


def raw_stream(address: str, messages: Iterator[bytes]) -> list[bytes]:
    """The replies of a server to these bytes. Raises RpcError."""
    with grpc.insecure_channel(address) as channel:
        return list(channel.stream_stream(METHOD)(messages, timeout=20))


def hello(**options: Any) -> bytes:
    return pb.Requests(hello=pb.Hello(protocol=PROTOCOL, client=1, timeout_ms=100, **options)).SerializeToString()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    served = Served(None)
    yield served
    served.close()


@settings(max_examples=100)
@given(st.binary())
def test_invalid_requests(served: Served, raw: bytes) -> None:
    """Invalid requests end their own stream, with a reason, or are answered; the server continues."""
    for messages in ([raw], [hello(), raw]):
        try:
            raw_stream(served.address, iter(messages))
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    with logdb.connect(served.address) as db:
        assert db.version >= 0


VERBS = {field.name: field for field in pb.Request.DESCRIPTOR.oneofs_by_name["verb"].fields}


def any_message(descriptor: Any) -> st.SearchStrategy[Any]:
    """Messages of a type with fields of any values that the wire can carry."""
    kind = getattr(pb, descriptor.name)
    texts, numbers = st.text(max_size=5), st.sampled_from([0, 1, 2, 7, 1 << 31, (1 << 32) - 1])

    def of(field: Any) -> st.SearchStrategy[Any]:
        if field.message_type is not None:
            found = any_message(field.message_type)
        elif field.type == field.TYPE_STRING:
            found = texts
        elif field.type == field.TYPE_BYTES:
            found = st.binary(max_size=5)
        elif field.type == field.TYPE_BOOL:
            found = st.booleans()
        else:
            found = numbers
        return st.lists(found, max_size=3) if field.is_repeated else found

    fields = {field.name: of(field) for field in descriptor.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: _made(kind, descriptor, values))


def _made(kind: Any, descriptor: Any, values: dict[str, Any]) -> Any:
    for oneof in descriptor.oneofs:
        for field in [field.name for field in oneof.fields if field.name in values][1:]:
            del values[field]
    return kind(**values)


UNANSWERED = ("end", "cancel")


@pytest.mark.parametrize("verb", VERBS)
@settings(max_examples=25)
@given(data=st.data())
def test_every_request_is_answered_with_any_arguments(served: Served, verb: str, data: st.DataObject) -> None:
    asked = data.draw(any_message(VERBS[verb].message_type))
    if verb == "watch":
        asked.wait_ms = 0
    batch = pb.Requests(requests=[pb.Request(id=1, **{verb: asked}), pb.Request(id=2, facts=pb.Facts())])
    answers = [pb.Responses.FromString(raw) for raw in exchange(served.address, batch)]
    by_id = {response.id: response for answer in answers for response in answer.responses}
    assert by_id[2].HasField("facts")
    if verb not in UNANSWERED:
        assert database_codec.KINDS.get(by_id[1].failure.kind) or not by_id[1].HasField("failure"), by_id[1]


def exchange(address: str, batch: pb.Requests) -> list[bytes]:
    """The replies of a server to a Hello and the batch, until all requests are answered."""
    wanted = {request.id for request in batch.requests if request.WhichOneof("verb") not in UNANSWERED}

    async def ask() -> list[bytes]:
        async with grpc.aio.insecure_channel(address) as channel:
            stream = channel.stream_stream(METHOD)()  # type: ignore[call-arg]
            await stream.write(hello())
            await stream.write(batch.SerializeToString())
            raws = [await stream.read()]
            while wanted:
                async with asyncio.timeout(20):
                    raws.append(await stream.read())
                responses = pb.Responses.FromString(raws[-1]).responses
                wanted.difference_update(each.id for each in responses if not each.HasField("progress"))
            return raws

    return asyncio.run(ask())


WELCOME = pb.Responses(welcome=pb.Welcome(protocol=PROTOCOL, release=RELEASE, database=b"x")).SerializeToString()


@pytest.mark.parametrize(
    "replies", [[b"\xff"], [WELCOME, b"\xff\xff"], [WELCOME], []], ids=["nonsense", "later", "end", "none"]
)
def test_invalid_replies_of_a_server(replies: list[bytes]) -> None:
    def answer(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        next(requests)
        yield from replies[:1]
        next(requests, None)
        yield from replies[1:]

    handler = grpc.stream_stream_rpc_method_handler(answer)
    other = grpc.server(ThreadPoolExecutor(4))
    service, name = METHOD.split("/")[1:]
    other.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
    address = f"127.0.0.1:{other.add_insecure_port('127.0.0.1:0')}"
    other.start()
    with pytest.raises(logdb.Unavailable, match=address):
        with logdb.connect(address, timeout=1) as db:
            db.get(b"k")
    other.stop(0)


def test_invalid_answers() -> None:
    with pytest.raises(WireError):
        database_codec.writes_from(pb.Writes(keys=[b"a"]))
    with pytest.raises(WireError):
        database_codec.writes_from(pb.Writes(keys=[b"a"], values=[b""], deleted=[1]))
    with pytest.raises(WireError):
        database_codec.entries_from(pb.Entries(versions=[1]))
