"""Progress of a long run: on a terminal a line that changes, in a file a line each minute."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import Progress

EVERY_S: Final = 60.0


@contextmanager
def showing_progress(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the current step. In a file it prints the first one, then one in `EVERY_S`."""
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
        return
    begun, printed = clock(), -math.inf

    def show(step: str) -> None:
        nonlocal printed
        now = clock()
        if now - printed >= EVERY_S:
            printed = now
            console.print(f"{now - begun:7.0f} s  {step}", highlight=False, markup=False, soft_wrap=True)

    yield show


@contextmanager
def counting(
    console: Console, unit: str, total: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Yields a function to call after each of `total` steps."""
    if console.is_terminal:
        with Progress(console=console) as progress:
            task = progress.add_task(unit, total=total)
            yield lambda: progress.advance(task)
        return
    with showing_progress(console, clock) as show:
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            show(f"{done:,} of {total:,} {unit}")

        yield advance
