"""The faults of a cluster of Multi-Paxos.

The protocol limits the losses: a disk, or a bit of it, may be lost only while more than half
of all replicas are members and have all records without that one. Some never return, others return with an
empty disk. All other faults are healed at the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from logdb.cores.effects import MILLISECOND
from tests.sim import faults
from tests.sim.faults import Trouble
from tests.sim.multipaxos.cluster import Cluster
from tests.sim.workload import Application


class Faults(faults.Faults):
    """Makes trouble in a cluster of Multi-Paxos until `heal`."""

    KINDS: ClassVar[tuple[str, ...]] = ("replica", "replica", "client")
    WRITERS: ClassVar[tuple[str, ...]] = ("replica",)
    DECIDERS: ClassVar[str] = "replica"
    LOSERS: ClassVar[str] = "replica"
    RECORDS: ClassVar[str] = "records-"
    cluster: Cluster

    def __init__(self, cluster: Cluster, applications: Mapping[str, Application], trouble: Trouble) -> None:
        self.losses_left = len(cluster.group)
        self.replicas_left = (cluster.shape.replicas - 1) // 2
        super().__init__(cluster, applications, trouble)

    def kill_replica(self) -> bool:
        return self._kill_one("replica")

    def clock_jump(self) -> bool:
        """Far enough that the next leader finds its own clock behind."""
        process = self._leader() if self.draw.random() < 0.5 else self._someone()
        if process is not None:
            self._jump(process, int(self.draw.random() ** 2 * 60 * self.cluster.shape.heartbeat_ns))
        return process is not None

    def split_off_leader_for_long(self) -> bool:
        """For so long that the other replicas elect another leader."""
        return self.split_off_leader(self._long())

    def cut_off_client(self) -> bool:
        """A client reaches some replicas and not the others."""
        process = self._someone("client")
        if process is None:
            return False
        some = self.draw.sample(self.cluster.group, self.draw.randint(1, len(self.cluster.group)))
        return self._partition([process.address], [one.address for one in some], self.draw.random() < 0.3, self._long())

    def sleep(self) -> bool:
        """A replica is held still, or cut off, for so long that the others compact what it lacks."""
        process = self._someone("replica")
        if process is None or len(self.cluster.group) == 1:
            return False
        others = [one.address for one in self.cluster.group if one is not process]
        return self._partition([process.address], others, False, self._long())

    def _long(self) -> int:
        return self.draw.randint(4, 40) * self.cluster.shape.heartbeat_ns

    # ---- disks

    def flip_a_bit(self) -> bool:
        return self._may_lose_someone() and super().flip_a_bit()

    def flip_a_bit_and_kill(self) -> bool:
        return self._may_lose_someone() and super().flip_a_bit_and_kill()

    def _may_lose_someone(self) -> bool:
        """Whether any replica may be the one: all of them are whole."""
        return len(self.cluster.group) > 1 and all(map(self.cluster.is_whole, self.cluster.group))

    def lose_disk(self) -> bool:
        """A replica, as often as not one that leads, loses its disk and with it its promises."""
        process = self._leader() if self.draw.random() < 0.5 else self._someone("replica")
        if process is None or not self.cluster.may_lose(process):
            return False
        self._lose(process, self._span())
        return True

    def lose_disk_of_a_sleeper(self) -> bool:
        """A replica that is down loses its disk."""
        down = [one for one in self.cluster.group if one.core is None and one.address not in self.cluster.retired]
        process = self._pick([one for one in down if self.cluster.may_lose(one)])
        if process is not None:
            self.cluster.wipe(process)
        return process is not None

    def lose_replica(self) -> bool:
        """A replica loses its disk and does not come back."""
        process = self._someone("replica")
        if process is None or not self.replicas_left or not self.cluster.may_lose(process):
            return False
        self.replicas_left -= 1
        self._retire(process)
        return True


FAULTS: dict[str, Callable[[Any], bool]] = {
    "kill replica": Faults.kill_replica,
    "kill client": Faults.kill_client,
    "kill in mid-write": Faults.kill_in_mid_write,
    "most die in mid-write": Faults.most_deciders_die_in_mid_write,
    "kill leader": Faults.kill_leader,
    "power failure": Faults.power_failure,
    "pause": Faults.pause,
    "clock jump": Faults.clock_jump,
    "split": Faults.split,
    "split one way": Faults.split_one_way,
    "split partly": Faults.split_partly,
    "split off leader": Faults.split_off_leader_for_long,
    "split replicas": Faults.split_deciders,
    "isolate": Faults.isolate,
    "sleep": Faults.sleep,
    "cut off client": Faults.cut_off_client,
    "lossy network": Faults.lossy_network,
    "doubling network": Faults.doubling_network,
    "reordering network": Faults.reordering_network,
    "slow disk": Faults.slow_disk,
    "full disk": Faults.full_disk,
    "flip a bit": Faults.flip_a_bit,
    "flip a bit and kill": Faults.flip_a_bit_and_kill,
    "lose disk": Faults.lose_disk,
    "lose disk of a sleeper": Faults.lose_disk_of_a_sleeper,
    "lose replica": Faults.lose_replica,
}

AT_OTHERS = ("kill client", "cut off client")
CHANGES_OF_LEADERS = ("split off leader", "split replicas", "clock jump", "kill leader")
HARMLESS = ("kill replica", "kill in mid-write", "kill leader", "slow disk")

Faults.FAULTS, Faults.OPERATIONS = FAULTS, {}


def trouble_of(draw: random.Random) -> Trouble:
    """The trouble of a seed. One in eight has none, one in twelve only at clients, one in six only changes of leaders
    that nothing else disturbs: two replicas that think to lead are rare otherwise."""
    if draw.random() < 1 / 8:
        return Trouble((), ())
    if draw.random() < 1 / 12:
        return Trouble(AT_OTHERS, (), every_ns=draw.choice((15, 40, 100)) * MILLISECOND)
    if draw.random() < 1 / 6:
        return Trouble(CHANGES_OF_LEADERS, (), every_ns=draw.choice((100, 200)) * MILLISECOND, long=20.0)
    share = draw.choice((0.15, 0.4, 0.8))
    return Trouble(
        tuple(name for name in FAULTS if draw.random() < share),
        (),
        every_ns=draw.choice((15, 40, 100)) * MILLISECOND,
        long=draw.choice((2.0, 6.0, 20.0)),
    )
