"""Children of fork(), as programs create them: they run some code, return a result, and end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import pickle
import resource
import select
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

T = TypeVar("T")

TIMEOUT_S = 60.0
"""The time after which a running child counts as hanging."""
NOBODY = 65_534
"""A user and a group that own no files."""


class Child:
    """A forked process that runs `body`; `result` waits for its return value.

    Errors that Python's hooks of fork() can only print fail the test, too, unless `printed` is a list that collects
    them.
    """

    def __init__(self, body: Callable[[], Any], printed: list[str] | None = None) -> None:
        self._answers, into = os.pipe()
        failures: list[str] = [] if printed is None else printed
        hook, sys.unraisablehook = sys.unraisablehook, lambda failure: failures.append(_text_of(failure))
        try:
            self.pid = os.fork()
        finally:
            sys.unraisablehook = hook
        if self.pid == 0:
            try:
                gc.freeze()  # the child must not collect objects of the parent, such as those of gRPC
                os.close(self._answers)
                try:
                    assert not failures or printed is not None, "\n".join(failures)
                    answer = pickle.dumps((body(), None))
                except BaseException:
                    answer = pickle.dumps((None, traceback.format_exc()))
                with os.fdopen(into, "wb") as pipe:
                    pipe.write(answer)
                os._exit(0)
            finally:
                os._exit(1)
        os.close(into)

    def result(self) -> Any:
        """Raises AssertionError if it hangs, crashes or raises."""
        parts = []
        while True:
            if not select.select([self._answers], [], [], TIMEOUT_S)[0]:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError("the child hangs")
            parts.append(os.read(self._answers, 1 << 16))
            if not parts[-1]:
                break
        os.close(self._answers)
        _, status = os.waitpid(self.pid, 0)
        assert status == 0, f"the child ended with status {status}"
        result, failure = pickle.loads(b"".join(parts))
        assert failure is None, failure
        return result


LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))
SHARED: Final = (type, types.ModuleType, types.FrameType, types.CodeType, threading.Thread, asyncio.AbstractEventLoop)
"""Not part of an object that refers to them."""


def locks_of(*things: Any) -> list[Any]:
    """The locks of threads and of coroutines that these objects have, and all objects that they refer to."""
    found, seen, left = list[Any](), set[int](), list(things)
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, SHARED):
            continue
        seen.add(id(thing))
        if isinstance(thing, (*LOCKS, asyncio.Lock)):
            found.append(thing)
        elif isinstance(thing, types.FunctionType):
            left.extend(thing.__closure__ or ())
        else:
            left.extend(gc.get_referents(thing))
    return found


@contextlib.contextmanager
def locks_held(*things: Any) -> Iterator[None]:
    """Another thread holds each lock that these objects have (`locks_of`), as it may at the time of a fork."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as releases:
            for lock in locks_of(*things):
                if isinstance(lock, asyncio.Lock):
                    setattr(lock, "_locked", True)  # noqa: B010 - not a part of its type
                    releases.callback(setattr, lock, "_locked", False)
                elif lock.acquire(blocking=False):  # else a third thread holds it
                    releases.callback(lock.release)
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    try:
        yield
    finally:
        done.set()
        holder.join()


def _text_of(failure: Any) -> str:
    return "".join(traceback.format_exception(failure.exc_value))


def allow_files(count: int) -> None:
    """Let this process open `count` more files; more if numbers between are taken."""
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + count, lowest_free + count))


def become_unprivileged(user: int = NOBODY) -> None:
    """Let the rights of files bind this process: root becomes another user."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def open_files() -> set[int]:
    """The descriptors that this process has open; no other one is needed to find them."""
    gc.collect()
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return {fd for fd in range(min(highest, 4_096)) if _is_open(fd)}


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def in_child(body: Callable[[], T], printed: list[str] | None = None) -> T:
    """The return value of `body` in a child of this process. `printed`: see `Child`."""
    result: T = Child(body, printed).result()
    return result


def refused(*calls: Callable[[], Any]) -> list[str]:
    """The errors that these raise: the name of the error and its text."""
    answers = []
    for call in calls:
        try:
            answers.append(f"no error: {call()!r}")
        except Exception as error:
            answers.append(f"{type(error).__name__}: {error}")
    return answers
