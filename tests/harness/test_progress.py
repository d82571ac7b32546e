"""A long run shows its progress, on terminals and in files."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console

from tests.harness.progress import counting, showing_progress


def clock(*seconds: float) -> Iterator[float]:
    yield from seconds


def test_a_file_gets_a_line_each_minute() -> None:
    file, times = io.StringIO(), clock(100, 100, 130, 159.9, 160, 200, 230)
    with counting(Console(file=file, width=20), "seeds [red]", 6_000, lambda: next(times)) as advance:
        for _ in range(6):
            advance()
    assert file.getvalue() == (
        "      0 s  1 of 6,000 seeds [red]\n     60 s  4 of 6,000 seeds [red]\n    130 s  6 of 6,000 seeds [red]\n"
    )


def test_a_terminal_shows_the_progress() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True)
    with counting(console, "seeds", 2) as advance:
        advance()
        advance()
    assert "seeds" in file.getvalue()
    assert "100%" in file.getvalue()
    with showing_progress(console) as show:
        show("loading")
    assert "\x1b" in file.getvalue()
