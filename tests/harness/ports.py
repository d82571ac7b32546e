"""Where servers that are started for a while listen."""

import itertools
import os
import random
import socket
from collections.abc import Iterator

SHARE = 1_500


def _mine() -> range:
    """The ports of this process. Workers of tests share none: a server that was killed finds its port free."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 20_000 + worker % 8 * SHARE
    return range(first, first + SHARE)


_PORTS = itertools.cycle(random.sample(_mine(), SHARE))
"""None of those that the system gives to whoever opens a connection: between the choice of such a port and its use,
anybody may get it. In another order in each process, and none again before all have been used."""


def free_ports() -> Iterator[int]:
    """Ports of the loopback address that nobody listens at."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


def free_addresses() -> Iterator[str]:
    """Loopback addresses that nobody listens at."""
    return (f"127.0.0.1:{port}" for port in free_ports())
