"""fork(): the objects that a child process inherits and must not use.

A child has the memory of its parent and none of its threads, so a lock that another thread held stays locked for ever;
and what the parent has open (the lock of a directory, the map, the log, connections) is shared with the child. Whatever
would touch these registers with `own`, and is disowned in the child: it is closed there, while nothing happens to the
parent's. The child opens for itself what it needs.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import weakref
from typing import Protocol


class Owned(Protocol):
    """Something that belongs to the process that made it."""

    def disown(self, parent: int) -> None:
        """Called in a child, in its only thread: be closed, replace locks, let go of nothing that is shared.

        `parent`: the process that goes on with it.
        """


# Without callbacks, as a WeakSet has them: Ctrl-C that comes in one is lost.
_owned: list[weakref.ref[Owned]] = []
_room = 64
_owning = threading.Lock()
_pid = os.getpid()


def own(thing: Owned) -> None:
    """Have it disowned in the children of this process, if it still exists then."""
    global _owned, _room  # noqa: PLW0603 - there is one for the process
    with _owning:
        if len(_owned) >= _room:
            _owned = [owned for owned in _owned if owned() is not None]
            _room = 2 * len(_owned) + 64
        _owned.append(weakref.ref(thing))


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
    global _owned, _owning, _pid
    gc.freeze()  # what the parent left, gRPC's objects among it, is not the child's to collect
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
