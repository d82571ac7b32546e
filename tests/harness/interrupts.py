"""KeyboardInterrupt at a chosen line or call of the product, as a signal could raise it."""

from __future__ import annotations

import dis
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import logdb

LOGDB = str(Path(logdb.__file__).parent)


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


class InterruptedAtCall:
    """A context that raises KeyboardInterrupt at the `at`-th call of a function of LogDB. `calls`: the calls so far.

    Python handles signals at calls. A trace of lines could also interrupt the exit of a `with`, where Python does not.
    """

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def __enter__(self) -> InterruptedAtCall:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> None:
        # Python discards exceptions raised in __del__.
        if frame.f_code.co_filename.startswith(LOGDB) and frame.f_code.co_name != "__del__":
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt
