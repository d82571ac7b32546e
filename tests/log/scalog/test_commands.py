"""The encoding of commands: a round trip, and a clear error for other bytes."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.cores.effects import ProtocolViolation
from logdb.log.requests import AddReplica, AddShard, FinalizeShard, ReplaceServer
from logdb.log.scalog.messages import (
    AssignShard,
    DropAggregator,
    OpenSegment,
    Register,
    RegisterAggregator,
    SealSegment,
    SetParent,
    TrimLog,
)
from logdb.log.scalog.ordering.commands import (
    AggregatorFailed,
    ChangeCommand,
    Command,
    Cut,
    FailurePolicy,
    Replenish,
    ServerFailed,
    ServerJoined,
    ServerReturned,
    SetPolicy,
    decode,
    encode,
)

number, token, address = st.integers(0, 1 << 40), st.integers(0, (1 << 64) - 1), st.text(max_size=20)
servers = st.lists(number, max_size=4).map(tuple)
changes = st.one_of(
    st.builds(AddShard, servers),
    st.builds(FinalizeShard, number, number),
    st.builds(ReplaceServer, number, number),
    st.builds(AddReplica, number, number),
    st.builds(TrimLog, number),
    st.builds(SealSegment, number),
    st.builds(OpenSegment, number),
    st.builds(SetParent, address, address),
    st.builds(AssignShard, number, address),
    st.builds(DropAggregator, address),
)


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    shards, pairs = array("q"), array("q")
    for shard in sorted(draw(st.sets(st.integers(1, 100), max_size=5))):
        ends = draw(st.lists(st.tuples(number, number), max_size=3))
        shards.extend((shard, draw(number), draw(number), len(ends)))
        for pair in ends:
            pairs.extend(pair)
    return Cut(draw(number), shards, pairs)


commands = st.one_of(
    cuts(),
    st.builds(SetPolicy, st.sampled_from(FailurePolicy), number),
    st.builds(Register, token, address),
    st.builds(RegisterAggregator, address),
    st.builds(ChangeCommand, token, changes, servers),
    st.builds(ServerFailed, number, number, number, servers),
    st.builds(ServerReturned, number, number, number),
    st.builds(Replenish, servers),
    st.builds(ServerJoined, number, number),
    st.builds(AggregatorFailed, address, number),
)


@given(commands)
def test_a_command_survives_encoding_and_decoding(command: Command) -> None:
    back = decode(encode(command))
    assert back == command
    assert type(back) is type(command)


@given(st.binary(max_size=200))
def test_a_value_that_is_not_a_command_is_a_clear_error(value: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="not a command"):
        decode(value)


@given(commands, st.data())
def test_a_damaged_command_is_another_command_or_a_clear_error(command: Command, data: st.DataObject) -> None:
    value = bytearray(encode(command))
    for _ in range(data.draw(st.integers(1, 3))):
        if value:
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(value[: data.draw(st.integers(0, len(value)))]))
    except ProtocolViolation as error:
        assert "not a command" in str(error)


@pytest.mark.parametrize(
    ("reason", "cut"),
    [
        ("shards twice", Cut(1, array("q", [2, 1, 0, 0, 2, 1, 0, 0]), array("q"))),
        ("shards out of order", Cut(1, array("q", [2, 1, 0, 0, 1, 1, 0, 0]), array("q"))),
        ("pairs of no shard", Cut(1, array("q", [1, 1, 0, 1]), array("q", [5, 6, 7, 8]))),
        ("a negative count", Cut(1, array("q", [1, 1, 0, 2, 2, 1, 0, -1]), array("q", [5, 6]))),
        ("a negative end", Cut(1, array("q", [1, 1, 0, 1]), array("q", [5, -6]))),
    ],
)
def test_a_malformed_cut_is_rejected(reason: str, cut: Cut) -> None:
    with pytest.raises(ProtocolViolation, match="not a command"):
        decode(encode(cut))


def test_a_cut_costs_sixteen_bytes_for_a_segment() -> None:
    sizes = []
    for shards in (1, 2):
        flat = [(one, 1, 0, 2) for one in range(1, shards + 1)]
        cut = Cut(1, array("q", sum(flat, ())), array("q", [5, 6, 7, 8] * shards))
        sizes.append(len(encode(cut)))
    assert sizes[1] - sizes[0] == 32 + 2 * 16
