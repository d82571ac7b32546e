"""Packets: batching, splitting, limits of size, and the handshake of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from logdb.cluster import messages as mapping
from logdb.errors import Advice
from logdb.log.engine import ENGINES, MAX_HEADER_BYTES, engine_of
from logdb.log.paxos import messages as paxos
from logdb.txn.validation import COMMITTED
from logdb.wire import envelopes, limits
from logdb.wire.envelopes import (
    BUNDLED_BYTES,
    CLIENT,
    VERSION,
    Bundle,
    Envelope,
    Hello,
    Refusal,
    bundle,
    pack,
    pack_hello,
    pack_refusal,
    refusal_reason,
    unpack,
)
from logdb.wire.limits import (
    MAX_MESSAGE_BYTES,
    MAX_PACKET_BYTES,
    MAX_PLAIN_BYTES,
    MAX_RECORD_BYTES,
    PACKET_BYTES,
    TooLargeToSend,
    WireError,
    check_record,
)
from logdb.wire.schema import Packet
from tests.harness.samples import arrivals, sample, tight

BALLOT = paxos.Ballot(3, 1)
APPEND = sample(next(iter(engine_of(ENGINES[0]).wire.appends)))


def append(*payloads: bytes) -> Any:
    """A client's append of these records, as a message of the first engine."""
    return APPEND._replace(records=tuple((1, payload) for payload in payloads))


def replica_messages(messages: list[Any]) -> list[Any]:
    """The contents of messages between replicas, without their envelopes."""
    assert {message[:2] for message in messages} == {(1, (2, 3))}
    return [message.message for message in messages]


# ---- sharing


def test_no_messages_give_no_packet() -> None:
    assert pack("one:1", "two:2", []) == []


def test_messages_share_packets_up_to_their_size() -> None:
    small = [mapping.Hold(version) for version in range(100)]
    large = [append(bytes([n]) * (PACKET_BYTES // 3)) for n in range(4)]
    sent = pack("one:1", "two:2", [*small, *large])
    assert [len(arrivals([packet])) for packet in sent] == [102, 2]
    assert arrivals(sent) == [*small, *large]
    assert all(len(packet) <= PACKET_BYTES for packet in sent)


def test_a_large_message_has_its_own_packet() -> None:
    large = append(bytes(2 * PACKET_BYTES))
    small = mapping.Hold(4)
    sent = pack("one:1", "two:2", [small, large, small])
    assert arrivals(sent) == [small, large, small]
    assert [len(packet) > PACKET_BYTES for packet in sent] == [False, True, False]


def test_the_largest_record_can_be_sent() -> None:
    largest = append(bytes(MAX_RECORD_BYTES))
    (packet,) = pack("one:1", "two:2", [largest])
    assert len(packet) < MAX_PACKET_BYTES
    assert arrivals([packet]) == [largest]


def test_addresses_are_text() -> None:
    with pytest.raises(WireError, match="is not an address"):
        pack("one:1", 2, [mapping.Hold(1)])  # type: ignore[arg-type]


def test_packets_of_several_cores_are_bundled() -> None:
    packets = [pack(f"one:1/{n}", "two:2", [mapping.Hold(n), append(bytes(n))])[0] for n in range(1, 4)]
    one = unpack(bundle(packets))
    assert one == Bundle(tuple(packets))
    assert isinstance(one, Bundle)
    assert [unpack(packet) for packet in one.packets] == [
        Envelope(f"one:1/{n}", "two:2", [mapping.Hold(n), append(bytes(n))]) for n in range(1, 4)
    ]


@pytest.mark.parametrize("size", [0, 127, 128, 1 << 14, 1 << 20])
def test_a_bundle_is_not_larger_than_its_packets_and_a_constant_for_each(size: int) -> None:
    (packet,) = pack("one:1", "two:2", [append(bytes(size))])
    assert len(bundle([packet, packet])) <= 2 * (len(packet) + BUNDLED_BYTES)


# ---- splitting


def test_values_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, 200)
    values = tuple(bytes([n]) * 30 for n in range(40))
    parts = replica_messages(
        arrivals(pack("one:1", "two:2", [paxos.MemberEnvelope(1, (2, 3), paxos.Accept(BALLOT, 50, values, 49))]))
    )
    assert len(parts) > 1
    assert {part.first + n: it for part in parts for n, it in enumerate(part.values)} == dict(enumerate(values, 50))
    assert {(part.ballot, part.commit) for part in parts} == {(BALLOT, 49)}


def test_messages_of_clients_and_mapping_servers_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, 200)
    many = range(1, 40)
    wholes: list[Any] = [
        mapping.Reads(tuple(mapping.Read(n, mapping.Consistency.SESSION, n, mapping.Get((b"key",))) for n in many)),
        mapping.Answers(tuple(mapping.Answered(n, n, mapping.Entries(((n, b"value"),))) for n in many)),
        mapping.Busy(tuple(range(1 << 40, (1 << 40) + 40))),
        mapping.AwaitVerdicts(tuple(mapping.AwaitedTransaction(n, n, n) for n in many)),
        mapping.Verdicts(tuple(mapping.Decided(n, n, n, COMMITTED, "winner") for n in many)),
    ]
    for whole in wholes:
        parts = arrivals(pack("one:1", "two:2", [whole]))
        assert len(parts) > 1
        assert sum((part[0] for part in parts), ()) == whole[0]


def test_a_promise_that_is_too_large_has_fewer_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, 300)
    accepted = tuple((BALLOT, bytes(20)) for _ in range(40))
    (promise,) = replica_messages(
        arrivals(pack("one:1", "two:2", [paxos.MemberEnvelope(1, (2, 3), paxos.Promise(BALLOT, 7, accepted, 46))]))
    )
    assert 0 < len(promise.entries) < 40
    assert promise[:2] == (BALLOT, 7)
    assert promise.last == 46


# ---- sizes


def test_a_record_that_is_too_large_is_refused_with_limit_and_size() -> None:
    said = f"{MAX_RECORD_BYTES + 1:,} bytes.* limit is {MAX_RECORD_BYTES:,}"
    with pytest.raises(TooLargeToSend, match=said) as caught:
        pack("one:1", "two:2", [append(b"small", bytes(MAX_RECORD_BYTES + 1))])
    assert (caught.value.size, caught.value.limit) == (MAX_RECORD_BYTES + 1, MAX_RECORD_BYTES)
    assert caught.value.advice is Advice.GIVE_UP


def test_a_client_can_check_the_size_before_it_sends() -> None:
    check_record(MAX_RECORD_BYTES - MAX_HEADER_BYTES)
    with pytest.raises(TooLargeToSend):
        check_record(MAX_RECORD_BYTES - MAX_HEADER_BYTES + 1)


def test_an_indivisible_message_is_refused_with_limit_and_size() -> None:
    snapshot = bytes(MAX_MESSAGE_BYTES)
    with pytest.raises(TooLargeToSend, match=f"paxos_member_envelope of .* limit is {MAX_MESSAGE_BYTES:,}"):
        pack("one:1", "two:2", [paxos.MemberEnvelope(1, (2, 3), paxos.Install(BALLOT, 1, len(snapshot), 0, snapshot))])


def test_a_packet_that_is_too_large_is_refused() -> None:
    with pytest.raises(WireError, match=f"a packet of {MAX_PACKET_BYTES + 1:,} bytes, the limit"):
        unpack(bytes(MAX_PACKET_BYTES + 1))


@pytest.mark.parametrize(
    ("chunk", "complaint"),
    [
        (Packet(messages=[{}]).SerializeToString(), "more than 4 fields"),
        (Packet(sender="s" * 1000).SerializeToString(), "more than 4 fields"),
        (Packet(batches=[b""]).SerializeToString(), "more than 4 fields"),
        (
            Packet(messages=[{"paxos_join_request": {"nonces": [1] * MAX_PLAIN_BYTES}}]).SerializeToString(),
            "beside its",
        ),
    ],
    ids=["empty messages", "addresses", "empty batches", "numbers"],
)
def test_many_small_things_are_refused_before_they_are_built(
    chunk: bytes, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = chunk * (PACKET_BYTES // len(chunk) + 1)
    monkeypatch.setattr(envelopes, "Packet", Unbuilt)
    with pytest.raises(WireError, match=complaint):
        unpack(data)


def test_a_packet_of_many_small_messages_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    stars = append(b"*" * (PACKET_BYTES // 2))
    assert arrivals(pack("one:1", "two:2", [stars])) == [stars]
    many = [mapping.Hold(version) for version in range(40_000)]
    sent = pack("one:1", "two:2", many)
    assert len(sent) == 2
    assert arrivals(sent) == many
    monkeypatch.setattr(envelopes, "Packet", Unbuilt)
    with pytest.raises(WireError, match=f"more than {limits.MAX_FIELDS:,} fields"):
        unpack(Packet(messages=[{}]).SerializeToString() * (PACKET_BYTES // 2))


class Unbuilt:
    """A packet that must not be parsed."""

    BATCHES_FIELD_NUMBER = Packet.BATCHES_FIELD_NUMBER


@pytest.mark.parametrize(
    "end", [b"\x2a", b"\x2a\xff", b"\x2a\x05", b"\x08\x01", b"\x2a" + b"\xff" * 9, b"\x82\x01\x00"], ids=bytes.hex
)
def test_a_large_packet_with_an_invalid_end_is_refused(end: bytes) -> None:
    (packet,) = pack("one:1", "two:2", [append(bytes(MAX_PLAIN_BYTES))])
    unpack(packet)
    with pytest.raises(WireError):
        unpack(packet + end)


def test_the_limits_are_consistent() -> None:
    assert limits.PACKET_BYTES < limits.MAX_PLAIN_BYTES < limits.MAX_PACKET_BYTES
    assert limits.MAX_RECORD_BYTES < limits.MAX_BATCH_BYTES < limits.MAX_PACKET_BYTES < 1 << 31


# ---- the handshake

SERVER = Hello(
    VERSION, "orders", "storage", "10.0.0.1:7400", ("10.0.0.2:7400",), ("10.0.0.3:7400", "m:1"), founding=7, proof=9
)


@pytest.mark.parametrize("role", ["ordering", "storage", "aggregator", "mapping", "client"])
def test_a_hello_arrives(role: str) -> None:
    hello = SERVER._replace(role=role)
    assert unpack(pack_hello(hello)) == hello


def test_a_refusal_arrives() -> None:
    assert unpack(pack_refusal("not today")) == Refusal("not today")


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [
        (SERVER._replace(role="ordering", address="10.0.0.2:7400"), ""),
        (Hello(VERSION, "", CLIENT, "client-5"), ""),
        (Hello(VERSION, "orders", CLIENT, "client-5"), ""),
        (Hello(VERSION, "other", CLIENT, "c5"), "c5 is of cluster 'other', 10.0.0.1:7400 is of cluster 'orders'"),
        (Hello(VERSION, "", "storage", "b:1"), "b:1 is of cluster '', 10.0.0.1:7400 is of cluster 'orders'"),
        (Hello(VERSION + 1, "orders", CLIENT, "b:1"), "upgrade LogDB at 10.0.0.1:7400"),
        (Hello(VERSION - 1, "orders", CLIENT, "b:1"), "upgrade LogDB at b:1"),
        (Hello(VERSION + 1, "elsewhere", None, "b:1"), f"speaks version {VERSION + 1} of LogDB's protocol"),
        (Hello(VERSION, "orders", None, "b:1"), "b:1 has a role that 10.0.0.1:7400 does not know"),
        (Hello(VERSION, "orders", "storage", ""), "without an address"),
        (Hello(VERSION, "orders", "storage", "10.0.0.1:7400"), "under that same address"),
        (Hello(VERSION, "orders", "storage", "client-5"), "under a name, 'client-5'"),
        (Hello(VERSION, "orders", "ordering", "b:1"), "not one of the ordering replicas in the configuration"),
        (Hello(VERSION, "orders", "storage", "b:1", founding=7), ""),
        (Hello(VERSION, "orders", "storage", "b:1", founding=8), "met different ordering layers (8 and 7)"),
        (Hello(VERSION, "", CLIENT, "client-5", founding=8), "Restore their directories"),
    ],
)
def test_handshakes(theirs: Hello, reason: str) -> None:
    refusal = refusal_reason(SERVER, theirs)
    assert bool(refusal) == bool(reason)
    assert reason in refusal


def test_a_client_without_a_cluster_name_accepts_any() -> None:
    assert refusal_reason(Hello(VERSION, "", CLIENT, "client-5"), SERVER) == ""


def test_a_newer_version_is_recognized_by_its_number_only() -> None:
    """By field 1 of field 1, with other unknown fields and an unknown role; an older version lacks the field."""
    hello = unpack(bytes((0x0A, 8, 8, VERSION + 1, 0x18, 99, 0x3A, 2, 0x68, 0x69)))
    assert hello == Hello(VERSION + 1, "", None, "", bundles=False)
    assert isinstance(hello, Hello)
    assert f"version {VERSION + 1} " in refusal_reason(SERVER, hello)
    nothing = unpack(bytes.fromhex("0a00"))
    assert isinstance(nothing, Hello)
    assert "version 0" in refusal_reason(SERVER, nothing)


def test_a_hello_has_a_port_that_can_exist() -> None:
    """A client dialled without end, and logged a traceback each time."""
    assert unpack(pack_hello(SERVER._replace(port=65_535))) == SERVER._replace(port=65_535)
    with pytest.raises(WireError, match="65536"):
        unpack(pack_hello(SERVER._replace(port=65_536)))


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 40, b"\x0a\xff", b'{"hello": 1}'])
def test_strangers_are_refused(data: bytes) -> None:
    with pytest.raises(WireError, match="not a packet"):
        unpack(data)
