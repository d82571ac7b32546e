"""Scans leave out what earlier ones have passed, and return the same rows nevertheless."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from logdb.log import MemoryLog
from logdb.store.checkpoint import Checkpoint
from logdb.store.key_map import KeyMap
from logdb.store.overlay import MAX_GAPS, MAX_UNBURIED, Overlay
from logdb.store.records import COMMIT, Commit, Range, encode_commit
from logdb.store.values import Values
from tests.store.test_mapping import LOG_ID

PREFIXES = (b"a", b"b", b"c")


def first_rows(
    key_map: KeyMap, start: bytes | None, end: bytes | None, at: int, reverse: bool, limit: int
) -> list[tuple[bytes, bytes]]:
    """The first rows of a range, read as `Reads.scan` does."""
    rows = key_map.first(start, end, at, reverse, limit)
    if rows is None:
        batches = itertools.chain.from_iterable(key_map.scan(start, end, at, reverse, limit))
        rows = list(itertools.islice(batches, limit))
    return rows


def end_of(prefix: bytes) -> bytes:
    return bytes([prefix[0] + 1])


class Queues:
    """A map and its contents at each version, with three ranges of keys."""

    def __init__(self, checkpoint: Checkpoint, draw: Random) -> None:
        self.checkpoint, self.draw = checkpoint, draw
        self.log = MemoryLog()
        self.map = KeyMap(Values(self.log.read_record), checkpoint)
        self.states: list[dict[bytes, bytes]] = [{}]
        self.version = 0
        self.checkpointing: Iterator[object] | None = None

    def write(self, writes: dict[bytes, bytes | None], deletes: tuple[Range, ...] = ()) -> None:
        self.version += 1
        self.log.append([(COMMIT, encode_commit(Commit(1, self.version, writes, deletes=deletes)))])
        self.map.apply(self.version, writes, deletes)
        deleted = {key for key in self.states[-1] for low, high in deletes if low <= key and (not high or key < high)}
        after = {**{key: value for key, value in self.states[-1].items() if key not in deleted}, **writes}
        self.states.append({key: value for key, value in after.items() if value is not None})

    def run(self) -> None:
        """A random step."""
        draw, prefix = self.draw, self.draw.choice(PREFIXES)
        there = sorted([key for key in self.states[-1] if key.startswith(prefix)])
        kind = draw.choices(
            ("put", "take", "random", "range", "checkpoint", "finish"), weights=(20, 60, 6, 1, 1, 2)
        )[0]  # fmt: skip
        if kind == "put":
            self.write({prefix + b"%06d" % (self.version * 10 + place): b"%d" % place for place in range(4)})
        elif kind == "take" and there:
            taken = there[: draw.choice((1, 1, 1, 30))] if prefix != b"c" else there[-1:]
            self.write(dict.fromkeys(taken))
        elif kind == "random":
            self.write({prefix + b"%06d" % draw.randrange(self.version * 10 + 1): draw.choice([None, b"x"])})
        elif kind == "range" and there:
            self.write({}, ((prefix, draw.choice(there)),))
        elif kind == "checkpoint" and self.checkpointing is None:
            self.checkpointing = self.steps()
            next(self.checkpointing)
        elif kind == "finish" and self.checkpointing is not None and not next(self.checkpointing, False):
            self.checkpointing = None

    def steps(self) -> Iterator[object]:
        """A checkpoint in two steps, between which other things happen."""
        version, frozen = self.version, self.map.freeze()
        yield True
        self.checkpoint.begin(version)
        for _ in self.checkpoint.write(frozen):
            pass
        self.checkpoint.finish(version, [])
        yield True
        self.map.thaw()

    def check(self) -> None:
        """Scans of all kinds, at the newest version and at older ones."""
        prefix = self.draw.choice(PREFIXES)
        for at in (self.version, max(self.version - self.draw.randrange(200), 0)):
            rows = sorted([row for row in self.states[at].items() if row[0].startswith(prefix)])
            for reverse, limit in itertools.product((False, True), (1, 3)):
                expected = rows[: -limit - 1 : -1] if reverse else rows[:limit]
                assert first_rows(self.map, prefix, end_of(prefix), at, reverse, limit) == expected
                scanned = itertools.chain(*self.map.scan(prefix, end_of(prefix), at, reverse, limit))
                assert [*itertools.islice(scanned, limit)] == expected
            other = prefix + b"%06d" % self.draw.randrange(10 * self.version + 1)
            below = [row for row in rows if row[0] < other]
            assert first_rows(self.map, prefix, other, at, False, 2) == below[:2]
            assert (
                first_rows(self.map, other, end_of(prefix), at, True, 2) == rows[: len(below) - len(rows) - 1 : -1][:2]
            )


@pytest.mark.parametrize("seed", range(8))
def test_scans_find_the_same_rows_behind_gaps(seed: int, tmp_path: Path) -> None:
    queues = Queues(Checkpoint(tmp_path / "map", LOG_ID), Random(seed))
    for _ in range(800):
        queues.run()
        queues.check()
    queues.checkpoint.close()


def test_what_another_process_has_written_is_found_in_a_gap(tmp_path: Path) -> None:
    writer = Queues(Checkpoint(tmp_path / "map", LOG_ID), Random(1))
    writer.write({b"a%06d" % place: b"x" for place in range(20)})
    assert len([*writer.steps()]) == 2
    follower = Queues(Checkpoint(tmp_path / "map", LOG_ID, follow=True), Random(1))
    taken: dict[bytes, bytes | None] = {b"a%06d" % place: None for place in range(10)}
    writer.write(taken)
    follower.map.apply(2, taken)
    assert first_rows(follower.map, b"a", b"b", 2, False, 1) == [(b"a000010", b"x")]
    assert follower.map.active.gaps
    writer.write({b"a000005+": b"y"})
    assert len([*writer.steps()]) == 2
    follower.checkpoint.switch(follower.checkpoint.newest())
    assert first_rows(follower.map, b"a", b"b", 3, False, 1) == [(b"a000005+", b"y")]
    for one in (writer, follower):
        one.checkpoint.close()


@pytest.mark.parametrize("keys", [1, 10])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_consumer_does_not_pass_the_keys_that_it_has_deleted(
    reverse: bool, keys: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = Queues(Checkpoint(tmp_path / "map", LOG_ID), Random(1))
    queues.write({b"a%06d" % place: b"x" for place in range(2_000)})
    checkpointing = queues.steps()
    assert len([*checkpointing]) == 2
    passed: list[int] = []
    live_chunk = Checkpoint.live_chunk

    def counting(*arguments: object) -> object:
        found = live_chunk(*arguments)  # type: ignore[arg-type]
        passed.append(len(found[0]))
        return found

    monkeypatch.setattr(Checkpoint, "live_chunk", counting)
    most = 0
    for _ in range(1_900 // keys):
        passed.clear()
        assert first_rows(queues.map, b"a", b"b", queues.version, reverse, 1)
        most = max(most, sum(passed))
        queues.write(dict.fromkeys(sorted(queues.states[-1], reverse=reverse)[:keys]))
    assert most < 100 * keys
    queues.checkpoint.close()


def test_gaps_are_bounded(tmp_path: Path) -> None:
    queues = Queues(Checkpoint(tmp_path / "map", LOG_ID), Random(1))
    queues.write(dict.fromkeys([b"%06d" % place for place in range(3 * MAX_GAPS)], b"x"))
    assert len([*queues.steps()]) == 2
    for first in range(0, 2 * MAX_GAPS, MAX_UNBURIED):
        queues.write(dict.fromkeys([b"%06d" % place for place in range(first, first + MAX_UNBURIED)]))
    for place in range(2 * MAX_GAPS):
        assert first_rows(queues.map, b"%06d" % place, None, queues.version, False, 1)
        assert len(queues.map.active.gaps) <= MAX_GAPS
    assert queues.map.active.gaps
    queues.checkpoint.close()


def test_what_was_written_into_a_gap_is_found_while_its_overlay_is_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = Queues(Checkpoint(tmp_path / "map", LOG_ID), Random(1))
    queues.write(dict.fromkeys([b"a%06d" % place for place in range(20)], b"x"))
    assert len([*queues.steps()]) == 2
    queues.write(dict.fromkeys([b"a%06d" % place for place in range(10)]))
    assert first_rows(queues.map, b"a", b"b", queues.version, False, 1) == [(b"a000010", b"x")]
    assert queues.map.active.gaps
    queues.write({b"a000005+": b"y"})
    existing = Overlay.existing

    def emptied_before(overlay: Overlay, *bounds: Any) -> bool:
        assert len([*queues.steps()]) == 2
        overlay.clear_gradually()
        return existing(overlay, *bounds)

    monkeypatch.setattr(Overlay, "existing", emptied_before)
    assert first_rows(queues.map, b"a", b"b", queues.version, False, 1) == [(b"a000005+", b"y")]
    queues.checkpoint.close()
