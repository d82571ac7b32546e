"""Addresses for servers of tests."""

import fcntl
import itertools
import os
import random
import socket
import tempfile
from collections.abc import Iterator

BLOCK = 1_000
BLOCKS = range(10_000, 32_000, BLOCK)
"""Outside the range from which the system takes ports of outgoing connections: another process could get such a port
between the check and its use."""


def _own_block() -> range:
    """A block of ports that no other process of this user takes while this one runs, so that a restarted server finds
    its port free, also beside other runs of the tests. With all blocks taken: one that is shared."""
    firsts = random.sample(BLOCKS, len(BLOCKS))
    for first in firsts:
        lock = os.open(
            f"{tempfile.gettempdir()}/logdb-tests-{os.getuid()}-ports-{first}", os.O_RDWR | os.O_CREAT, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return range(first, first + BLOCK)
    return range(firsts[0], firsts[0] + BLOCK)


_PORTS = itertools.cycle(random.sample(_own_block(), BLOCK))
"""Each again only after all have been used."""


def free_ports() -> Iterator[int]:
    """Free ports of the loopback address."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


def free_addresses() -> Iterator[str]:
    """Free loopback addresses."""
    return (f"127.0.0.1:{port}" for port in free_ports())
