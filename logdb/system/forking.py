"""fork(): the objects that a child process inherits and must not use.

A child has the memory of its parent and none of its threads, so a lock that another thread held is never released;
and the resources that the parent has open (the lock of a directory, the map, the log, connections) are shared with the
child. An object that uses them registers with `own`. In the child it is disowned: it is closed there, without an effect
on the parent's. The child must open its own.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import weakref
from typing import Protocol


class Owned(Protocol):
    """An object that belongs to the process that made it."""

    def disown(self, parent: int) -> None:
        """Called in a child, in its only thread: become closed and replace locks, but release no shared resource.

        `parent`: the process to which the object belongs.
        """


# Not a WeakSet, which uses callbacks: a Ctrl-C during a callback is lost.
_owned: list[weakref.ref[Owned]] = []
_room = 64
_owning = threading.Lock()
_pid = os.getpid()


def own(thing: Owned) -> None:
    """Register an object, which is disowned in each later child of this process unless it was freed."""
    global _owned, _room  # noqa: PLW0603 - there is one for the process
    with _owning:
        if len(_owned) >= _room:
            _owned = [owned for owned in _owned if owned() is not None]
            _room = 2 * len(_owned) + 64
        _owned.append(weakref.ref(thing))


def forked_text(parent: int) -> str:
    """The end of an error message for a child: the reason, and what to do."""
    return (
        f"opened by process {parent}, from which this one was forked, and only for that one; open or connect again in "
        "this process, or start processes with 'spawn' or 'forkserver'"
    )


def keep_for_ever(thing: object) -> None:
    """Keep the object even when the interpreter ends: its destructor would change resources that the parent uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _disown_all() -> None:
    global _owned, _owning, _pid
    gc.freeze()  # the child must not collect the parent's garbage, such as objects of gRPC
    parent, _pid = _pid, os.getpid()
    inherited, _owned, _owning = _owned, [], threading.Lock()
    failed: list[Exception] = []
    for owned in inherited:
        thing = owned()
        if thing is not None:
            keep_for_ever(thing)
            try:
                thing.disown(parent)
            except OSError:
                pass  # a descriptor that a thread of the parent was closing
            except Exception as error:
                failed.append(error)
    if failed:  # Python prints it; all the others are disowned
        raise ExceptionGroup("not disowned in a child of fork()", failed)


os.register_at_fork(after_in_child=_disown_all)
