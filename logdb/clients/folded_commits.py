"""Commits as readers of a cluster's log need them: with the values that folds have written, which only mapping servers
have computed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from logdb.cluster.client import requests as calls
from logdb.store.records import Commit


async def with_folded_values(commit: Commit, gsn: int, call: Callable[[Any], Awaitable[Any]]) -> Commit:
    """The commit at `gsn`, if it was applied, with plain writes instead of its folds; else one with other values.
    `call`: sends a request to a mapping server. Raises VersionTrimmed, Unavailable."""
    if not commit.folds:
        return commit
    values = await folded_values(commit.folded_keys, gsn, call)
    return commit._replace(writes={**values, **commit.writes}, folds=())


async def folded_values(
    keys: tuple[bytes, ...], gsn: int, call: Callable[[Any], Awaitable[Any]]
) -> dict[bytes, bytes | None]:
    """The values at version `gsn` of keys that its commit has folded. Raises as `with_folded_values`."""
    found: calls.Found = await call(calls.Get(keys, calls.SNAPSHOT, gsn))
    return {key: value for key, (_, value) in zip(keys, found.entries, strict=True)}
