"""How many connections a server takes, and how long it keeps those that say nothing."""

from __future__ import annotations

import resource
from typing import Final

KEPT_FILES: Final = 256
"""So many descriptors are not for connections: files, what the process itself needs, answers to those who measure."""
WANTED_FILES: Final = 1 << 16
SILENT_MS: Final = 3_000
"""A connection whose TLS or HTTP/2 does not begin within this time is ended."""
IDLE_MS: Final = 30_000
"""One over which no call goes is ended after this time."""
STREAMS: Final = 100
"""Of one connection: our clients need one."""


def raise_open_files() -> None:
    """Let this process have as many descriptors as the system allows it, up to WANTED_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_options() -> list[tuple[str, int]]:
    """For a server of gRPC in this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    return [
        ("grpc.max_allowed_incoming_connections", max(files - KEPT_FILES, files // 2)),
        ("grpc.server_handshake_timeout_ms", SILENT_MS),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.max_concurrent_streams", STREAMS),
    ]
