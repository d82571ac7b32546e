"""The host of one core: timers, durability before messages, and its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logdb.cores.effects import (
    Answer,
    Call,
    CancelTimer,
    Create,
    Effect,
    Event,
    Persist,
    Persisted,
    ProtocolViolation,
    Received,
    Send,
    SendStored,
    SetTimer,
    Stop,
    TimerFired,
    Unreadable,
)
from logdb.log.contract import LogFailed, Record
from logdb.log.segments import Disk
from logdb.node import disk_worker
from logdb.node.disk_worker import DiskWorker
from logdb.node.host import Host
from logdb.node.journals import Journals
from tests.harness.clocks import Clock

DEADLINE_S = 20


@pytest.fixture(autouse=True)
def _flushes_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that a test stops must not stop the loop; `test_disk_worker.py` has the flushes in the loop."""
    monkeypatch.setattr(disk_worker, "HANDOVER_S", 0.0)


class Stored(NamedTuple):
    """A message with stored records."""

    request: int
    records: Sequence[Record] = ()


class Scripted:
    """A core that returns given effects, and records its events."""

    def __init__(self, react: Callable[[Event, int], list[Effect]], begin: list[Effect]) -> None:
        self.react, self.begin = react, begin
        self.events: list[Event] = []

    def start(self, now: int) -> list[Effect]:
        return self.begin

    def handle(self, event: Event, now: int) -> list[Effect]:
        self.events.append(event)
        return self.react(event, now)

    def check_invariants(self) -> None:
        pass


class Network:
    """Records sent messages."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def send(self, to: str, message: Any) -> None:
        self.sent.append((to, message))


class GatedDisk(Disk):
    """Syncs wait until the test lets them through, or fail."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.failing = self.full = False
        self.syncs = 0

    def sync(self, fd: int) -> None:
        self.entered.set()
        assert self.gate.wait(DEADLINE_S)
        if self.failing:
            raise OSError(5, "Input/output error")
        self.syncs += 1
        super().sync(fd)

    def allocate(self, fd: int, offset: int, length: int) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().allocate(fd, offset, length)


def nothing(event: Event, now: int) -> list[Effect]:
    return []


workers: list[DiskWorker] = []
"""The workers of the running test."""


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                await test
        finally:
            while workers:
                workers.pop().close()

    asyncio.run(in_time())


async def until(what: Callable[[], Any]) -> None:
    while not what():
        await asyncio.sleep(0)


def hosted(core: Scripted, **more: Any) -> tuple[Host, Network]:
    network = Network()
    host = Host("me:1", lambda journals, rng: core, network, **more)
    host.start()
    return host, network


def with_disk(path: Path, core: Scripted, disk: Disk, **more: Any) -> tuple[Host, Network, Journals]:
    journals = Journals(path / "journals", bytes(16), disk=disk)
    workers.append(DiskWorker())
    host, network = hosted(core, journals=journals, disk=workers[-1], **more)
    return host, network, journals


def records(*payloads: bytes) -> list[Record]:
    return [(1, payload) for payload in payloads]


def test_messages_and_calls() -> None:
    async def test() -> None:
        answers: list[Answer] = []
        core = Scripted(lambda event, now: [Send("you:2", event), Answer(7, "done")], [])
        host, network = hosted(core, answered=answers.append)
        host.receive("you:2", ["a", "b"])
        host.call(7, "c")
        events = [Received("you:2", "a"), Received("you:2", "b"), Call(7, "c")]
        assert core.events == events
        assert network.sent == [("you:2", event) for event in events]
        assert answers == [Answer(7, "done")] * 3

    run(test())


def test_two_tasks_that_close_a_host_both_see_its_last_flush_end(tmp_path: Path) -> None:
    """The first one never ended: a server that wiped itself while it was stopped."""

    async def test() -> None:
        disk = GatedDisk()
        disk.gate.set()
        core = Scripted(nothing, [Create("j", 1), Persist("j", 1, records(b"a"))])
        host, _, journals = with_disk(tmp_path, core, disk)
        await until(lambda: Persisted("j", 2) in core.events)
        disk.gate.clear()
        disk.entered.clear()
        core.react = lambda event, now: [Persist("j", 2, records(b"b"))]
        host.receive("you:2", [2])
        await until(disk.entered.is_set)
        closing = [asyncio.create_task(host.close()) for _ in range(2)]
        await asyncio.sleep(0)
        disk.gate.set()
        await asyncio.gather(*closing)
        journals.close()

    run(test())


def test_a_message_to_itself_is_handled_after_the_current_event() -> None:
    async def test() -> None:
        core = Scripted(nothing, [Send("me:1", "hello"), Send("you:2", "first")])
        _, network = hosted(core)
        assert core.events == []
        await until(lambda: core.events)
        assert core.events == [Received("me:1", "hello")]
        assert network.sent == [("you:2", "first")]

    run(test())


def test_timers() -> None:
    async def test() -> None:
        clock = Clock()
        begin: list[Effect] = [SetTimer("late", 9_000), SetTimer("moved", 1_000), SetTimer("gone", 1_000)]
        begin += [SetTimer("moved", 2_000), CancelTimer("gone"), CancelTimer("never set"), SetTimer("past", 0)]
        core = Scripted(nothing, begin)
        host, _ = hosted(core, clock=clock)
        await until(lambda: core.events)
        assert core.events == [TimerFired("past")]
        clock.now = 2_000
        await until(lambda: len(core.events) > 1)
        clock.now = 8_999
        for _ in range(20):
            await asyncio.sleep(0)
        assert core.events == [TimerFired("past"), TimerFired("moved")], "no timer fires before its time"
        await host.close()

    run(test())


def test_persisted_is_sent_after_the_sync_and_once_for_all_records_meanwhile(tmp_path: Path) -> None:
    async def test() -> None:
        disk = GatedDisk()
        disk.gate.set()
        core = Scripted(lambda event, now: [], [Create("j", 1), Persist("j", 1, records(b"a"))])
        host, _, journals = with_disk(tmp_path, core, disk)
        await until(lambda: Persisted("j", 2) in core.events)
        disk.gate.clear()
        disk.entered.clear()
        core.react = lambda event, now: [] if type(event) is Persisted else [Persist("j", event.message, records(b"x"))]
        host.receive("you:2", [2])
        await until(disk.entered.is_set)
        host.receive("you:2", [3])
        host.receive("you:2", [4])
        await asyncio.sleep(0)
        assert [event for event in core.events if type(event) is Persisted] == [Persisted("j", 2)]
        before = disk.syncs
        disk.gate.set()
        await until(lambda: Persisted("j", 5) in core.events)
        assert [event.end for event in core.events if type(event) is Persisted] == [2, 3, 5]
        assert disk.syncs == before + 2, "records written during a sync share the next one"
        await host.close()
        journals.close()

    run(test())


@pytest.mark.parametrize("fails", [False, True])
def test_journals_of_two_cores_are_flushed_side_by_side(tmp_path: Path, fails: bool) -> None:
    """A core that waits for its disk does not delay another one, and gets no word before its own flush has ended."""

    async def test() -> None:
        worker = DiskWorker(2)
        workers.append(worker)
        disks, cores, hosts, kept = [GatedDisk(), GatedDisk()], [], [], []
        for name, disk in zip("ab", disks, strict=True):
            disk.gate.set()
            core = Scripted(nothing, [Create("j", 1), Persist("j", 1, records(b"0"))])
            kept.append(Journals(tmp_path / name, bytes(16), disk=disk))
            hosts.append(hosted(core, journals=kept[-1], disk=worker)[0])
            cores.append(core)
        await until(lambda: all(Persisted("j", 2) in core.events for core in cores))
        disks[0].gate.clear()
        disks[0].entered.clear()
        for host, core in zip(hosts, cores, strict=True):
            core.react = lambda event, now: [] if type(event) is Persisted else [Persist("j", 2, records(b"x"))]
            host.receive("you:2", ["write"])
        await until(disks[0].entered.is_set)
        await until(lambda: Persisted("j", 3) in cores[1].events)
        assert Persisted("j", 3) not in cores[0].events
        disks[0].failing = fails
        disks[0].gate.set()
        if fails:
            with pytest.raises(LogFailed, match="Input/output error"):
                await hosts[0].ended
            assert Persisted("j", 3) not in cores[0].events
        else:
            await until(lambda: Persisted("j", 3) in cores[0].events)
        for host, journals in zip(hosts, kept, strict=True):
            await host.close()
            journals.close()

    run(test())


def test_a_clean_end_flushes_performed_writes(tmp_path: Path) -> None:
    async def test() -> None:
        disk = Disk()
        core = Scripted(nothing, [Create("j", 5), Persist("j", 5, records(b"a", b"b"))])
        host, _, journals = with_disk(tmp_path, core, disk)
        await host.close()
        journals.close()
        assert await host.ended is None
        host.receive("you:2", ["too late"])
        assert core.events == []
        again = Journals(tmp_path / "journals", bytes(16))
        assert again.found()["j"][:2] == (5, 7)
        again.close()

    run(test())


def test_stored_records_are_sent_by_reference(tmp_path: Path) -> None:
    async def test() -> None:
        core = Scripted(nothing, [Create("j", 1), Persist("j", 1, records(b"a", b"b", b"c"))])
        host, network, journals = with_disk(tmp_path, core, Disk())
        await until(lambda: core.events)
        core.react = lambda event, now: [SendStored("you:2", Stored(1), "j", 2, 4)]
        host.receive("you:2", ["read"])
        assert network.sent == [("you:2", Stored(1, [(1, b"b"), (1, b"c")]))]
        await host.close()
        journals.close()

    run(test())


def test_unreadable_records_are_reported_to_the_core(tmp_path: Path) -> None:
    async def test() -> None:
        core = Scripted(nothing, [Create("j", 1), Persist("j", 1, records(b"a" * 100, b"b" * 100))])
        host, network, journals = with_disk(tmp_path, core, Disk())
        await until(lambda: core.events)
        (store,) = tmp_path.glob("journals/j*/*.log")
        data = store.read_bytes()
        with store.open("r+b") as file:
            file.seek(data.index(b"b" * 100))
            file.write(b"!")
        effect = SendStored("you:2", Stored(1), "j", 1, 3)
        core.react = lambda event, now: [effect] if type(event) is Received else []
        host.receive("you:2", ["read"])
        await until(lambda: type(core.events[-1]) is Unreadable)
        assert core.events[-1].effect == effect
        assert str(store) in core.events[-1].reason
        assert network.sent == []
        await host.close()
        journals.close()

    run(test())


def test_a_protocol_violation_ends_the_host() -> None:
    async def test() -> None:
        def react(event: Event, now: int) -> list[Effect]:
            raise ProtocolViolation("SCA-3")

        core = Scripted(react, [SetTimer("soon", 0)])
        host, _ = hosted(core)
        with pytest.raises(ProtocolViolation, match="SCA-3"):
            await host.ended
        host.receive("you:2", ["more"])
        assert core.events == [TimerFired("soon")]

    run(test())


def test_a_core_that_stops(tmp_path: Path) -> None:
    async def test() -> None:
        core = Scripted(nothing, [SetTimer("soon", 0), Stop("nothing to do", wipe=True), Send("you:2", "never")])
        host, network = hosted(core)
        assert await host.ended == Stop("nothing to do", wipe=True)
        assert network.sent == []
        assert host.core is None

    run(test())


def test_a_failed_sync_ends_the_host_without_an_event(tmp_path: Path) -> None:
    async def test() -> None:
        disk = GatedDisk()
        disk.gate.set()
        core = Scripted(nothing, [Create("j", 1), Persist("j", 1, records(b"0"))])
        host, _, journals = with_disk(tmp_path, core, disk)
        await until(lambda: core.events)
        disk.failing = True
        core.react = lambda event, now: [Persist("j", 2, records(b"a"))]
        events = len(core.events)
        host.receive("you:2", ["write"])
        with pytest.raises(LogFailed, match="Input/output error"):
            await host.ended
        assert core.events[events:] == [Received("you:2", "write")]
        journals.close()

    run(test())


def test_a_full_disk_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.node.host.FULL_RETRY_S", 0.001)

    async def test() -> None:
        disk = GatedDisk()
        disk.gate.set()
        reasons: list[str] = []
        core = Scripted(nothing, [Create("j", 1), Persist("j", 1, records(b"0"))])
        host, _, journals = with_disk(tmp_path, core, disk, full=reasons.append)
        await until(lambda: core.events)
        disk.full = True
        big = 1 << 20
        core.react = lambda event, now: [Persist("j", 2, records(bytes(big)))] if type(event) is Received else []
        host.receive("you:2", ["write"])
        await until(lambda: reasons)
        assert "is full" in reasons[0]
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert Persisted("j", 3) not in core.events
        disk.full = False
        await until(lambda: Persisted("j", 3) in core.events)
        assert len(reasons) == 2
        assert reasons[1] == ""
        await host.close()
        journals.close()

    run(test())
