"""Where servers that are started for a while listen."""

import itertools
import random
import socket
from collections.abc import Iterator

_PORTS = itertools.cycle(random.sample(range(20_000, 32_000), 12_000))
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
