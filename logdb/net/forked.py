"""gRPC and fork(): its threads are not in a child, and nothing brings them back, so calls there hang or crash."""

from __future__ import annotations

import os

from logdb.errors import Unavailable

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
