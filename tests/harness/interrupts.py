"""KeyboardInterrupt at a chosen line of the product, as a signal could raise it."""

from __future__ import annotations

import dis
import sys
from types import FrameType
from typing import Any


class InterruptedAt:
    """A context that raises KeyboardInterrupt at the nth line of `files` that this thread comes to.

    Not at lines of the functions named in `spared`. `where`: the function and line, once it was raised.
    """

    def __init__(self, nth: int, files: tuple[str, ...], spared: tuple[str, ...] = ()) -> None:
        self.left, self.where = nth, ""
        self._files, self._spared = files, spared

    def __enter__(self) -> InterruptedAt:
        sys.settrace(self._call)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename.endswith(self._files) else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        # Where a handler begins no signal is handled: an exception raised there leaves the handled one the thread's.
        if event != "line" or code.co_code[frame.f_lasti] == dis.opmap["PUSH_EXC_INFO"]:
            return self._line
        self.left -= 1
        if self.left > 0 or code.co_name in self._spared:
            return self._line
        sys.settrace(None)
        self.where = f"{code.co_qualname} {frame.f_lineno}"
        raise KeyboardInterrupt
