"""Bugs in consumers, which the simulation must catch: a method's source with some places changed."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable

import pytest

from logdb.named_logs.async_consumer import AsyncConsumer
from logdb.named_logs.cursors import Heartbeats, Pick, Progress

Plant = Callable[[pytest.MonkeyPatch], None]


def mutated(owner: type, method: str, *places: tuple[str, str]) -> Plant:
    """The plant that replaces places in the source of a method."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        source = textwrap.dedent(inspect.getsource(inspect.getattr_static(owner, method)))
        for right, wrong in places:
            assert source.count(right) == 1, f"{right!r} is not in {method} once"
            source = source.replace(right, wrong)
        names: dict[str, object] = {}
        exec(source, vars(inspect.getmodule(owner)), names)
        monkeypatch.setattr(owner, method, names[method])

    return plant


PLANTED: dict[str, Plant] = {
    "the cursor moves in another transaction than the effects": mutated(
        AsyncConsumer,
        "_commit",
        ("        pick.move(txn)\n", ""),
        ("    if committed:\n", "    if committed:\n        await self._db.multi_put(dict(pick.moved))\n"),
    ),
    "the cursor moves before the effects": mutated(
        AsyncConsumer,
        "_commit",
        ("        pick.move(txn)\n", ""),
        ("    try:\n", "    await self._db.multi_put(dict(pick.moved))\n    pick.expected.clear()\n    try:\n"),
    ),
    "a partition is read without its cursor": mutated(
        Progress, "pick", ("(self._keys.owners, *lasts)", "(self._keys.owners,)")
    ),
    "a member does not check that it owns the partition": mutated(
        Progress, "pick", ("(self._keys.owners, *lasts)", "lasts")
    ),
    "a transaction that runs again does not compare the cursor": mutated(
        Pick, "holds", ("return all(", "return found is not None or all(")
    ),
    "entries that were read ahead are kept when a cursor is before them": mutated(
        Progress, "refresh", ("if first < self.begin or first > self.end:", "if first > self.end:")
    ),
    "an entry before the cursor is due": mutated(Progress, "_is_due", ("position < entry.position", "True")),
    "the cursor of a partition passes entries that were read ahead": mutated(
        Progress, "idle", ("part not in busy", "True")
    ),
    "owners that change before a member waits are missed": mutated(
        Progress, "confirm", ("return self.is_known", "return True"), ("self.is_known = all(", "_ = all(")
    ),
    "a member is never lost": mutated(Heartbeats, "observe", ("now - since >= _lease_s(value)", "False")),
}
