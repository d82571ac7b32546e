"""`logdb.aio` behind the blocking interface, so that the suite of `logdb.Database` runs on it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from logdb.txn.retry import run


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function in the loop, and return its result."""

        async def called() -> Any:
            return function(*args, **kwargs)

        return self.run(called())

    def iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        """The items of an asynchronous iterator, one step in the loop for each."""
        try:
            while True:
                try:
                    yield self.run(items.__anext__())  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
        finally:
            if threading.current_thread() is self._thread:  # collected there: it cannot wait for itself
                self._loop.create_task(items.aclose())  # type: ignore[attr-defined]
            elif not self._loop.is_closed():
                self.run(items.aclose())  # type: ignore[attr-defined]

    def close(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """A blocking view of an object of `logdb.aio`: runs its coroutines and iterates over its asynchronous iterators."""

    def __init__(self, target: Any, loop: Loop) -> None:
        self._target, self._loop = target, loop

    def __getattr__(self, name: str) -> Any:
        found = self._loop.call(getattr, self._target, name)
        if inspect.iscoroutinefunction(found):
            return lambda *args, **kwargs: self._loop.run(found(*args, **kwargs))
        if name in ("scan", "history"):
            return lambda *args, **kwargs: self._loop.iterate(self._loop.call(found, *args, **kwargs))
        return found

    def __getitem__(self, key: bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value  # type: ignore[no-any-return]

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.put(key, value)

    def __delitem__(self, key: bytes) -> None:
        self.delete(key)


class BlockingTable(Blocking):
    """A table of `logdb.aio` with the interface of `logdb.tables.Table`."""

    def within(self, txn: Any) -> BlockingTable:
        return BlockingTable(self._target.within(txn._target), self._loop)

    def at(self, *args: Any, **kwargs: Any) -> BlockingTable:
        return BlockingTable(self._loop.run(self._target.at(*args, **kwargs)), self._loop)

    def index(self, name: str) -> Blocking:
        return Blocking(self._target.index(name), self._loop)

    @property
    def indexes(self) -> Any:
        return self._loop.run(self._target.indexes())


class BlockingLog(Blocking):
    """A named log of `logdb.aio` with the interface of `logdb.named_logs.NamedLog`."""

    def read(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return self._loop.iterate(self._loop.call(self._target.read, *args, **kwargs))

    def subscribe(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return self._loop.iterate(self._loop.call(self._target.subscribe, *args, **kwargs))

    def within(self, txn: Any) -> Blocking:
        return Blocking(self._target.within(txn._target), self._loop)

    def consumer(self, name: str) -> BlockingConsumer:
        return BlockingConsumer(self._target.consumer(name), self._loop)

    def group(self, name: str, **options: Any) -> BlockingConsumer:
        return BlockingConsumer(self._target.group(name, **options), self._loop)

    def __len__(self) -> int:
        return self._loop.run(self._target.count())  # type: ignore[no-any-return]

    @property
    def retention(self) -> Any:
        return self._loop.run(self._target.retention())

    @property
    def first(self) -> Any:
        return self._loop.run(self._target.first())

    @property
    def last(self) -> Any:
        return self._loop.run(self._target.last())


class BlockingConsumer(Blocking):
    """A consumer of `logdb.aio` with the interface of `logdb.named_logs.Consumer`. The body of `run` is a plain
    function; it runs in a thread, so that it may wait for the loop."""

    def run(self, body: Callable[[Any, Any], Any], **options: Any) -> int:
        async def awaited(txn: Any, entry: Any) -> None:
            await asyncio.to_thread(body, BlockingTransaction(txn, self._loop), entry)

        return self._loop.run(self._target.run(awaited, **options))  # type: ignore[no-any-return]

    def __enter__(self) -> BlockingConsumer:
        self._loop.run(self._target.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._target.__aexit__(*error))

    @property
    def position(self) -> Any:
        return self._loop.run(self._target.position())

    @property
    def lag(self) -> int:
        return self._loop.run(self._target.lag())  # type: ignore[no-any-return]


class BlockingTransaction(Blocking):
    """A transaction of `logdb.aio`."""

    def log(self, name: str) -> Blocking:
        return Blocking(self._target.log(name), self._loop)


class BlockingTransactionScope:
    """The context of a transaction."""

    def __init__(self, committing: Any, loop: Loop) -> None:
        self._committing, self._loop = committing, loop

    def __enter__(self) -> BlockingTransaction:
        return BlockingTransaction(self._loop.run(self._committing.__aenter__()), self._loop)

    def __exit__(self, *error: Any) -> None:
        self._loop.run(self._committing.__aexit__(*error))


class BlockingDatabase(Blocking):
    """A `logdb.aio.Database` with the interface of `logdb.Database`."""

    def at(self, *args: Any, **kwargs: Any) -> Blocking:
        return Blocking(self._loop.run(self._target.at(*args, **kwargs)), self._loop)

    @property
    def version(self) -> int:
        return self._loop.run(self._target.version())  # type: ignore[no-any-return]

    @property
    def oldest_version(self) -> int:
        return self._loop.run(self._target.oldest_version())  # type: ignore[no-any-return]

    @property
    def pins(self) -> dict[str, int]:
        return self._loop.run(self._target.pins())  # type: ignore[no-any-return]

    def table(self, *args: Any, **kwargs: Any) -> BlockingTable:
        return BlockingTable(self._target.table(*args, **kwargs), self._loop)

    def log(self, name: str, **options: Any) -> BlockingLog:
        return BlockingLog(self._target.log(name, **options), self._loop)

    def watch(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        async def begun() -> AsyncIterator[Any]:
            return aiter(await self._target.watch(*args, **kwargs))

        return self._loop.iterate(self._loop.run(begun()))

    def transaction(self, **options: Any) -> BlockingTransactionScope:
        return BlockingTransactionScope(self._target.transaction(**options), self._loop)

    def run(self, body: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return run(self, body, *args, **kwargs)  # type: ignore[arg-type]

    def __enter__(self) -> BlockingDatabase:
        self._loop.run(self._target.__aenter__())
        return self

    def __exit__(self, *error: Any) -> None:
        self._loop.run(self._target.__aexit__(*error))

    def __repr__(self) -> str:
        return repr(self._target)
