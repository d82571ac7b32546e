"""Consumers of named logs for asyncio: the verbs of `consumer.py`, awaited."""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Protocol, Self

from logdb.errors import ConflictError, LogDBError, OutcomeUnknown, VersionTrimmed
from logdb.named_logs.cursors import (
    PAGE,
    ConsumerKeys,
    ConsumerState,
    Heartbeats,
    Pick,
    Progress,
    check_count,
    check_lease,
    check_partitions,
    consumer_in,
    first_position,
    is_balanced,
    partitions_in,
    rebalanced,
    states_of,
)
from logdb.named_logs.layout import CONSUMERS, LOGS, Entry, Layout, Position, behind, check_start, checked_position
from logdb.named_logs.snapshots import at_newest_async
from logdb.store.arguments import check_body, check_flag, checked_wait


class Reader(Protocol):
    """A snapshot or a transaction."""

    async def multi_get(self, keys: list[bytes], /) -> Mapping[bytes, bytes]: ...
    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> AsyncIterator[tuple[bytes, bytes]]: ...


class Snapshot(Reader, Protocol):
    """A snapshot, at `version`."""

    version: int


class Base(Protocol):
    """A database."""

    async def at(self, version: int | None = None, *, time: dt.datetime | float | None = None) -> Snapshot: ...
    async def multi_put(self, items: Mapping[bytes, bytes | None], *, label: str = "") -> int: ...
    async def delete_range(self, start: bytes | None = None, end: bytes | None = None, *, label: str = "") -> int: ...
    async def run(self, body: Callable[[Any], Awaitable[Any]], *, label: str | None = None) -> Any: ...
    async def outcome(self, txn_id: str, *, settle: bool = False) -> Any: ...
    def watch(
        self,
        prefix: bytes | None = None,
        *,
        keys: Any = None,
        since: int | None = None,
        timeout: float | None = None,
    ) -> AsyncIterable[Any]: ...


async def _rows(rows: AsyncIterator[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [row async for row in rows]


async def consumers_of(snapshot: Reader, layout: Layout) -> list[str]:
    """As `consumer.consumers_of`."""
    start, end = LOGS.range((layout.name, CONSUMERS))
    names = list[str]()
    while rows := await _rows(snapshot.scan(start, end, limit=1)):
        names.append(consumer_in(rows[0][0]))
        start = ConsumerKeys(layout.name, names[-1]).all[1]
    return names


async def end_of(db: Base, layout: Layout, *, reverse: bool) -> Position | None:
    """As `logdb.named_logs.consumer.end_of`."""
    rows = await at_newest_async(db, lambda snapshot: _rows(snapshot.scan(*layout.range(), reverse=reverse, limit=1)))
    return next((entry.position for entry in layout.read(rows)), None)


class AsyncConsumer:
    """`Consumer` for asyncio: `AsyncNamedLog.consumer` makes one."""

    _member: str | None = None

    def __init__(self, db: Base, layout: Layout, name: str) -> None:
        self._db, self._layout = db, layout
        self._keys = ConsumerKeys(layout.name, name)
        self._progress = Progress(layout, self._keys)
        self._label = f"consumer {name} of {layout.name}"[:200]

    @property
    def name(self) -> str:
        """The name of the consumer."""
        return self._keys.name

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    # ---- consuming

    async def run(
        self,
        body: Callable[[Any, Entry], object],
        *,
        batch: int = 1,
        limit: int | None = None,
        timeout: float | None = None,
        until_end: bool = False,
    ) -> int:
        """As `logdb.named_logs.Consumer.run`, for an async function `body(txn, entry)`, or for a plain one
        that awaits nothing, because it only writes."""
        check_body(body)
        check_flag("until_end", until_end)
        for name, count in (("batch", batch), ("limit", limit)):
            check_count(name, count)
        timeout, through, progress = checked_wait(timeout), None, self._progress
        now = asyncio.get_running_loop().time
        with progress.running():
            if until_end:
                through = await end_of(self._db, self._layout, reverse=True)
                if through is None:
                    return 0
            done, idle_since, progress.is_known = 0, now(), False
            while limit is None or done < limit:
                await self._beat()
                if not progress.is_known:
                    progress.refresh(
                        await at_newest_async(self._db, lambda snapshot: snapshot.multi_get(progress.keys))
                    )
                pick = progress.pick(batch if limit is None else min(batch, limit - done), through)
                if pick.entries:
                    if await self._commit(pick, body):
                        done += len(pick.entries)
                        idle_since = now()
                    continue
                if through is not None and progress.end >= through:
                    break
                version = await at_newest_async(self._db, self._look)
                if version is None:
                    continue
                left = None if timeout is None else idle_since + timeout - now()
                if through is not None or (left is not None and left <= 0):
                    break
                await self._wait(version, self._waiting_time(left))
            return done

    async def _look(self, snapshot: Any) -> int | None:
        """As `logdb.named_logs.Consumer._look`."""
        progress = self._progress
        rows = await _rows(snapshot.scan(*self._layout.range(progress.end), limit=PAGE))
        if entries := list(self._layout.read(rows)):
            progress.add(entries)
            return None
        return snapshot.version if progress.confirm(await snapshot.multi_get(progress.watched)) else None

    async def _commit(self, pick: Pick, body: Callable[[Any, Entry], object] | None = None) -> bool:
        """Move cursors, and let the entries take effect in the same transaction. Returns whether it has committed."""

        async def step(txn: Any) -> bool:
            if not pick.holds(await txn.multi_get(list(pick.expected))):
                return False
            for entry in pick.entries:
                result = body(txn, entry) if body is not None else None
                if isinstance(result, Awaitable):
                    await result
            pick.move(txn)
            return True

        try:
            committed = bool(await self._db.run(step, label=self._label))
        except ConflictError as conflict:
            if conflict.key not in pick.expected:
                raise
            committed = False
        except OutcomeUnknown as error:
            committed = bool((await self._db.outcome(error.txn_id, settle=True)).committed)
        if committed:
            self._progress.done(pick)
        else:
            self._progress.is_known = False
        return committed

    async def _wait(self, version: int, timeout: float | None) -> None:
        """Wait for entries, or for other owners or cursors, after a version at which the progress is at the end."""
        progress, keys = self._progress, self._progress.watched
        changes: Any = aiter(self._db.watch(self._layout.entries, keys=keys, since=version, timeout=timeout))
        try:
            async with aclosing(changes):
                async for change in changes:
                    if not change.changes.keys().isdisjoint(keys) or change.deleted:
                        progress.is_known = False
                        return
                    if entries := self._layout.changed(change.changes, progress.end):
                        progress.add(entries)
                        return
        except VersionTrimmed:  # a compaction has overtaken the consumer: the entries are still there
            pass

    async def _beat(self) -> None:
        """Send the heartbeat of a group's member when it is due."""

    def _waiting_time(self, left_s: float | None) -> float | None:
        """The time in seconds that it may wait before something is due."""
        return left_s

    # ---- the cursor

    async def states(self) -> list[ConsumerState]:
        """As `logdb.named_logs.Consumer.states`."""

        async def read(snapshot: Reader) -> list[ConsumerState]:
            found = await self._cursors(snapshot)
            rows = await _rows(snapshot.scan(*self._layout.range(first_position(self._keys, found))))
            return states_of(self._keys, found, self._layout.read(rows))

        return await at_newest_async(self._db, read)

    async def _cursors(self, snapshot: Reader) -> dict[bytes, bytes]:
        """The stored owners and cursors."""
        found = await snapshot.multi_get([self._keys.owners])
        return {**found, **await snapshot.multi_get(self._keys.cursors(partitions_in(self._keys, found)))}

    async def position(self) -> Position | None:
        """As `logdb.named_logs.Consumer.position`."""
        position = first_position(self._keys, await at_newest_async(self._db, self._cursors))
        return position if position.version else None

    async def lag(self) -> int:
        """As `logdb.named_logs.Consumer.lag`."""
        return sum([state.lag for state in await self.states()])

    async def reset(
        self,
        after: Position | None = None,
        *,
        since: dt.datetime | float | None = None,
        to_end: bool = False,
    ) -> int:
        """As `logdb.named_logs.Consumer.reset`."""
        check_flag("to_end", to_end)
        check_start(after, since, to_end or None)
        if after is not None:
            position: Position | None = checked_position("after", after)
        elif since is not None:
            position = behind((await self._db.at(time=since)).version)
        else:
            position = None

        async def move(txn: Any) -> Any:
            partitions = partitions_in(self._keys, await txn.multi_get([self._keys.owners]))
            to = position
            if to_end:  # the cursors are read first: one that passes the end conflicts, instead of going back
                await txn.multi_get(self._keys.cursors(partitions))
                to = await end_of(self._db, self._layout, reverse=True)
            txn.multi_put(self._keys.moved(range(partitions), to))
            return txn

        return int((await self._db.run(move, label="")).version)

    async def delete(self) -> int:
        """As `logdb.named_logs.Consumer.delete`."""
        return await self._db.delete_range(*self._keys.all)

    def __repr__(self) -> str:
        return f"<logdb.named_logs.{type(self).__name__} {self.name!r} of {self._layout.name!r}>"


class AsyncGroupConsumer(AsyncConsumer):
    """`GroupConsumer` for asyncio: `AsyncNamedLog.group` makes one."""

    def __init__(self, db: Base, layout: Layout, name: str, partitions: int, lease: float) -> None:
        super().__init__(db, layout, name)
        check_partitions(partitions)
        check_lease(lease)
        self._partitions, self._lease_s = partitions, lease
        self._heartbeats: Heartbeats | None = None

    @property
    def member(self) -> str:
        """As `logdb.named_logs.GroupConsumer.member`."""
        return self._joined()[1]

    @property
    def partitions(self) -> list[int]:
        """As `logdb.named_logs.GroupConsumer.partitions`."""
        self._joined()
        return sorted(self._progress.positions)

    def _joined(self) -> tuple[Heartbeats, str]:
        if self._heartbeats is None or self._member is None:
            raise LogDBError(f"use the group {self.name!r} in a with statement, which makes it a member")
        return self._heartbeats, self._member

    async def __aenter__(self) -> Self:
        if self._heartbeats is not None:
            raise LogDBError(f"this is a member of the group {self.name!r} already: make another one")
        self._member = secrets.token_hex(8)
        self._progress = Progress(self._layout, self._keys, self._partitions, self._member)
        self._heartbeats = Heartbeats(self._keys, self._member, self._lease_s)
        try:
            await self._beat(is_joining=True)
            self._progress.refresh(
                await at_newest_async(self._db, lambda snapshot: snapshot.multi_get(self._progress.keys))
            )
        except BaseException:
            self._heartbeats = None
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        with suppress(LogDBError):  # then its lease ends
            await self._rebalance(is_leaving=True)
        self._heartbeats = None

    async def _beat(self, *, is_joining: bool = False) -> None:
        heartbeats, _ = self._joined()
        now = asyncio.get_running_loop().time
        if now() < heartbeats.due:
            return
        if is_joining:
            await self._rebalance(is_joining=True)
            return

        async def step(txn: Any) -> None:
            if not await txn.multi_get([self._keys.owners]):
                raise self._keys.deleted()  # and stays so: no heartbeat remains of it
            txn.multi_put(heartbeats.next(now()))

        await self._db.run(step, label=self._label)

        async def read(snapshot: Reader) -> Any:
            return await _rows(snapshot.scan(*self._keys.heartbeats)), await snapshot.multi_get([self._keys.owners])

        rows, owners = await at_newest_async(self._db, read)
        live, _ = heartbeats.observe(rows, now())
        if not is_balanced(self._keys, owners, live):
            await self._rebalance()
        elif (pick := self._progress.idle()).moved:
            await self._commit(pick)

    async def _rebalance(self, *, is_joining: bool = False, is_leaving: bool = False) -> None:
        """Make the owners those that suit the live members, and remove the heartbeats of the lost ones."""
        heartbeats, member = self._joined()
        keys, now = [self._keys.owners, self._keys.cursor(0)], asyncio.get_running_loop().time

        async def step(txn: Any) -> None:
            found = await txn.multi_get(keys)
            rows = await at_newest_async(self._db, lambda snapshot: _rows(snapshot.scan(*self._keys.heartbeats)))
            live, lost = heartbeats.observe(rows, now())
            if is_leaving:
                live, lost = live - {member}, lost | {member}
            writes = rebalanced(self._keys, found, self._partitions, live, lost, is_joining=is_joining)
            if is_joining:  # with the owners, so that a member that is refused leaves nothing
                writes |= heartbeats.next(now())
            txn.multi_put(writes)

        await self._db.run(step, label=self._label)
        self._progress.is_known = False

    def _waiting_time(self, left_s: float | None) -> float | None:
        heartbeats, _ = self._joined()
        due = max(heartbeats.due - asyncio.get_running_loop().time(), 0.0)
        return due if left_s is None else min(left_s, due)
