"""Limits of a server's connections: their number, and the time that idle ones are kept."""

from __future__ import annotations

import resource
from typing import Final

KEPT_FILES: Final = 256
"""Descriptors reserved for files, the process itself and metrics; the rest is for connections."""
MAX_FILES: Final = 1 << 16
SILENT_MS: Final = 3_000
"""Maximum time until the TLS or HTTP/2 handshake of a connection begins."""
IDLE_MS: Final = 30_000
"""Maximum time without a call on a connection."""
STREAMS: Final = 100
"""Maximum number of streams on one connection; LogDB's clients use one."""
WATCH_SHARE: Final = 4
"""One in this number of connections may be kept open by a watch of the health service, which needs no right."""


def raise_open_files() -> None:
    """Raise the limit of open descriptors as far as the system allows, up to MAX_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def max_connections(descriptors: int = 1) -> int:
    """Maximum number of connections in this process. `descriptors`: for each, with what belongs to it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MAX_FILES if soft == resource.RLIM_INFINITY else soft
    return max(files - KEPT_FILES, files // 2) // descriptors


def connection_options(descriptors: int = 1) -> list[tuple[str, int]]:
    """The options of a gRPC server in this process. `descriptors`: as of `max_connections`."""
    return [
        ("grpc.max_allowed_incoming_connections", max_connections(descriptors)),
        ("grpc.server_handshake_timeout_ms", SILENT_MS),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.max_concurrent_streams", STREAMS),
    ]
