"""The membership of a replica: its cluster, and the newest known incarnation of every replica.

A replica that has lost its disk becomes a member again under the same name, with a larger *incarnation*. Messages of
its former incarnation do not count together with messages of replicas that know the new one (PAX-16)."""

from __future__ import annotations

from hashlib import blake2b
from struct import pack
from typing import NamedTuple

FOUNDER = 1
"""The incarnation of each replica when its cluster was founded; later incarnations are larger."""


class Membership(NamedTuple):
    """`founders`: the nonces of the replicas when they founded the cluster. `roster`: the newest known incarnation of
    every replica, including this one. `joined`: this replica has everything that its former incarnation may have voted
    for; it may promise, lead and admit others (PAX-15)."""

    founders: tuple[int, ...]
    roster: tuple[int, ...]
    joined: bool

    @property
    def cluster(self) -> int:
        """The number of the cluster, which distinguishes it from others founded under the same names."""
        return cluster_of(self.founders)


def cluster_of(founders: tuple[int, ...]) -> int:
    """The number of the cluster with these `founders`, 63 bits."""
    digest = blake2b(pack(f"<{len(founders)}Q", *founders), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
