"""The core of a replica: records, sessions, the state, outgoing commands, snapshots."""

from __future__ import annotations

import pytest

from logdb.log.contract import Batch, LogRecord, Record
from logdb.smr.core import sessions as sessions_module
from logdb.smr.core.outbox import MAX_IN_FLIGHT, Outbox, Pending
from logdb.smr.core.records import (
    CHUNK,
    COMMANDS,
    DIGEST,
    OPEN,
    VERIFY,
    Commands,
    Digest,
    commands_record,
    decode_chunk,
    decode_commands,
    decode_digest,
    digest_record,
    open_record,
    verify_record,
)
from logdb.smr.core.sessions import SESSION_TTL_NS, WINDOW, Failure, Forgotten, Sessions
from logdb.smr.core.snapshots import CHUNK_BYTES, SnapshotFinder, chunks
from logdb.smr.core.state import ReplicaState
from logdb.smr.errors import CommandId, ForeignRecord
from tests.smr.machines import Journal


class Driven:
    """A state, and the log that it applies."""

    def __init__(self) -> None:
        self.state = ReplicaState(Journal())
        self.last = 0
        self.time = 1

    def apply(self, *records: Record) -> list[tuple[CommandId, object]]:
        first, self.last = self.last + 1, self.last + len(records)
        made = [LogRecord(gsn, self.time, *record) for gsn, record in enumerate(records, first)]
        found, self.digests, self.conflicts = self.state.apply(Batch(first, self.last + 1, made), range(1_000))
        self.state.check_invariants()
        return list(found)

    def command(self, number: int, *payloads: bytes, session: int = 1, acknowledged: int = 0) -> list[object]:
        found = self.apply(commands_record(Commands(session, acknowledged, number, payloads)))
        return [outcome for _, outcome in found]


def opened() -> Driven:
    driven = Driven()
    driven.apply(open_record())
    return driven


def test_a_repeated_command_returns_its_first_result() -> None:
    driven = opened()
    assert driven.command(1, b"a", b"-b", b"c") == [b"1", Failure("ValueError", "-b is refused, the 1th"), b"2"]
    assert driven.command(1, b"a", b"-b", b"c", b"d")[3:] == [b"3"]
    assert driven.command(2, b"other") == [Failure("ValueError", "-b is refused, the 1th")]
    assert driven.state.machine.entries == ["a", "c", "d"]


def test_numbers_may_arrive_in_any_order() -> None:
    driven = opened()
    assert driven.command(5, b"five") == [b"1"]
    assert driven.command(4, b"four") == [b"2"]
    assert driven.command(4, b"four", b"five") == [b"2", b"1"]


def test_acknowledged_results_are_forgotten() -> None:
    driven = opened()
    driven.command(1, b"a", b"b")
    driven.command(3, b"c", acknowledged=2)
    assert driven.command(1, b"a", b"b") == [Forgotten.FORGOTTEN, b"2"]
    assert driven.state.machine.entries == ["a", "b", "c"]


def test_a_session_has_the_results_of_its_window() -> None:
    driven = opened()
    driven.command(1, *[b"x"] * 10)
    driven.command(WINDOW + 5, b"far")
    assert driven.command(5, b"x", b"x")[:2] == [Forgotten.FORGOTTEN, b"6"]


def test_a_session_without_commands_ends_by_the_time_of_the_log() -> None:
    driven = opened()
    driven.time += SESSION_TTL_NS
    assert driven.command(1, b"a") == [b"1"]
    driven.time += SESSION_TTL_NS + 1
    assert driven.command(2, b"b") == [Forgotten.FORGOTTEN]
    assert driven.command(1, b"a", session=99) == [Forgotten.FORGOTTEN]
    assert driven.state.machine.entries == ["a"]


def test_the_least_recently_used_session_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_SESSIONS", 2)
    driven = Driven()
    driven.apply(open_record(), open_record())
    driven.command(1, b"a", session=1)
    driven.apply(open_record())
    assert driven.command(1, b"b", session=2) == [Forgotten.FORGOTTEN]
    assert driven.command(1, b"a", session=1) == [b"1"]


@pytest.mark.parametrize("error", [MemoryError, OSError, RecursionError, KeyboardInterrupt])
def test_an_exception_of_the_process_is_no_result(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Journal, command: bytes, time_ns: int) -> bytes:
        raise error

    monkeypatch.setattr(Journal, "apply", fail)
    with pytest.raises(error):
        opened().command(1, b"a")


def test_a_result_that_is_not_bytes_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "apply", lambda self, command, time_ns: 5)
    assert opened().command(1, b"a") == [Failure("TypeError", "apply returned int, not bytes")]


def test_the_message_of_a_failure_is_bounded_and_can_be_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Journal, command: bytes, time_ns: int) -> bytes:
        raise LookupError("\udcff" + "x" * 20_000)

    monkeypatch.setattr(Journal, "apply", fail)
    driven = opened()
    (failure,) = driven.command(1, b"a")
    assert isinstance(failure, Failure)
    assert failure.message.startswith("\\udcffx")
    assert driven.state.encode()


def test_a_snapshot_has_the_sessions() -> None:
    driven = opened()
    driven.command(1, b"a", b"-b")
    other = ReplicaState(Journal())
    other.restore(driven.state.applied, driven.state.encode())
    assert other.encode() == driven.state.encode()
    driven.state = other
    assert driven.command(1, b"a", b"-b") == [b"1", Failure("ValueError", "-b is refused, the 1th")]


def test_a_damaged_snapshot_is_refused() -> None:
    driven = opened()
    with pytest.raises(ForeignRecord):
        ReplicaState(Journal()).restore(5, driven.state.encode()[:20])
    with pytest.raises(ForeignRecord):
        ReplicaState(Journal()).restore(5, b"\2" + driven.state.encode()[1:])


def test_replicas_compare_digests() -> None:
    one, two = opened(), opened()
    one.apply(verify_record())
    two.state.machine.entries.append("not from the log")
    two.apply(verify_record())
    (digest,) = one.digests
    (other,) = two.digests
    one.apply(digest_record(digest))
    assert one.conflicts == []
    one.apply(digest_record(other))
    two.apply(digest_record(digest))
    assert one.conflicts == two.conflicts == [2]
    two = opened()
    two.apply(digest_record(Digest(77, b"of a time before this replica")))
    assert two.conflicts == []


def test_a_gap_in_the_log_is_noticed() -> None:
    state = ReplicaState(Journal())
    with pytest.raises(AssertionError):
        state.apply(Batch(2, 3, []), ())


@pytest.mark.parametrize(
    ("tag", "payload"),
    [
        (OPEN, b"\2"),
        (COMMANDS, b""),
        (COMMANDS, b"\2" + bytes(28)),
        (COMMANDS, b"\1" + bytes(24) + b"\xff\xff\xff\xff"),
        (COMMANDS, commands_record(Commands(1, 1, 1, [b"abc"]))[1] + b"x"),
        (COMMANDS, commands_record(Commands(1, 1, 1, [b"abc"]))[1][:-1]),
        (CHUNK, b"\1"),
        (CHUNK, b"\1" + bytes(24)),
        (DIGEST, b"\1"),
        (DIGEST, b"\7" + bytes(8)),
    ],
)
def test_a_foreign_record_stops_the_replica(tag: int, payload: bytes) -> None:
    with pytest.raises(ForeignRecord):
        opened().apply((tag, payload))


def test_records_have_the_bytes_of_this_format() -> None:
    """The logs of users contain these records: a change needs a new format."""
    record = commands_record(Commands(1, 2, 3, [b"ab", b"c"]))
    assert record == (
        33,
        bytes.fromhex("01010000000000000002000000000000000300000000000000020000000200000001000000") + b"abc",
    )
    assert decode_commands(LogRecord(9, 0, *record)) == (1, 2, 3, [b"ab", b"c"])
    (chunk,) = chunks(7, 5, b"data")
    assert chunk == (34, bytes.fromhex("01070000000000000005000000000000000000000001000000") + b"data")
    assert decode_chunk(LogRecord(9, 0, *chunk)) == (7, 5, 0, 1, b"data")
    assert digest_record(Digest(5, b"d")) == (36, bytes.fromhex("010500000000000000") + b"d")
    assert decode_digest(LogRecord(9, 0, *digest_record(Digest(5, b"d")))) == (5, b"d")
    assert (open_record(), verify_record()) == ((32, b"\1"), (VERIFY, b"\1"))


def test_the_newest_complete_snapshot_is_found() -> None:
    data = bytes(range(256)) * (CHUNK_BYTES // 100)
    older, newer, broken = list(chunks(1, 5, b"older")), list(chunks(2, 9, data)), list(chunks(3, 12, data))
    finder = SnapshotFinder()
    for record in (*newer, *newer[:1], *older, *broken[1:]):
        finder.add(LogRecord(50, 0, *record))
    assert len(newer) == 3
    assert (finder.position, finder.data) == (9, data)
    finder.add(LogRecord(51, 0, *broken[0]))
    assert finder.position == 12


def test_an_empty_snapshot_has_a_part() -> None:
    assert len(list(chunks(1, 5, b""))) == 1


def test_an_outbox_packs_commands_and_sends_again_what_was_not_read() -> None:
    outbox = Outbox()
    pending = [Pending(b"%d" % number, None) for number in range(3)]
    for each in pending:
        outbox.add(each)
    assert outbox.needs_session
    outbox.open_session(7)
    batch, _ = outbox.next_batch()
    assert outbox.records(batch) == [commands_record(Commands(7, 1, 1, [b"0", b"1", b"2"]))]
    assert outbox.read(CommandId(7, 1), b"") == [pending[0]]
    again = [each for each in batch if outbox.is_sent(each)]
    assert outbox.records(again) == [commands_record(Commands(7, 2, 2, [b"1", b"2"]))]
    assert outbox.read(CommandId(7, 1), b"") == []
    assert outbox.mine == {7: 2}


def test_a_command_of_an_ended_session_gets_another_number() -> None:
    outbox = Outbox()
    pending, fixed = Pending(b"a", None), Pending(b"b", None, CommandId(7, 9))
    outbox.open_session(7)
    outbox.add(pending)
    outbox.add(fixed)
    outbox.next_batch()
    assert outbox.read(CommandId(7, 1), Forgotten.FORGOTTEN) == []
    assert outbox.read(CommandId(7, 9), Forgotten.FORGOTTEN) == [fixed]
    assert outbox.needs_session
    outbox.open_session(8)
    assert outbox.next_batch()[0] == [pending]
    assert pending.command_id == CommandId(8, 1)


def test_an_outbox_waits_while_too_many_commands_are_unread() -> None:
    outbox = Outbox()
    outbox.open_session(7)
    for _ in range(MAX_IN_FLIGHT + 1):
        outbox.add(Pending(b"", None))
    batch, _ = outbox.next_batch()
    assert len(batch) == MAX_IN_FLIGHT
    assert outbox.is_idle
    outbox.read(CommandId(7, 1), b"")
    assert not outbox.is_idle


def test_a_caller_that_waits_no_longer() -> None:
    outbox = Outbox()
    sent, unsent = Pending(b"a", None), Pending(b"b", None)
    outbox.open_session(7)
    outbox.add(sent)
    outbox.next_batch()
    outbox.add(unsent)
    assert outbox.keep(sent)
    assert not outbox.keep(unsent)
    assert outbox.is_idle
    outbox.read(CommandId(7, 1), b"")
    outbox.add(Pending(b"c", None))
    (record,) = outbox.records(outbox.next_batch()[0])
    assert decode_commands(LogRecord(9, 0, *record)).acknowledged == 1, "its result is kept"


def test_sessions_survive_their_bytes() -> None:
    sessions = Sessions()
    sessions.open(3, 10)
    session = sessions.use(3, 11)
    assert session is not None
    session.results.update({1: b"", 2: Failure("", "é"), 3: b"x" * 300})
    session.newest = 3
    again, end = Sessions.decode(b"--" + sessions.encode() + b"rest", 2)
    assert again.encode() == sessions.encode()
    assert (b"--" + sessions.encode() + b"rest")[end:] == b"rest"


def test_an_ended_session_that_was_full_keeps_no_command_waiting() -> None:
    outbox = Outbox()
    outbox.open_session(7)
    for _ in range(MAX_IN_FLIGHT + 1):
        outbox.add(Pending(b"", None))
    outbox.next_batch()
    for number in range(1, MAX_IN_FLIGHT + 1):
        outbox.read(CommandId(7, number), Forgotten.FORGOTTEN)
    assert outbox.needs_session
    assert not outbox.is_idle


def test_commands_keep_their_order_when_their_session_has_ended() -> None:
    outbox = Outbox()
    outbox.open_session(7)
    commands = [Pending(b"%d" % number, None) for number in range(4)]
    for command in commands[:3]:
        outbox.add(command)
    outbox.next_batch()
    outbox.add(commands[3])
    for number in 1, 2:
        outbox.read(CommandId(7, number), Forgotten.FORGOTTEN)
    assert outbox.is_idle  # the third one is under way, and comes before the fourth
    outbox.read(CommandId(7, 3), Forgotten.FORGOTTEN)
    assert not outbox.is_idle
    outbox.open_session(8)
    assert outbox.next_batch() == (commands, [])
