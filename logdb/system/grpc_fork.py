"""gRPC and fork(): the threads of gRPC do not exist in a child and are not restarted, so calls there hang or crash.

Rooms that use gRPC import this module before it, since gRPC reads these settings when it is loaded.
"""

from __future__ import annotations

import os

from logdb.errors import Unavailable

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its other messages only help its developers
# gRPC's own support of fork() cannot work beside grpc.aio, whose thread is always inside gRPC: it crashes the child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_user: int | None = None


def claim_grpc() -> None:
    """Called before gRPC is used. Raises Unavailable in a child of a process that has used it."""
    global _user  # noqa: PLW0603 - there is one for the process
    pid = os.getpid()
    if _user is None:
        _user = pid
    elif _user != pid:
        raise Unavailable(
            f"process {_user}, from which this one was forked, had connected before, and gRPC does not outlive a fork: "
            "fork before the parent connects, or start processes with 'spawn' or 'forkserver'"
        )
