"""Ctrl-C that waits for the end of a step, so that what has been done is known when it comes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """While it is entered, Ctrl-C inside a `held` block comes at the end of the block; a second one comes at once."""

    def __init__(self) -> None:
        self._holding = self._pending = False

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._holding or self._pending:
            raise KeyboardInterrupt
        self._pending = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold Ctrl-C back until the end of the block."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending:
            raise KeyboardInterrupt
