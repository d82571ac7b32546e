"""fork(): what a child process inherits and must not use.

A child has the memory of its parent and none of its threads, so a lock that another thread held stays locked for ever;
and what the parent has open (the lock of a directory, the map, the log, connections) is shared with the child. Whatever
would touch these registers with `own`, and is disowned in the child: it is closed there, while nothing happens to the
parent's. The child opens for itself what it needs.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Protocol


class Owned(Protocol):
    """Something that belongs to the process that made it."""

    def disown(self, parent: int) -> None:
        """Called in a child, in its only thread: be closed, replace locks, let go of nothing that is shared.

        `parent`: the process that goes on with it.
        """


_owned: weakref.WeakSet[Owned] = weakref.WeakSet()
_pid = os.getpid()


def own(thing: Owned) -> None:
    """Have it disowned in the children of this process."""
    _owned.add(thing)


def forked_text(parent: int) -> str:
    """For the error that a child gets: what has happened, and what to do."""
    return (
        f"opened by process {parent}, from which this one was forked, and only for that one; open or connect again in "
        "this process, or start processes with 'spawn' or 'forkserver'"
    )


def keep_for_ever(thing: object) -> None:
    """Never free it, not even when the interpreter ends: what frees it would touch what the parent uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _disown_all() -> None:
    global _pid
    parent, _pid = _pid, os.getpid()
    things = list(_owned)
    _owned.clear()
    for thing in things:
        keep_for_ever(thing)
        thing.disown(parent)


os.register_at_fork(after_in_child=_disown_all)
