"""Replicas on real logs: of this process, and of the servers of each engine."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb import smr
from logdb.errors import Unavailable
from logdb.log import MemoryLog
from logdb.log.contract import AppendId, AppendUnknown, Log, Record
from logdb.smr.core import outbox
from logdb.smr.core.records import COMMANDS
from logdb.system.addresses import location_of
from tests.harness.clusters import Cluster
from tests.smr.machines import Journal

WAIT_S = 60


def entries(journal: Journal) -> list[str]:
    return list(journal.entries)


def use(replicas: Sequence[smr.Replica[Journal]], commands: int, name: str = "") -> None:
    """Let a thread for each replica execute commands; then all replicas have the same list, with each of them once."""

    def execute(number: int) -> list[tuple[str, int]]:
        texts = [f"{name}{number}-{at}" for at in range(commands)]
        waiting = [replicas[number].submit(text.encode()) for text in texts]
        return [(text, int(result.result(WAIT_S))) for text, result in zip(texts, waiting, strict=True)]

    with ThreadPoolExecutor() as pool:
        results = [result for found in pool.map(execute, range(len(replicas))) for result in found]
    expected = replicas[0].query(entries, timeout=WAIT_S)
    assert all(expected[place - 1] == text for text, place in results)
    assert len(expected) == len(set(expected))
    for replica in replicas:
        assert replica.query(entries, timeout=WAIT_S) == expected
        reading = replica.stale_query(entries, after=replica.applied)
        assert reading == (reading.position, expected)
        assert replica.failure is None


def test_replicas_of_this_process_agree(log: Log) -> None:
    with smr.replicate(log, Journal()) as one, smr.replicate(log, Journal()) as two:
        use([one, two], 200)
        position = one.snapshot()
        assert log.oldest() <= position + 1
        with smr.replicate(log, Journal()) as three:
            assert three.applied >= position
            use([one, two, three], 20, "more ")
        two.verify()
        use([one, two], 1, "last ")


def test_replicas_on_servers_agree(cluster: Cluster) -> None:
    address = location_of(cluster.ordering[0])
    with smr.connect(address, Journal()) as one, smr.connect(address, Journal()) as two:
        use([one, two], 50)
        one.snapshot()
        with smr.connect(address, Journal()) as three:
            use([one, two, three], 10, "more ")
        with pytest.raises(smr.CommandFailed, match="refused"):
            two.execute(b"-no", timeout=WAIT_S)


def test_a_directory_keeps_the_machine(tmp_path: Path) -> None:
    for number in range(3):
        with smr.open(tmp_path / "machine", Journal()) as replica:
            assert replica.execute(b"%d" % number) == b"%d" % (number + 1)
            if number == 1:
                replica.snapshot()
            with pytest.raises(logdb.DatabaseInUse):
                smr.open(tmp_path / "machine", Journal())
    with pytest.raises(logdb.NotADatabase):
        logdb.open(tmp_path / "machine")
    with logdb.open(tmp_path / "database"), pytest.raises(logdb.NotADatabase):
        smr.open(tmp_path / "database", Journal())


def test_memory_is_a_log_of_its_own() -> None:
    with smr.open(":memory:", Journal()) as one, smr.open(":memory:", Journal()) as two:
        assert one.execute(b"a") == two.execute(b"b") == b"1"


def test_replicas_take_snapshots_by_themselves(tmp_path: Path) -> None:
    """The log stays short, and a reader that the trims have overtaken continues from a snapshot."""
    log = MemoryLog()
    slow = Slow(log)
    with smr.replicate(slow, Journal(), snapshot_bytes=None) as lagging:
        lagging.execute(b"first")
        slow.may_read.clear()
        with smr.replicate(log, Journal(), snapshot_bytes=2_000) as busy:
            for number in range(100):
                busy.execute(b"%100d" % number)
            waiting = lagging.submit(b"last")
            while log.oldest() < 50:
                busy.execute(b"more")
            expected = busy.query(entries)
            slow.may_read.set()
            assert lagging.query(entries, timeout=WAIT_S)[: len(expected)] == expected
            assert int(waiting.result(WAIT_S)) == lagging.query(entries).index("last") + 1


class Slow:
    """A log whose readers wait for permission."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.may_read = threading.Event()
        self.may_read.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def subscribe(self, gsn: int, tags: Any = None) -> Any:
        subscription, may_read = self._log.subscribe(gsn, tags), self.may_read

        class Waiting:
            def __iter__(self) -> Any:
                return iter(subscription)

            def poll(self, timeout: float | None) -> Any:
                may_read.wait()
                return subscription.poll(timeout)

            def close(self) -> None:
                subscription.close()

        return Waiting()


class Unreliable(MemoryLog):
    """Appends fail: some before, some after their records are in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def append(self, records: Sequence[Record], after: int | None = None) -> range:
        self.calls += 1
        if self.calls % 3 == 1:
            raise Unavailable("not now")
        gsns = super().append(records, after)
        if self.calls % 3 == 2:
            raise AppendUnknown("no answer", AppendId(1, ((1, 1),)))
        return gsns


def test_appends_are_repeated_until_they_succeed() -> None:
    log = Unreliable()
    with smr.replicate(log, Journal()) as one, smr.replicate(log, Journal()) as two:
        for number in range(5):
            assert one.execute(b"%d" % number) == b"%d" % (number + 1)
        assert two.query(entries) == ["0", "1", "2", "3", "4"]
        one.snapshot()
    with smr.replicate(log, Journal()) as three:
        assert three.query(entries) == ["0", "1", "2", "3", "4"]


class Refusing(MemoryLog):
    """Refuses all appends once `is_full` is set."""

    is_full = False

    def append(self, records: Sequence[Record], after: int | None = None) -> range:
        if self.is_full:
            raise Unavailable("the disk is full")
        return super().append(records, after)


def test_a_caller_learns_whether_its_command_may_take_effect() -> None:
    log = Refusing()
    with smr.replicate(log, Journal()) as replica:
        replica.execute(b"a")
        log.is_full = True
        with pytest.raises(smr.CommandUnknown) as unknown:
            replica.execute(b"b", timeout=0.05)
        with pytest.raises(TimeoutError, match="no effect"):
            replica.execute(b"c", timeout=0.05)
        log.is_full = False
        assert replica.execute(b"b", command_id=unknown.value.command_id) == b"2"
        assert replica.query(entries) == ["a", "b"]
        log.is_full = True
        left = replica.submit(b"d")
    with pytest.raises((smr.CommandUnknown, smr.ReplicaStopped)):
        left.result(WAIT_S)


def test_an_id_is_reserved_before_a_command(log: Log) -> None:
    with smr.replicate(log, Journal()) as one:
        command_id = one.reserve(timeout=WAIT_S)
        one.execute(b"between")
    assert smr.CommandId.parse(str(command_id)) == command_id
    with smr.replicate(log, Journal()) as two:
        assert two.execute(b"reserved", command_id=command_id) == b"2"
        assert two.execute(b"reserved", command_id=command_id) == b"2"
        with pytest.raises(smr.CommandExpired):
            two.execute(b"x", command_id=smr.CommandId(77, 1))


def test_a_pipeline_is_longer_than_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_IN_FLIGHT", 8)
    with smr.open(":memory:", Journal()) as replica:
        waiting = [replica.submit(b"%d" % number) for number in range(100)]
        assert [int(each.result(WAIT_S)) for each in waiting] == list(range(1, 101))


def test_a_machine_that_fails_as_a_process_stops_its_replica() -> None:
    class Failing(Journal):
        def apply(self, command: bytes, time_ns: int) -> bytes:
            raise OSError("no such disk")

    log = MemoryLog()
    with smr.replicate(log, Failing()) as failing, smr.replicate(log, Journal()) as well:
        with pytest.raises(smr.CommandUnknown) as unknown:
            failing.execute(b"a", timeout=WAIT_S)
        with pytest.raises(smr.ReplicaStopped, match="no such disk"):
            failing.query(entries)
        assert isinstance(failing.failure, OSError)
        assert well.execute(b"a", command_id=unknown.value.command_id) == b"1"


def test_a_state_that_is_half_changed_is_not_written_or_read() -> None:
    """While a replica stops, its snapshot is requested."""

    class Failing(Journal):
        def apply(self, command: bytes, time_ns: int) -> bytes:
            if command == b"b":
                self.entries.append("half")
                raise OSError("the disk is full")
            return super().apply(command, time_ns)

    class Requests(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with pytest.raises(smr.ReplicaStopped, match="the disk is full"):
                replica.snapshot()
            with pytest.raises(smr.ReplicaStopped, match="the disk is full"):
                replica.stale_query(entries)
            refused.append(record.getMessage())

    log, refused, handler = MemoryLog(), list[str](), Requests()
    logger = logging.getLogger("logdb.smr.replica")
    with smr.replicate(log, Failing()) as replica:
        assert replica.execute(b"a") == b"1"
        logger.addHandler(handler)
        try:
            with pytest.raises(smr.CommandUnknown):
                replica.execute(b"b", timeout=WAIT_S)
        finally:
            logger.removeHandler(handler)
    assert refused == ["a replica of a state machine has stopped"]
    with smr.replicate(log, Journal()) as other:
        assert other.query(entries, timeout=WAIT_S) == ["a", "b"]


def test_replicas_with_different_states_stop() -> None:
    class Random(Journal):
        def apply(self, command: bytes, time_ns: int) -> bytes:
            return super().apply(command + os.urandom(8).hex().encode(), time_ns)

    log = MemoryLog()
    with smr.replicate(log, Random()) as one, smr.replicate(log, Random()) as two:
        one.execute(b"a")
        one.verify()
        for replica in (one, two):
            with pytest.raises((smr.ReplicaStopped, smr.CommandUnknown)):
                while True:
                    replica.execute(b"b", timeout=WAIT_S)
            assert isinstance(replica.failure, smr.Diverged)


def test_a_log_that_another_program_has_trimmed_is_refused() -> None:
    log = MemoryLog()
    with smr.replicate(log, Journal()) as replica:
        replica.execute(b"a")
    log.trim(2)
    with pytest.raises(smr.SnapshotMissing):
        smr.replicate(log, Journal())


def test_the_first_snapshot_is_taken_while_a_replica_starts() -> None:
    class Interleaved(MemoryLog):
        """Replica `one` takes a snapshot, and trims, after another one has searched the log."""

        one: smr.Replica[Journal] | None = None

        def subscribe(self, gsn: int, tags: Any = None) -> Any:
            if self.one and gsn == 1 and COMMANDS in tags:
                self.one.snapshot()
            return super().subscribe(gsn, tags)

    log = Interleaved()
    with smr.replicate(log, Journal()) as one:
        one.execute(b"a")
        log.one = one
        with smr.replicate(log, Journal()) as two:
            assert two.query(entries, timeout=WAIT_S) == ["a"]


def test_records_of_others_are_passed_over_or_refused() -> None:
    log = MemoryLog()
    log.append([(1, b"of a database"), (2, b"")])
    with smr.replicate(log, Journal()) as replica:
        assert replica.execute(b"a") == b"1"
        log.append([(33, b"something else")])
        with pytest.raises(smr.ReplicaStopped, match="record 5"):
            replica.query(entries, timeout=WAIT_S)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda replica: replica.execute("text"), TypeError),
        (lambda replica: replica.execute(b"x", command_id="1-1"), TypeError),
        (lambda replica: replica.execute(b"x", command_id=smr.CommandId(1, 1 << 64)), ValueError),
        (lambda replica: replica.submit(b"x", command_id=smr.CommandId(-1, 1)), ValueError),
        (lambda replica: replica.submit(b"x", command_id=smr.CommandId(1, "1")), TypeError),  # type: ignore[arg-type]
        (lambda replica: replica.execute(b"x", timeout="1"), TypeError),
        (lambda replica: replica.execute(b"x", timeout=float("nan")), ValueError),
        (lambda replica: replica.query(entries, timeout=-1), ValueError),
        (lambda replica: replica.execute(bytes(smr.MAX_COMMAND_BYTES + 1)), smr.CommandTooLarge),
        (lambda replica: replica.stale_query(entries, after="1"), TypeError),
        (lambda replica: replica.stale_query(entries, after=1_000, timeout=0.01), TimeoutError),
        (lambda replica: replica.query(lambda journal: journal.entries[7]), IndexError),
        (lambda replica: smr.CommandId.parse("7"), ValueError),
        (lambda replica: smr.replicate(MemoryLog(), object()), TypeError),
        (lambda replica: smr.replicate(MemoryLog(), Journal(), snapshot_bytes=0), ValueError),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[smr.Replica[Journal]], object], error: type[Exception]) -> None:
    with smr.open(":memory:", Journal()) as replica:
        with pytest.raises(error):
            call(replica)
        assert replica.execute(b"a") == b"1"


def test_a_large_command_and_a_large_snapshot(log: Log) -> None:
    command = b"x" * (3 << 20)
    with smr.replicate(log, Journal()) as replica:
        assert replica.execute(command) == b"1"
        replica.snapshot()
    with smr.replicate(log, Journal()) as replica:
        assert replica.query(lambda journal: len(journal.entries[0])) == len(command)


def test_a_closed_replica_refuses_everything() -> None:
    replica = smr.open(":memory:", Journal())
    replica.close()
    replica.close()
    for call in (
        replica.snapshot,
        replica.verify,
        replica.reserve,
        lambda: replica.execute(b""),
        lambda: replica.query(entries),
    ):
        with pytest.raises(smr.ReplicaStopped, match="it is closed"):
            call()
    assert replica.failure is None


def test_the_log_of_a_database_is_refused(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, mapping=1)
        cluster.start(1)
        stack.callback(cluster.close)
        with pytest.raises(ValueError, match="database"):
            smr.connect(location_of(cluster.ordering[0]), Journal())


def test_coroutines_have_the_same_verbs(tmp_path: Path) -> None:
    async def use() -> None:
        async with await smr.open_async(tmp_path / "machine", Journal()) as replica:
            results = await asyncio.gather(*(replica.execute(b"%d" % number) for number in range(20)))
            assert sorted(map(int, results)) == list(range(1, 21))
            with pytest.raises(smr.CommandFailed):
                await replica.execute(b"-no")
            assert len(await replica.query(entries)) == 20
            position = await replica.snapshot()
            assert await replica.verify() > position
            assert (await replica.stale_query(entries, after=position)).position >= position
            command_id = await replica.reserve()
            assert await replica.execute(b"x", command_id=command_id) == b"21"
            assert replica.applied > position
            with pytest.raises(TimeoutError):
                await replica.stale_query(entries, after=1 << 40, timeout=0.01)
        assert replica.failure is None
        log = Refusing()
        async with await smr.replicate_async(log, Journal()) as replica:
            await replica.execute(b"a")
            log.is_full = True
            with pytest.raises(smr.CommandUnknown):
                await replica.execute(b"b", timeout=0.05)
            cancelled = asyncio.create_task(replica.execute(b"c"))
            await asyncio.sleep(0)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            log.is_full = False
            assert await replica.execute(b"d") == b"3"
            assert await replica.query(entries) == ["a", "b", "d"]

    asyncio.run(use())


def test_coroutines_connect_to_servers(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.start(1)

    async def use() -> None:
        async with await smr.connect_async(location_of(cluster.ordering[0]), Journal()) as replica:
            assert await replica.execute(b"a", timeout=WAIT_S) == b"1"

    try:
        asyncio.run(use())
    finally:
        cluster.close()


def test_a_forked_child_inherits_no_replica() -> None:
    with smr.open(":memory:", Journal()) as replica:
        replica.execute(b"a")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                replica.execute(b"b")
            except smr.ReplicaStopped as error:
                os.write(write, json.dumps("forked" in str(error)).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert json.loads(os.read(read, 10)) is True
        assert replica.execute(b"b") == b"2"
