"""Statements of a paper beside what was measured, and tables and plots of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Group
from rich.table import Table

Rows = tuple[str, list[str], list[list[str]]]
"""(title, headings, rows)."""


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

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**self._asdict(), "verdict": self.verdict}


def statement_rows(title: str, statements: Sequence[Statement]) -> Rows:
    """All of them, as a table."""
    rows = [[one.where, one.says, one.ours, one.verdict] for one in statements]
    return title, ["Where", "Statement", "Here", "Verdict"], rows


def shown(tables: Sequence[Rows]) -> Group:
    """For a terminal."""
    found = []
    for title, headings, rows in tables:
        one = Table(*headings, title=title)
        for row in rows:
            one.add_row(*row)
        found.append(one)
    return Group(*found)


def markdown(title: str, command: str, tables: Sequence[Rows]) -> str:
    """The page that stays in the repository."""
    lines = [f"# {title}", "", f"`{command}`"]
    for heading, headings, rows in tables:
        lines += ["", f"## {heading}", "", "| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def name_axes(axis: Any, title: str, x: str, y: str) -> None:
    """Title and axes of a plot, which begins at 0."""
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=7)
