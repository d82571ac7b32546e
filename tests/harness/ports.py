"""Addresses for servers of tests."""

import itertools
import os
import random
import socket
from collections.abc import Iterator

SHARE = 1_500


def _mine() -> range:
    """The ports of this process. Workers of tests share none, so a restarted server finds its port free."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 20_000 + worker % 8 * SHARE
    return range(first, first + SHARE)


_PORTS = itertools.cycle(random.sample(_mine(), SHARE))
"""Ports outside the range from which the system takes those of outgoing connections: another process could get such a
port before it is used. In another order in each process, and each again only after all have been used."""


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
