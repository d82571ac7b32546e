"""The faults. Each hits one server or more, lasts a while and is undone.

A fault is a generator: it begins the fault, yields its duration in seconds, and then undoes it. A server has one fault
at a time, since undoing one would undo another; a fault of `ALONE` excludes all others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from logdb.wire.envelopes import MAPPING
from tests.nemesis.network import Network, Rule
from tests.nemesis.servers import Process, Servers

Fault = Generator[float, None, None]
REFUSES = 4
"""The exit code of a server that must not start again."""


class Wrong(Exception):
    """A server violated a rule of the nemesis."""


@dataclass
class Scene:
    """The servers and the random numbers of a round."""

    servers: Servers
    draw: random.Random

    @property
    def network(self) -> Network:
        assert self.servers.ground.network is not None
        return self.servers.ground.network

    def others(self, name: str) -> list[str]:
        """All other servers, and the hosts of clients."""
        hosts = {process.name.partition("-")[0] for process in self.servers.all_processes()}
        return sorted(hosts - {name})

    def while_(self) -> float:
        """A duration in seconds: mostly short, sometimes longer than the suspicion timeout."""
        return self.draw.choice((0.3, 0.8, 1.5, 3.0, 6.0)) * self.draw.uniform(0.7, 1.3)


# ---- faults of a process


def kill(scene: Scene, target: Process) -> Fault:
    """SIGKILL."""
    target.kill()
    yield scene.while_()
    target.start()


def pause(scene: Scene, target: Process) -> Fault:
    """SIGSTOP: when the server resumes, no time has passed for it."""
    target.pause()
    yield scene.while_()
    target.resume()


def wipe(scene: Scene, target: Process) -> Fault:
    """A server that restarts with an empty directory: a storage or mapping server is a new one, the other founders let
    a founder join again."""
    target.kill()
    scene.servers.wipe(target.name)
    yield scene.while_()
    target.start()


def forget_promises(scene: Scene, target: Process) -> Fault:
    """A founder that lost its journals only must refuse to start; then it gets them back."""
    target.kill()
    journals = scene.servers.journals(target.name)
    aside = journals.with_name("aside")
    journals.rename(aside)
    target.start()
    while target.running and not target.ready:
        yield 0.5
    if target.exit_code != REFUSES:
        raise Wrong(f"{target.name} started without its journals: exit code {target.exit_code}")
    target.forget()
    if journals.exists():
        journals.rmdir()
    aside.rename(journals)
    target.start()


# ---- faults of a disk


def slow_down(scene: Scene, target: Process) -> Fault:
    """A slow disk, so that some records are always ordered and not durable. In most cases the server is then killed."""
    scene.servers.delay_flushes(target.name, scene.draw.choice((0.05, 0.2, 0.5)))
    yield scene.while_()
    if scene.draw.random() < 0.8:
        target.kill()
        yield 0.1
        target.start()
    scene.servers.delay_flushes(target.name, 0)


def lose_power(scene: Scene, target: Process) -> Fault:
    """Kill a server; everything that it had not synced is lost."""
    disk = scene.servers.disks[target.name]
    assert disk is not None
    target.freeze()
    disk.cut_power()
    target.kill()
    yield scene.while_()
    disk.restart()
    target.start()


def blackout(scene: Scene, target: Process) -> Fault:
    """All servers of a role, or all servers, lose power at the same moment: acknowledged records are on their disks."""
    all_servers = scene.draw.random() < 0.5
    dark = [p for p in scene.servers.processes.values() if p.running and (all_servers or p.role == target.role)]
    for process in dark:
        process.freeze()
    for process in dark:
        disk = scene.servers.disks.get(process.name)
        if disk is not None:
            disk.cut_power()
    for process in dark:
        process.kill()
    yield 0.5
    for process in dark:
        disk = scene.servers.disks.get(process.name)
        if disk is not None:
            disk.restart()
        process.start()
    yield 1.0


def fail_disk(scene: Scene, target: Process) -> Fault:
    """The disk fails: writes and syncs end with EIO. The server must end itself, and may restart when the disk
    works."""
    disk = scene.servers.disks[target.name]
    assert disk is not None
    disk.fail()
    yield scene.while_() + 1.0
    if target.running:
        target.kill()  # no write or sync has failed
    else:
        target.forget()
    disk.restart()
    target.start()


def fill_disk(scene: Scene, target: Process) -> Fault:
    """ENOSPC."""
    disk = scene.servers.disks[target.name]
    assert disk is not None
    disk.fill()
    yield scene.while_() + 1.0
    disk.clear()


# ---- faults of the network


def isolate(scene: Scene, target: Process) -> Fault:
    """Cut the server off from all others, both ways."""
    rules = [
        Rule(*pair) for other in scene.others(target.name) for pair in ((target.name, other), (other, target.name))
    ]
    yield from _lose(scene, rules)


def cut_one_way(scene: Scene, target: Process) -> Fault:
    """Drop packets in one direction between the server and some of the others."""
    others = scene.others(target.name)
    some = scene.draw.sample(others, scene.draw.randint(1, len(others)))
    speaks = scene.draw.random() < 0.5
    yield from _lose(scene, [Rule(target.name, other) if speaks else Rule(other, target.name) for other in some])


def fall_behind(scene: Scene, target: Process) -> Fault:
    """A mapping server receives messages of clients, but none of the log, so its state is outdated."""
    servers = scene.servers.processes.values()
    log = [process.name for process in servers if process.role != MAPPING and process is not target]
    yield from _lose(scene, [Rule(name, target.name) for name in log])


def split(scene: Scene, target: Process) -> Fault:
    """Split all servers and clients into two halves."""
    all_servers = [target.name, *scene.others(target.name)]
    one = set(scene.draw.sample(all_servers, len(all_servers) // 2))
    rules = [Rule(a, b) for a in all_servers for b in all_servers if (a in one) != (b in one)]
    yield from _lose(scene, rules)


def drop_packets(scene: Scene, target: Process) -> Fault:
    """Lose a share of its packets, both ways."""
    percent = scene.draw.choice((5, 20, 40))
    pairs = [pair for other in scene.others(target.name) for pair in ((target.name, other), (other, target.name))]
    yield from _lose(scene, [Rule(*pair, percent) for pair in pairs])


def cut_direct(scene: Scene, target: Process) -> Fault:
    """Cut the direct TCP connections of the server, while the streams of gRPC beside them work: reset them again and
    again, or lose their packets."""
    if scene.draw.random() < 0.5:
        for _ in range(int(scene.while_() / 0.25) + 1):
            scene.network.reset_direct(target.name)
            yield 0.25
        return
    others = scene.others(target.name)
    pairs = [pair for other in others for pair in ((target.name, other), (other, target.name))]
    yield from _lose(scene, [Rule(*pair, is_direct=True) for pair in pairs])


def _lose(scene: Scene, rules: Sequence[Rule]) -> Fault:
    cause = object()
    scene.network.lose(cause, rules)
    yield scene.while_() + 0.5
    scene.network.restore(cause)


def delay_packets(scene: Scene, target: Process) -> Fault:
    """A slow link: packets are queued, and dropped if they would wait too long."""
    scene.network.slow(target.name, kbit=scene.draw.choice((128, 512)), delay_ms=scene.draw.choice((50, 200, 600)))
    yield scene.while_() + 0.5
    scene.network.hasten(target.name)


# ---- which servers a fault may hit

PROCESS_FAULTS: dict[Callable[[Scene, Process], Fault], tuple[int, tuple[str, ...]]] = {
    kill: (6, ("server",)),
    pause: (5, ("server",)),
    wipe: (5, ("founder", "storage", "mapping")),
    forget_promises: (1, ("founder",)),
    slow_down: (5, ("journals",)),
}
GROUND_FAULTS: dict[Callable[[Scene, Process], Fault], tuple[int, tuple[str, ...]]] = {
    lose_power: (4, ("disk",)),
    blackout: (2, ("journals",)),
    fail_disk: (2, ("disk",)),
    fill_disk: (3, ("disk",)),
    isolate: (3, ("server",)),
    cut_one_way: (3, ("server",)),
    fall_behind: (2, ("mapping",)),
    split: (3, ("server",)),
    drop_packets: (2, ("server",)),
    cut_direct: (3, ("server",)),
    delay_packets: (2, ("server",)),
}
"""The weight of each fault, and the traits of which a server needs one (`servers.traits_of`)."""
ALONE = (blackout,)
