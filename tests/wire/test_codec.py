"""Every message is equal after encoding and decoding, and other bytes are rejected with a clear error."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb.cluster import messages as mapping
from logdb.log.contract import LogRecord
from logdb.log.engine import ENGINES, engine_of
from logdb.log.paxos import messages as paxos
from logdb.wire import packing
from logdb.wire.codec import KINDS
from logdb.wire.envelopes import VERSION, Bundle, Envelope, bundle, pack, unpack
from logdb.wire.limits import WireError
from logdb.wire.packing import pack_numbered, pack_records, unpack_numbered, unpack_records
from logdb.wire.schema import MESSAGE, Packet
from tests.harness.samples import any_message, conforms, message_types, messages, sample, sent, variants

GOLDEN = Path(__file__).with_name("golden.txt")
kinds = pytest.mark.parametrize("kind", message_types(), ids=lambda kind: f"{kind.__module__[10:16]}-{kind.__name__}")


# ---- encoding and decoding


def test_every_message_has_a_codec() -> None:
    assert set(KINDS) == set(message_types())
    assert len(KINDS) == len(MESSAGE.fields)


@kinds
def test_a_sample_arrives(kind: type) -> None:
    for variant in range(variants(kind)):
        message = sample(kind, variant)
        assert sent(message) == message
        assert conforms(sent(message), kind)


@kinds
@settings(max_examples=40)
@given(data=st.data())
def test_any_message_arrives(kind: type, data: st.DataObject) -> None:
    message = data.draw(messages(kind))
    arrived = sent(message)
    assert arrived == message
    assert conforms(arrived, kind)


@settings(max_examples=40)
@given(st.lists(any_message, min_size=1, max_size=12))
def test_many_arrive_in_their_order(batch: list[Any]) -> None:
    (packet,) = pack("one:1", "two:2", batch)
    assert unpack(packet) == Envelope("one:1", "two:2", batch)


def test_lists_are_encoded_like_tuples() -> None:
    append = sample(next(iter(engine_of(ENGINES[0]).wire.appends)))
    assert sent(append._replace(records=[(5, b"six")])) == append._replace(records=((5, b"six"),))
    said = sent(paxos.MemberEnvelope(1, [2, 3], paxos.Accept(paxos.Ballot(1, 2), 3, [b"four", b""], 5)))
    assert said.roster == (2, 3)
    assert said.message.values == (b"four", b"")


# ---- golden bytes


def test_the_bytes_of_this_version_have_not_changed() -> None:
    """A node of the same version must understand them. When this fails: raise VERSION in `logdb/wire/envelopes.py`,
    then `python -m tests.wire.test_codec` writes the new bytes."""
    assert GOLDEN.read_text() == golden(), test_the_bytes_of_this_version_have_not_changed.__doc__


def golden() -> str:
    """Samples of each message, and their encoded bytes."""
    lines = [f"version {VERSION}"]
    for kind, (name, *_) in sorted(KINDS.items(), key=lambda item: item[1][0]):
        for variant in range(variants(kind)):
            (packet,) = pack("", "", [sample(kind, variant)])
            lines.append(f"{name} {packet.hex()}")
    busy, hold = [pack("", "", [message])[0] for message in (mapping.Busy((1, 2)), mapping.Hold(3))]
    lines.append(f"a bundle of mapping_busy and mapping_hold {bundle([busy, hold]).hex()}")
    return "\n".join(lines) + "\n"


# ---- messages that cannot be sent


@pytest.mark.parametrize(
    "message",
    [
        mapping.Hold(-1),
        mapping.Hold(1 << 63),
        mapping.Hold("3"),  # type: ignore[arg-type]
        paxos.MemberEnvelope(1, (2, 3), mapping.Hold(1)),  # type: ignore[arg-type]
        mapping.Get((b"key",)),
        "a text",
    ],
)
def test_an_invalid_message_is_rejected_when_sent_or_received(message: Any) -> None:
    with pytest.raises(WireError):
        sent(message)


# ---- received bytes that are not a message


def rejected_or_valid(data: bytes) -> None:
    """Check that these bytes are rejected, or decode to messages whose fields have valid types."""
    try:
        mail = unpack(data)
        for one in map(unpack, mail.packets) if isinstance(mail, Bundle) else (mail,):
            if isinstance(one, Envelope):
                assert all(conforms(message, type(message)) for message in one.messages)
    except WireError:
        return


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_random_bytes_are_rejected(data: bytes) -> None:
    rejected_or_valid(data)


@settings(max_examples=300)
@given(st.lists(any_message, min_size=1, max_size=3), st.data())
def test_damaged_packets_are_rejected_or_valid(batch: list[Any], data: st.DataObject) -> None:
    (packet,) = pack("one:1", "two:2", batch)
    damaged = bytearray(data.draw(st.sampled_from((packet, bundle([packet, packet])))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    rejected_or_valid(bytes(damaged))


@kinds
def test_every_prefix_of_a_packet_is_rejected_or_valid(kind: type) -> None:
    (packet,) = pack("one:1", "two:2", [sample(kind)])
    for end in range(len(packet)):
        rejected_or_valid(packet[:end])


def answer(result: dict[str, Any]) -> list[dict[str, Any]]:
    """A mapping server's answer, as on the wire."""
    return [{"mapping_answers": {"answers": [{"result": result}]}}]


def part(rows: dict[str, Any]) -> list[dict[str, Any]]:
    """A part of a checkpoint, as on the wire."""
    return [{"mapping_slice": {"part": rows}}]


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([{}], "an unknown kind"),
        ([{"paxos_member_envelope": {"message": {"accept": {"ballot": {"round": -1}}}}}], "Ballot with round -1"),
        ([{"paxos_member_envelope": {"roster": [1, 2], "message": {}}}], "a Message of an unknown kind"),
        ([{"paxos_join_request": {"nonces": [1, -2]}}], "an invalid position"),
        ([{"mapping_reads": {"reads": [{"consistency": 1}]}}], "a Question of an unknown kind"),
        ([{"mapping_reads": {"reads": [{"question": {"version": {}}}]}}], "0 is not a Consistency"),
        (answer({"entries": {"entries": {"versions": [1]}}}), "0 values of 0 kinds where there are 1"),
        (answer({"entries": {"entries": {"versions": [1], "values": [b""], "kinds": b"\1\1"}}}), "1 values of 2 kinds"),
        (answer({"entries": {"entries": {"versions": [-1], "values": [b""]}}}), "an invalid position"),
        (answer({"rows": {"rows": {"values": [b""]}}}), "1 values of 0 kinds where there are 0"),
        (answer({"rows": {"rows": {"keys": [b"k"], "values": [b"v"], "kinds": b"\1"}}}), "1 bytes and of kind 1"),
        (answer({"rows": {"rows": {"keys": [b"k"], "values": [b"v"], "kinds": b"\2"}}}), "1 bytes and of kind 2"),
        (answer({"rows": {"rows": {"keys": [b"k"], "values": [b"\xff" * 36], "kinds": b"\2"}}}), "is not a place"),
        (answer({"rows": {"rows": {"keys": [b"k"], "values": [b"v"], "kinds": b"\3"}}}), "of kind 3"),
        (part({"map_rows": {"rows": {"keys": [b"k"], "values": [b"v"], "numbers": [1]}}}), "1 numbers for 1 keys"),
        (part({"head_rows": {"rows": [b"k"]}}), "1 strings where each row has 2"),
    ],
)
def test_wrong_values_are_named(messages: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        unpack(Packet(messages=messages).SerializeToString())


def test_a_batch_without_its_message_is_refused() -> None:
    with pytest.raises(WireError, match="without its message"):
        unpack(Packet(messages=[{"mapping_hold": {}}], batches=[b""]).SerializeToString())


# ---- batches of records


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        (b"\1", "a batch of 1 bytes"),
        (bytes(4), "a batch of 0 records"),
        (struct.pack("<I", 0xFFFFFFFF) + bytes(16), "4,294,967,295 records in 20 bytes"),
        (struct.pack("<IBI", 1, 7, 0xFFFFFFFF), "have 4,294,967,304"),
        (struct.pack("<IBI", 1, 7, 3) + b"ab", "have 12"),
        (struct.pack("<IBI", 1, 7, 3) + b"abcd", "have 12"),
        (struct.pack("<IBI", 1, 0, 3) + b"abc", "tag 0"),
    ],
)
def test_a_wrong_batch_is_refused(batch: bytes, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        unpack_records(batch)


def test_a_stored_record_has_a_client_and_a_number() -> None:
    assert unpack_records(pack_records([(1, bytes(16))]), 16) == ((1, bytes(16)),)
    with pytest.raises(WireError, match="15 to 15 bytes"):
        unpack_records(pack_records([(1, bytes(15))]), 16)


@pytest.mark.parametrize("record", [LogRecord(-1, 1, 1, bytes(16)), LogRecord(1, -1, 1, bytes(16))])
def test_a_numbered_record_has_a_position_and_a_time(record: LogRecord) -> None:
    with pytest.raises(WireError, match="negative"):
        unpack_numbered(pack_numbered([record]))


def test_a_batch_that_could_not_be_sent_on_with_its_numbers_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corfu keeps the records of a request together, and a server ended when it had to send these to a reader."""
    records = [(1, bytes(90))] * 9
    batch = pack_records(records)
    for bytes_, is_refused in ((4 + 9 * (90 + 21), False), (len(batch), True)):
        monkeypatch.setattr(packing, "MAX_BATCH_BYTES", bytes_)
        if is_refused:
            with pytest.raises(WireError, match="cannot be sent"):
                unpack_records(batch)
        else:
            assert unpack_records(batch) == tuple(records)
            assert pack_numbered([LogRecord(1, 1, *record) for record in records])


@settings(max_examples=200)
@given(st.binary(max_size=80))
def test_random_bytes_are_rejected_as_a_batch(batch: bytes) -> None:
    for unpacked in (unpack_records, unpack_numbered):
        try:
            unpacked(batch)
        except WireError:
            continue


if __name__ == "__main__":
    GOLDEN.write_text(golden())
