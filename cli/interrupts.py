"""Delays Ctrl-C until the end of a step, so that an interrupted command can report the steps that it has completed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """In this context, Ctrl-C inside a `delayed` block is raised at the end of the block; a second one is raised at
    once."""

    def __init__(self) -> None:
        self._is_delayed = self._pending = False

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._is_delayed or self._pending:
            raise KeyboardInterrupt
        self._pending = True

    @contextmanager
    def delayed(self) -> Iterator[None]:
        """Delay Ctrl-C until the end of the block."""
        self._is_delayed = True
        try:
            yield
        finally:
            self._is_delayed = False
        if self._pending:
            raise KeyboardInterrupt
