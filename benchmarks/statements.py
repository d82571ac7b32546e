"""Statements of a paper, and the figures measured here beside them."""

from __future__ import annotations

from typing import NamedTuple


class Statement(NamedTuple):
    """`says`: the paper, in `where`; `ours`: the figure here; `agrees`: in shape. `supposed`: the cause of a
    difference that the design suggests, which this run does not prove; "" if none is known."""

    where: str
    says: str
    ours: str
    agrees: bool
    supposed: str

    @property
    def verdict(self) -> str:
        """For people."""
        if self.agrees:
            return "agrees"
        return f"differs; supposed cause: {self.supposed}" if self.supposed else "differs; the cause is unknown"
