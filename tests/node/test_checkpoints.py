"""The map of a mapping server on disk: wherever the server is killed, it begins again with what the log says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, cast
from unittest import mock

import lmdb
import pytest

from logdb.cluster.compaction.records import CompactionBeginning, encode_beginning, encode_ending
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import Compact, Entries, Get, MapRow, MapRows, Part
from logdb.cores.effects import SECOND
from logdb.errors import LogDBError, Unavailable
from logdb.log.contract import Record
from logdb.node import checkpoints as module
from logdb.node.checkpoints import Checkpoints
from logdb.node.storage import CheckpointStorage
from logdb.store import checkpoint as tables
from logdb.store.records import BEGINNING, ENDING, Place, TxnId
from logdb.store.runs import Group
from logdb.txn.validation import Reason
from tests.harness.mapping_histories import finished, write
from tests.harness.stage import SNAPSHOT, Log, Server, batch, commit

NEVER = 1e9


class Hosted:
    """A mapping server, stepped by the test, with its map in a directory of its own."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints
        self.server = Server(key_map=checkpoints.map, is_behind=True)
        self.began_at = self.server.applied

    def show(self, *records: Record) -> None:
        self.server.core.replica.apply(batch(self.server.applied + 1, *records))

    async def look(self, slices: int | None = None) -> None:
        """The host looks whether there is something to write, and is killed after so many slices."""
        left = slices

        def stop() -> None:
            nonlocal left
            if left is not None:
                left -= 1
                if left < 0:
                    raise Unavailable("killed")

        with mock.patch.object(self.checkpoints, "_check_stopping", stop), suppress(Unavailable):
            await self.checkpoints.look(self.server.core.replica)


@asynccontextmanager
async def hosted(path: Path, every_s: float) -> AsyncIterator[Hosted]:
    """From a start to a kill."""

    def damaged(why: BaseException) -> None:
        raise why

    checkpoints = Checkpoints(path, b"log", 1 << 30, every_s, damaged)
    one = Hosted(checkpoints)
    with mock.patch.object(module, "LOOK_S", NEVER):
        checkpoints.begin(one.server.core)
        yield one
        await checkpoints.close()


def replayed(records: list[Record], to: int) -> Replica:
    replica = Replica(None, 10_000)
    replica.apply(batch(1, *records[:to]))
    return replica


def content(replica: Replica) -> list[Part]:
    """The state, but for where large values stand: a slice that was written before a kill may know a newer place."""

    def bare(row: MapRow) -> MapRow:
        return row._replace(value=row.value.digest) if isinstance(row.value, Place) else row

    return [MapRows(tuple(map(bare, part.rows))) if isinstance(part, MapRows) else part for part in replica.image()]


def test_rows_that_a_restart_needs_are_not_pruned(tmp_path: Path) -> None:
    """MAP-4: the tables cover 3; a compaction to 5 has ended; the server is killed before it has written the records of
    that compaction. Then it reads the state at 3, and decides as all others have."""
    stale = commit(3, {b"other": b"stale"}, client=2, snapshot=1, reads=[b"k"])
    history = [
        commit(1, {b"k": b"first"}),
        commit(2, {b"k": None}),
        commit(3, {b"x": b"3"}),
        stale,
        commit(5, {b"x": b"5"}),
        (BEGINNING, encode_beginning(CompactionBeginning(7, 5))),
        (ENDING, encode_ending(6)),
    ]

    async def story(slices: int | None) -> None:
        path = tmp_path / str(slices)
        async with hosted(path, 0) as one:
            one.show(*history[:3])
            await one.look()
            assert one.checkpoints.covers == 3
        async with hosted(path, NEVER) as one:
            one.show(*history[3:])
            await one.look(slices)
        async with hosted(path, NEVER) as one:
            replica = one.server.core.replica
            if one.began_at == 3:
                assert one.server.ask(Get((b"k",)), SNAPSHOT, 1) == Entries(((1, b"first"),))
                one.show(stale)
                assert replica.decided(TxnId(2, 3)).verdict.reason is Reason.CONFLICT  # type: ignore[union-attr]
            one.show(*history[one.server.applied :])
            assert replica.image() == replayed(history, 7).image()

    for slices in (0, 1, 2, None):
        asyncio.run(story(slices))


@pytest.mark.parametrize("error", [lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.MemoryError, lmdb.Error])
def test_only_damage_removes_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[lmdb.Error]
) -> None:
    """A server that has no memory or no descriptors for a moment ends, and starts again with its tables."""
    storage = CheckpointStorage(*cast(list[Any], [None] * 5))

    def fail(group: Group) -> NoReturn:
        raise error("planted")

    async def story() -> None:
        async with hosted(tmp_path / "map", 0) as one:
            one.show(commit(1, {b"k": b"v"}), commit(2, {b"other": b"v"}))
            await one.look()
        async with hosted(tmp_path / "map", 0) as one:
            tables = one.checkpoints.map.checkpoint
            assert tables is not None
            tables.snapshot.readers.clear()
            monkeypatch.setattr(Group, "reader", fail)
            with pytest.raises(LogDBError) as failed:
                one.server.ask(Get((b"k",)), SNAPSHOT, 1)
            if error in (lmdb.CorruptedError, lmdb.PageNotFoundError):
                assert storage.end_of(failed.value).wipe
            else:
                with pytest.raises(Unavailable, match=r"cannot be read .*planted.*nothing is damaged"):
                    storage.end_of(failed.value)
            monkeypatch.undo()
            assert one.server.ask(Get((b"k",)), SNAPSHOT, 1) == Entries(((1, b"v"),))

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(12))
def test_a_server_recovers_the_state_of_the_log_wherever_it_was_killed(tmp_path: Path, seed: int) -> None:
    """DBS-1, MAP-4: the tables hold exactly the state at the version that they cover."""
    draw, log, number = random.Random(seed), Log(), 0
    writer = Server(on=log)
    for round_ in range(6):
        for _ in range(20):
            write(draw, log, number := number + 1)
        log.run(writer)
        writer.give("client", Compact(round_, draw.randrange(1, len(log.records) + 1)))
        writer.wait(SECOND)
        finished(log, writer)
    end = len(log.records)

    async def story() -> None:
        applied = kills = 0
        while applied < end:
            async with hosted(tmp_path / "map", draw.choice((0, NEVER))) as one:
                covered = one.began_at
                assert content(one.server.core.replica) == content(replayed(log.records, covered))
                for _ in range(draw.randrange(1, 4)):
                    one.show(*log.records[one.server.applied :][: draw.randrange(1, 80)])
                    await one.look(draw.choice((None, None, 0, 1, 3)))
                applied = one.server.applied
                assert content(one.server.core.replica) == content(replayed(log.records, applied))
                kills += 1
        assert kills > 1
        async with hosted(tmp_path / "map", NEVER) as one:
            one.show(*log.records[one.began_at :])
            assert one.server.core.replica.image() == writer.core.replica.image()

    with mock.patch.object(tables, "SLICE_ROWS", 4):
        asyncio.run(story())


def test_dead_rows_are_pruned_after_the_server_was_killed_before_it_could(tmp_path: Path) -> None:
    history = [commit(number, {b"j": b"", b"k": b"%d" % number}) for number in range(1, 10)]
    history += [(BEGINNING, encode_beginning(CompactionBeginning(7, 9))), (ENDING, encode_ending(10))]

    async def story() -> None:
        async with hosted(tmp_path, NEVER) as one:
            one.show(*history)
            await one.look(2)
            assert one.checkpoints.covers == 11
            assert len(list(one.checkpoints.map.versions(b"k", 11))) == 9
        async with hosted(tmp_path, NEVER) as one:
            await one.look()
            assert len(list(one.checkpoints.map.versions(b"k", 11))) == 1

    with mock.patch.object(tables, "SLICE_ROWS", 1):
        asyncio.run(story())
