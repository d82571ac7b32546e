"""The encoding of commands, and their division into parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.cores.effects import ProtocolViolation
from logdb.log.multipaxos.commands import Append, Batch, Fragment, Trim, decode, encode, values_of
from logdb.log.multipaxos.state import LogState

number = st.integers(0, (1 << 64) - 1)
records = st.lists(st.tuples(st.integers(1, 255), st.binary(max_size=40)), min_size=1, max_size=5)
appends = st.builds(Append, number, number, number, records)
batches = st.builds(Batch, number, st.lists(appends, max_size=4))


@given(st.one_of(batches, st.builds(Trim, number, number)))
def test_a_command_survives_encoding_and_decoding(command: Batch | Trim) -> None:
    assert decode(encode(command)) == command


@given(batches, st.integers(1, 60))
def test_the_parts_of_a_command_are_joined(batch: Batch, size: int) -> None:
    values = values_of(encode(batch), size)
    assert len(values) == 1 or all(isinstance(decode(value), Fragment) for value in values)
    parts = [decode(value) for value in values]
    whole = b"".join([part.data for part in parts if isinstance(part, Fragment)]) or values[0]
    assert decode(whole) == batch


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(value: bytes) -> None:
    try:
        command = decode(value)
    except ProtocolViolation:
        return
    if isinstance(command, Batch | Trim):
        assert encode(command) == value


def test_a_batch_that_ends_too_early_is_refused() -> None:
    value = encode(Batch(1, [Append(1, 1, 1, [(1, b"abc")])]))
    with pytest.raises(ProtocolViolation, match="a batch of"):
        decode(value[:-1])


def test_the_parts_of_an_incomplete_command_are_discarded() -> None:
    """MPX-4: parts of two commands are never joined."""
    old = values_of(encode(Batch(1, [Append(1, 1, 1, [(1, b"old" * 40)])])), 50)
    new = values_of(encode(Batch(2, [Append(2, 1, 1, [(1, b"new" * 40)])])), 50)
    assert len(old) == len(new) > 2
    for left in range(1, len(old)):
        state = LogState()
        for value in old[:left]:
            assert not state.apply(value).records
        applied = [state.apply(value).records for value in new]
        assert [len(one) for one in applied] == [0] * (len(new) - 1) + [1]
        assert applied[-1][0][1].endswith(b"new" * 40)
    state = LogState()
    state.apply(old[0])
    state.apply(encode(Trim(1, 1)))
    assert not any(state.apply(value).records for value in old[1:])
    assert state.next_gsn == 1
