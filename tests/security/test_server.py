"""A server of one directory, on real sockets: access, rights, and the errors of denied clients."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

import logdb
import logdb.aio
from logdb.clients.server_connection import ServerConnection
from logdb.log.engine import Right
from logdb.security import access
from logdb.security.access import add
from logdb.security.authenticator import Authenticator, Security
from logdb.server import server
from logdb.wire import database_codec
from logdb.wire.proto import database_pb2 as pb
from tests.harness.raw import Raw
from tests.harness.secured import Tokens
from tests.harness.served import Served
from tests.security.conftest import Files, Serve

TIMEOUT_S = 20


def connect(served: Served, **options: Any) -> logdb.Database:
    return logdb.connect(served.address, timeout=TIMEOUT_S, **options)


def works(served: Served, **options: Any) -> None:
    with connect(served, **options) as db:
        assert db.get(b"k") is None
        assert db.at(db.put(b"k", b"1")).get(b"k") == b"1"
        with db.transaction() as txn:
            txn[b"k"] = (txn[b"k"] or b"") + b"2"
        assert db[b"k"] == b"12"
        db.delete(b"k")


def refused(served: Served, message: str, error: type[logdb.LogDBError] = logdb.Unavailable, **options: Any) -> None:
    """Connecting fails with one line that matches `message`."""
    with pytest.raises(error, match=message) as caught:
        connect(served, **options)
    assert served.address in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# ---- accepted clients


def test_tls(serve: Serve, files: Files) -> None:
    works(serve(files.security()), **files.credentials())


def test_mutual_tls(serve: Serve, files: Files) -> None:
    works(serve(files.security(ca=files.ca)), **files.credentials("ada"))


def test_a_certificate_and_its_key_in_one_file(serve: Serve, files: Files, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(files.ada.read_bytes() + files.ada.with_suffix(".key").read_bytes())
    works(serve(files.security(ca=files.ca)), ca=files.ca, certificate=both)


def test_a_token_with_tls_and_without(serve: Serve, files: Files, tokens: Tokens) -> None:
    works(serve(files.security(tokens=tokens.path)), **files.credentials(), token=tokens.write)
    works(serve(Security(tokens=tokens.path)), token=tokens.write)


def test_asyncio(serve: Serve, files: Files, tokens: Tokens) -> None:
    async def main() -> None:
        served = serve(files.security(ca=files.ca, tokens=tokens.path))
        async with await logdb.aio.connect(served.address, **files.credentials("grace"), token=tokens.write) as db:
            assert await db.get(b"k") is None
            await db.put(b"k", b"1")
        with pytest.raises(logdb.AccessDenied, match="not known here"):
            await logdb.aio.connect(served.address, **files.credentials("grace"), token="wrong")

    asyncio.run(main())


# ---- rejected clients


def test_plain_against_tls(serve: Serve, files: Files) -> None:
    for security in (files.security(), files.security(ca=files.ca)):
        refused(serve(security), r"it speaks TLS: name the CA of its certificate \(ca, --ca, LOGDB_CA\)")


def test_tls_against_plain(serve: Serve, files: Files) -> None:
    refused(
        serve(), "it does not speak TLS: connect without a CA, or start it with a certificate", **files.credentials()
    )


def test_a_server_of_another_authority(serve: Serve, files: Files) -> None:
    refused(
        serve(files.security()),
        "its certificate is not signed by the given CA",
        **files.credentials(ca=files.others / "ca.pem"),
    )


@pytest.mark.usefixtures("_whatever_the_date")
def test_a_server_whose_certificate_has_expired(serve: Serve, files: Files, tmp_path: Path) -> None:
    expired = files.another(tmp_path / "expired", ["127.0.0.1"], days=0)
    refused(serve(files.security(expired)), "its certificate has expired: renew it there", **files.credentials())


def test_a_server_of_another_host(serve: Serve, files: Files, tmp_path: Path) -> None:
    elsewhere = files.another(tmp_path / "elsewhere", ["elsewhere.example", "127.0.0.2"])
    refused(
        serve(files.security(elsewhere)),
        "its certificate is not valid for 127.0.0.1: use a name",
        **files.credentials(),
    )


def test_a_server_with_a_certificate_of_a_client(serve: Serve, files: Files) -> None:
    refused(serve(files.security(files.ada)), "its certificate is a client's", **files.credentials())


def test_no_certificate_where_one_is_required(serve: Serve, files: Files, tokens: Tokens) -> None:
    served = serve(files.security(ca=files.ca, tokens=tokens.path))
    refused(served, "it requires a certificate: present one with its key", **files.credentials(), token=tokens.admin)


def test_a_certificate_of_another_authority(serve: Serve, files: Files) -> None:
    options = {
        **files.credentials("ada"),
        "certificate": files.others / "ada.pem",
        "certificate_key": files.others / "ada.key",
    }
    refused(serve(files.security(ca=files.ca)), "it rejects the certificate in .*others/ada.pem", **options)


def test_an_expired_certificate(serve: Serve, files: Files, tmp_path: Path) -> None:
    served = serve(files.security(ca=files.ca))
    expired = files.another(tmp_path / "expired", ["127.0.0.1"], days=0)
    pair = {"certificate": expired, "certificate_key": expired.with_suffix(".key")}
    with pytest.raises(ValueError, match=r"the certificate in .*server.pem has expired: 20.* \(UTC\)"):
        connect(served, ca=files.ca, **pair)


@pytest.mark.usefixtures("_whatever_the_date")
def test_an_expired_certificate_of_a_client_is_rejected(serve: Serve, files: Files, tmp_path: Path) -> None:
    expired = files.another(tmp_path / "expired", ["127.0.0.1"], days=0)
    pair = {"certificate": expired, "certificate_key": expired.with_suffix(".key")}
    refused(serve(files.security(ca=files.ca)), "it rejects the certificate", ca=files.ca, **pair)


def test_no_token_and_a_wrong_one(serve: Serve, files: Files, tokens: Tokens) -> None:
    for security, options in (
        (files.security(tokens=tokens.path), files.credentials()),
        (Security(tokens=tokens.path), {}),
    ):
        served = serve(security)
        refused(served, "denies access: a token is needed here, and none came", logdb.AccessDenied, **options)
        for wrong in ("x", tokens.read[:-1], access.hashed(tokens.read)):
            refused(served, "denies access: the token is not known here", logdb.AccessDenied, **options, token=wrong)


def test_a_certificate_that_the_tokens_file_does_not_name(serve: Serve, files: Files, tokens: Tokens) -> None:
    served = serve(files.security(ca=files.ca, tokens=tokens.path))
    refused(served, "the certificate of 'grace' has no right here", logdb.AccessDenied, **files.credentials("grace"))


def test_a_certificate_does_not_replace_a_token(serve: Serve, files: Files, tokens: Tokens) -> None:
    add(tokens.path, "grace", Right.ADMIN)
    served = serve(files.security(ca=files.ca, tokens=tokens.path))
    refused(served, "the certificate of 'grace' has no right here", logdb.AccessDenied, **files.credentials("grace"))


def test_a_denied_client_gets_no_information(serve: Serve, tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the identity of the database."""
    received: list[Any] = []
    check = ServerConnection._check

    def record(endpoint: str, welcome: Any) -> None:
        received.append(welcome)
        check(endpoint, welcome)

    monkeypatch.setattr(ServerConnection, "_check", staticmethod(record))
    refused(serve(Security(tokens=tokens.path)), "a token is needed", logdb.AccessDenied)
    assert [(welcome.database, welcome.refusal) for welcome in received] == [(b"", "access")]


def test_denied_clients_do_not_flood_the_log(serve: Serve, tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(Security(tokens=tokens.path))
    for _ in range(40):
        with pytest.raises(logdb.AccessDenied):
            connect(served, token="wrong")
    lines = [record for record in caplog.records if record.getMessage() == "access denied"]
    assert 1 <= len(lines) < 40
    assert "the token is not known here" in vars(lines[0])["why"]


def test_denied_requests_do_not_flood_the_log(serve: Serve, tokens: Tokens, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(Security(tokens=tokens.path))
    requests = [pb.Request(write=pb.Write()), pb.Request(commit=pb.Commit(sequence=1)), pb.Request(pin=pb.Pin())]

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), Raw(served.address, tokens.read) as raw:
            for _ in range(20):
                await raw.send(*[pb.Request.FromString(each.SerializeToString()) for each in requests])
                answers = await raw.answers(len(requests))
                assert {answer.failure.kind for answer in answers.values()} == {"AccessDenied"}

    asyncio.run(main())
    assert served.server.refusals.count == 60
    lines = [vars(record)["why"] for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(lines) < 60
    assert 'may only read, and this needs the right "write"' in lines[0]


def test_streams_without_a_hello_do_not_flood_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_S", 0.01)
    served = serve(None)

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), grpc.aio.insecure_channel(served.address) as channel:
            streams: list[Any] = [channel.stream_stream(database_codec.METHOD)() for _ in range(40)]
            for stream in streams:
                with pytest.raises(grpc.aio.AioRpcError, match="no Hello came"):
                    await stream.read()

    asyncio.run(main())
    assert served.server.refusals.count == 40
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert 1 <= len(lines) < 40
    assert not any(record.exc_info for record in lines)


def test_no_request_of_a_denied_client_is_read(serve: Serve, tokens: Tokens) -> None:
    """The server rejects the stream before the client sends anything."""
    served = serve(Security(tokens=tokens.path))

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), grpc.aio.insecure_channel(served.address) as channel:
            stream: Any = channel.stream_stream(database_codec.METHOD)()
            assert b"a token is needed here" in await stream.read()

    asyncio.run(main())


def test_a_token_is_not_sent_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", None)
    with pytest.raises(ValueError, match=r"a token for 192.0.2.1:7400 would be sent in the clear: name the CA"):
        logdb.connect("192.0.2.1:7400", token="secret")


def test_no_endpoint_may_need_a_token_in_the_clear(serve: Serve) -> None:
    """Also none that is tried only when an earlier one is lost: then every call of the client failed from there on."""
    address = serve(Security()).address
    with pytest.raises(ValueError, match=r"a token for 192.0.2.1:7400 would be sent in the clear: name the CA"):
        logdb.connect([address, "192.0.2.1:7400"], token="secret")
    with pytest.raises(ValueError, match=r"a token for 192.0.2.1:7400 would be sent in the clear: name the CA"):
        asyncio.run(logdb.aio.connect([address, "192.0.2.1:7400"], token="secret"))


# ---- rights


def _reads(db: logdb.Database) -> None:
    with db.transaction() as txn:
        txn.get(b"k")


def _writes(db: logdb.Database) -> None:
    with db.transaction() as txn:
        txn[b"k"] = txn.get(b"k") or b"3"


READS: dict[str, Callable[[logdb.Database], Any]] = {
    "get": lambda db: db.get(b"k"),
    "multi_get": lambda db: db.multi_get([b"k"]),
    "scan": lambda db: list(db.scan()),
    "multi_scan": lambda db: db.multi_scan([(b"a", b"b"), (b"k", None)]),
    "history": lambda db: list(db.history(b"k")),
    "version": lambda db: db.version,
    "oldest": lambda db: db.oldest_version,
    "pins": lambda db: db.pins,
    "watch": lambda db: list(db.watch(since=0, timeout=0)),
    "outcome": lambda db: db.outcome(f"{1:016x}-1"),
    "a transaction that reads": _reads,
}
WRITES: dict[str, Callable[[logdb.Database], Any]] = {
    "put": lambda db: db.put(b"k", b"1"),
    "delete": lambda db: db.delete(b"k"),
    "test_and_multi_put": lambda db: db.test_and_multi_put([logdb.absent(b"z")], {b"k": b"2"}),
    "a transaction": _writes,
    "pin": lambda db: db.pin("p"),
    "unpin": lambda db: db.unpin("p"),
    "settle": lambda db: db.outcome(f"{1:016x}-2", settle=True),
}
ADMINISTERS: dict[str, Callable[[logdb.Database], Any]] = {
    "compact": lambda db: db.compact(),
    "checkpoint": lambda db: db.checkpoint(),
}


@pytest.mark.parametrize("right", ["read", "write", "admin"])
def test_each_verb_needs_its_right(serve: Serve, tokens: Tokens, right: str) -> None:
    verbs = {Right.READ: READS, Right.WRITE: WRITES, Right.ADMIN: ADMINISTERS}
    with connect(serve(Security(tokens=tokens.path)), token=getattr(tokens, right)) as db:
        for needed, calls in verbs.items():
            for name, call in calls.items():
                if needed <= Right[right.upper()]:
                    call(db)
                    continue
                with pytest.raises(logdb.AccessDenied, match=f'this needs the right "{needed.label}"'):
                    call(db)
                    pytest.fail(f"{name} was allowed")


def test_a_denied_call_changes_nothing(serve: Serve, tokens: Tokens) -> None:
    served = serve(Security(tokens=tokens.path))
    with connect(served, token=tokens.read) as reader, connect(served, token=tokens.write) as writer:
        version = writer.put(b"k", b"1")
        for call in WRITES.values():
            with pytest.raises(logdb.AccessDenied):
                call(reader)
        assert (writer.version, writer[b"k"], writer.pins) == (version, b"1", {})
        assert not served.host.embedded.snapshots.leased(), "leases of a denied transaction are released"


def test_every_verb_of_the_wire_has_a_right() -> None:
    from logdb.server.permissions import VERB_RIGHTS

    names = {Right.NONE: "end cancel", Right.WRITE: "write pin unpin", Right.ADMIN: "compact checkpoint"}
    reads = "get multi_get begin commit scan multi_scan history at outcome watch facts layout frames aborted upload"
    names[Right.READ] = reads
    assert {name: right for right, text in names.items() for name in text.split()} == VERB_RIGHTS


# ---- changes of the tokens file


@pytest.fixture
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LOOK_S", 0)


@pytest.mark.usefixtures("_looks_at_once")
def test_a_token_that_is_withdrawn(serve: Serve, tokens: Tokens) -> None:
    served = serve(Security(tokens=tokens.path))
    with connect(served, token=tokens.write) as db:
        db.put(b"k", b"1")
        text = tokens.path.read_text()
        tokens.path.write_text(text.replace('["writeer"]', '["somebody"]'))
        with pytest.raises(logdb.AccessDenied, match="'writeer' no longer has a right here: ask for a new token"):
            db.get(b"k")
        tokens.path.write_text(text)
        assert db.get(b"k") == b"1"


@pytest.mark.usefixtures("_looks_at_once")
def test_a_watch_that_waits_ends_with_its_token(serve: Serve, tokens: Tokens) -> None:
    served = serve(Security(tokens=tokens.path))

    async def test() -> None:
        async with asyncio.timeout(TIMEOUT_S), Raw(served.address, tokens.read) as raw:
            await raw.send(pb.Request(watch=pb.Watch(wait_ms=60_000)))
            while not served.server.load().waiting:
                await asyncio.sleep(0)
            async with Raw(served.address, tokens.write) as writer:
                tokens.path.write_text(tokens.path.read_text().replace('["reader"]', '["somebody"]'))
                write = pb.Write(sequence=1, writes=pb.Writes(keys=[b"k"], values=[b"a secret"]))
                await writer.ask(pb.Request(write=write))
            (answer,) = (await raw.answers(1)).values()
            assert answer.failure.kind == "AccessDenied"
            assert not answer.HasField("changes")

    asyncio.run(test())


@pytest.mark.usefixtures("_looks_at_once")
def test_queued_pages_are_dropped_with_their_token(serve: Serve, tokens: Tokens) -> None:
    """Pages made before the token was withdrawn are dropped, but acknowledgements of writes are sent."""
    served = serve(Security(tokens=tokens.path))

    async def test() -> None:
        async with asyncio.timeout(TIMEOUT_S), Raw(served.address, tokens.write) as raw:
            value = bytes(1 << 20)
            write = pb.Write(sequence=1, writes=pb.Writes(keys=[b"k"], values=[value]))
            version = (await raw.ask(pb.Request(write=write)))[0].version
            write = pb.Write(sequence=2, writes=pb.Writes(keys=[b"k"], values=[b"2"]))
            gets = [pb.Request(multi_get=pb.MultiGet(keys=[b"k"], at=version)) for _ in range(100)]
            await raw.send(pb.Request(id=1_000, write=write), *gets)
            while served.server.load().answer_bytes < 8 << 20:
                await asyncio.sleep(0)
            tokens.path.write_text("")
            found = await raw.answers(101)
            assert found.pop(1_000).version > version
            kinds = [found[number].failure.kind for number in sorted(found)]
            assert kinds == sorted(kinds), "all answers after the first denial are denials"
            assert kinds[-85:] == 85 * ["AccessDenied"]

    asyncio.run(test())


@pytest.mark.usefixtures("_looks_at_once")
def test_a_token_that_is_replaced_by_another(serve: Serve, tokens: Tokens) -> None:
    with connect(serve(Security(tokens=tokens.path)), token=tokens.read) as db:
        assert db.get(b"k") is None
        text = tokens.path.read_text()
        tokens.path.write_text(text.replace(access.hashed(tokens.read), access.hashed("another one")))
        with pytest.raises(logdb.AccessDenied, match="'reader' no longer has a right here"):
            db.get(b"k")


@pytest.mark.usefixtures("_looks_at_once")
def test_a_right_that_is_added(serve: Serve, tokens: Tokens) -> None:
    with connect(serve(Security(tokens=tokens.path)), token=tokens.read) as db:
        with pytest.raises(logdb.AccessDenied):
            db.put(b"k", b"1")
        text = tokens.path.read_text()
        tokens.path.write_text(text.replace('right = "read"', 'right = "write"'))
        db.put(b"k", b"1")


@pytest.mark.usefixtures("_looks_at_once")
def test_a_new_token_is_accepted(serve: Serve, tokens: Tokens) -> None:
    served = serve(Security(tokens=tokens.path))
    works(served, token=add(tokens.path, "new", Right.WRITE))


# ---- listening addresses


@pytest.mark.parametrize("listen", ["0.0.0.0:7400", "[::]:7400", "db.example:7400", "10.0.0.1:7400"])
def test_other_than_loopback_requires_security(listen: str, files: Files, tokens: Tokens) -> None:
    for security in (Security(), Security(tokens=tokens.path)):
        with pytest.raises(ValueError, match="can be reached from other machines: name a certificate"):
            security.check(listen)
    with pytest.raises(ValueError, match="where every client would have all rights: name a"):
        files.security().check(listen)
    files.security(tokens=tokens.path).check(listen)
    files.security(ca=files.ca).check(listen)


def test_a_server_that_requires_certificates_needs_its_own(files: Files) -> None:
    for security in (Security(ca=files.ca), Security(key=files.server)):
        with pytest.raises(ValueError, match="needs its own"):
            security.check("127.0.0.1:7400")


def test_an_authenticator_reads_its_files(files: Files, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.toml cannot be read: No such file"):
        Authenticator(Security(tokens=tmp_path / "no.toml"))
    with pytest.raises(ValueError, match="is not that of the certificate"):
        Authenticator(Security(certificate=files.server, key=files.ada.with_suffix(".key")))
