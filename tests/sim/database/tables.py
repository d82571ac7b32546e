"""The disk of a mapping server: the tables of its checkpoint in memory, under the code that writes them.

`Checkpoints`, which decides what is written when, and `Checkpoint`, which knows how, are the real ones, in a loop of
virtual time; what stands below them here is LMDB's part: transactions that are durable one after another. A kill
loses all that the writer has not reached by then, whatever it had been told to write.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from unittest import mock

import lmdb

from logdb.log.cores import MILLISECOND
from logdb.net import checkpoints
from logdb.net.checkpoints import Checkpoints
from logdb.store import checkpoint
from tests.sim.database.loop import Loop
from tests.sim.process import Process
from tests.sim.world import Failure

SECOND_NS = 20 * MILLISECOND
"""A second of the real code: it looks every half of one whether a checkpoint is due."""
SLICE_ROWS = 3
SLICE_NS = 2 * MILLISECOND
"""One transaction of the tables: how many keys, and how long it takes."""

Table = tuple[dict[bytes, bytes], list[bytes]]
"""The rows, and their keys in order. Never changed once committed."""
State = dict[bytes, Table]
EMPTY: State = {name: ({}, []) for name in checkpoint.TABLES}


class Environment:
    """What the tables use of `lmdb.Environment`. `state`: as last committed; `states`: not yet durable, with when each
    will be."""

    def __init__(self) -> None:
        self.state = EMPTY
        self.durable = EMPTY
        self.states: list[tuple[int, State]] = []
        self.is_full = False
        self._moment = 0

    def begin(self, db: bytes = b"", write: bool = False) -> Txn:
        return Txn(self, db, write)

    def reader_check(self) -> None: ...
    def close(self) -> None: ...

    def commit(self, state: State) -> None:
        if self.is_full:
            raise lmdb.MapFullError("the disk is full")
        self._moment += SLICE_NS
        self.state = state
        self.states.append((self._moment, state))

    def writes_from(self, now: int) -> None:
        """A writer begins."""
        self.settle(now)
        self._moment = now

    @property
    def ends_at(self) -> int:
        """When all that was committed is durable."""
        return self._moment

    def settle(self, now: int) -> None:
        """Time has passed."""
        while self.states and self.states[0][0] <= now:
            self.durable = self.states.pop(0)[1]

    def crash(self, now: int) -> None:
        """What is not durable is lost."""
        self.settle(now)
        self.states.clear()
        self.state = self.durable

    def wipe(self) -> None:
        """All is lost."""
        self.states.clear()
        self.state = self.durable = EMPTY
        self.is_full = False


class Txn:
    """What they use of `lmdb.Transaction`: one snapshot, and writes of its own over it."""

    def __init__(self, env: Environment, db: bytes, is_write: bool) -> None:
        self._env, self._db, self._is_write = env, db, is_write
        self._state = dict(env.state) if is_write else env.state
        self._own: set[bytes] = set()

    def get(self, key: bytes, db: bytes | None = None) -> bytes | None:
        return self._state[db or self._db][0].get(key)

    def _mine(self, db: bytes) -> Table:
        assert self._is_write
        if db not in self._own:
            rows, keys = self._state[db]
            self._state[db] = dict(rows), list(keys)
            self._own.add(db)
        return self._state[db]

    def put(self, key: bytes, value: bytes, db: bytes) -> None:
        rows, keys = self._mine(db)
        if key not in rows:
            insort(keys, key)
        rows[key] = value

    def delete(self, key: bytes, db: bytes) -> None:
        rows, keys = self._mine(db)
        if rows.pop(key, None) is not None:
            del keys[bisect_left(keys, key)]

    def stat(self, db: bytes) -> dict[str, int]:
        return {"entries": len(self._state[db][0])}

    def cursor(self, db: bytes | None = None) -> Cursor:
        return Cursor(*self._state[db or self._db])

    def abort(self) -> None: ...

    def __enter__(self) -> Txn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and self._own:
            self._env.commit(self._state)


class Cursor:
    """What `lmdb.Cursor` has for who reads."""

    def __init__(self, rows: dict[bytes, bytes], keys: list[bytes]) -> None:
        self._rows, self._keys = rows, keys
        self._at = -1

    def close(self) -> None: ...

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self.iternext()

    def _move(self, at: int) -> bool:
        self._at = at if 0 <= at < len(self._keys) else -1
        return self._at >= 0

    def first(self) -> bool:
        return self._move(0)

    def last(self) -> bool:
        return self._move(len(self._keys) - 1)

    def prev(self) -> bool:
        return self._move(self._at - 1)

    def next(self) -> bool:
        return self._move(self._at + 1)

    def set_range(self, key: bytes) -> bool:
        return self._move(bisect_left(self._keys, key))

    def set_key(self, key: bytes) -> bool:
        return key in self._rows and self.set_range(key)

    def item(self) -> tuple[bytes, bytes]:
        return (self.key(), self.value()) if self._at >= 0 else (b"", b"")

    def key(self) -> bytes:
        return self._keys[self._at]

    def value(self) -> bytes:
        return self._rows[self._keys[self._at]]

    def iternext(self) -> Iterator[tuple[bytes, bytes]]:
        yield from [(key, self._rows[key]) for key in self._keys[max(self._at, 0) :]]

    def iterprev(self) -> Iterator[tuple[bytes, bytes]]:
        yield from [(key, self._rows[key]) for key in self._keys[self._at :: -1] if self._at >= 0]


class Drive:
    """What a mapping server has on disk. `path` stands for its directory. `trap`: called when something is next
    written, with how long that takes (ns)."""

    def __init__(self, process: Process, overlay_bytes: int, every_s: float) -> None:
        self._process, self._overlay_bytes, self._every_s = process, overlay_bytes, every_s
        self.env = Environment()
        self.checkpoints: Checkpoints | None = None
        self.trap: Callable[[int], None] | None = None

    def mount(self) -> Checkpoints:
        """What a life of the server begins with."""

        class Directory:
            """As much of a path as is asked for."""

            def exists(self) -> bool:
                return env.durable is not EMPTY

            def __fspath__(self) -> str:
                return "/simulated"

        env = self.env
        path: Any = Directory()
        with self._below():
            self.checkpoints = Checkpoints(path, b"log", self._overlay_bytes, self._every_s, self._damaged)
        env.settle(env.ends_at)
        return self.checkpoints

    @contextmanager
    def _below(self) -> Iterator[None]:
        """LMDB and the file system are these tables."""

        def open_env(path: str) -> tuple[Environment, list[bytes]]:
            return self.env, list(checkpoint.TABLES)

        with (
            mock.patch.object(checkpoint, "_share_environment", open_env),
            mock.patch.object(checkpoint, "_release_environment"),
            mock.patch.object(checkpoints, "wipe", side_effect=lambda path: self.env.wipe()),
        ):
            yield

    def begin(self, _: Any = None) -> None:
        """The server has started."""
        core: Any = self._process.core
        assert self.checkpoints is not None
        if core is None or core.replica.map is not self.checkpoints.map:
            return
        loop = Writing(self)
        with loop.running():
            self.checkpoints.begin(core)

    def crash(self, wipe: bool) -> None:
        """The server is no more."""
        self.trap = None
        if wipe:
            self.env.wipe()
        else:
            self.env.crash(self._process.world.now)

    def _damaged(self, why: BaseException) -> None:
        raise Failure("a checkpoint can be written and read", f"{self._process.address}: {why!r}")

    def write(self, work: Callable[[], None]) -> int:
        """Do what the thread of the checkpoints does; returns how long that takes."""
        world, env = self._process.world, self.env
        env.writes_from(world.now)
        with mock.patch.object(checkpoint, "SLICE_ROWS", SLICE_ROWS):
            work()
        took = env.ends_at - world.now
        if self.trap is not None and took:
            trap, self.trap = self.trap, None
            trap(took)
        return took


class Writing(Loop):
    """The loop of a server, with the thread that writes."""

    def __init__(self, drive: Drive) -> None:
        super().__init__(drive._process, SECOND_NS)
        self._drive = drive

    def run_in_executor(self, executor: Any, work: Any, *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            took = self._drive.write(lambda: work(*args))
        except Exception as error:
            done.set_exception(error)
            return done

        def finish() -> None:
            self._drive.env.settle(self._world.now)
            done.set_result(None)

        self._world.after(took, self._run, asyncio.Handle(finish, (), self, None))
        return done
