"""Who a replica is: which cluster it belongs to, and which disks the others are that it has heard of.

A replica that has lost its disk is another one under the same name. It becomes a member again with a larger
*incarnation*, and what it said as a former one does not count together with what others say who know of that (PAX-16).
"""

from __future__ import annotations

from hashlib import blake2b
from struct import pack
from typing import NamedTuple

FOUNDER = 1
"""The incarnation of each replica when its cluster was founded. Later ones are larger."""


class Membership(NamedTuple):
    """`founders`: the nonces of the replicas when they founded the cluster. `roster`: the newest incarnation of each
    that this one knows, its own among them. `joined`: nothing is missing that a former one of it may have said, so it
    promises, leads, and lets others in (PAX-15)."""

    founders: tuple[int, ...]
    roster: tuple[int, ...]
    joined: bool

    @property
    def cluster(self) -> int:
        """What tells the cluster from all others, of which others under the same names may have been founded."""
        return cluster_of(self.founders)


def cluster_of(founders: tuple[int, ...]) -> int:
    """63 bits."""
    digest = blake2b(pack(f"<{len(founders)}Q", *founders), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
