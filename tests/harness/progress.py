"""How far a long run is: on a terminal a line that changes, in a file a line each minute."""

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
def telling(console: Console, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str], None]]:
    """Takes what is being done. In a file the first line comes at once, and then one in `EVERY_S` at the most."""
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
        return
    begun, told = clock(), -math.inf

    def tell(what: str) -> None:
        nonlocal told
        now = clock()
        if now - told >= EVERY_S:
            told = now
            console.print(f"{now - begun:7.0f} s  {what}", highlight=False, markup=False, soft_wrap=True)

    yield tell


@contextmanager
def counting(
    console: Console, what: str, total: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[], None]]:
    """Is called when one more of `total` is done."""
    if console.is_terminal:
        with Progress(console=console) as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)
        return
    with telling(console, clock) as tell:
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            tell(f"{done:,} of {total:,} {what}")

        yield advance
