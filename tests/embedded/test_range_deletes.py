"""Range deletes in a directory: random histories with transactions, compactions and reopenings, against dictionaries.

A range delete stands for the deletion of every key in its range.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from bisect import bisect_right
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.api.inspection import audit, verify
from logdb.embedded import EmbeddedBackend
from logdb.errors import VersionTrimmed
from logdb.store.conditions import EQUALS
from logdb.store.records import Condition, Range

KEYS = [b"k%02d" % number for number in range(40)]
State = dict[bytes, bytes]


def is_within(key: bytes, deleted: Range) -> bool:
    return deleted[0] <= key and (deleted[1] is None or key < deleted[1])


class Story:
    """A database, and all states that it has had."""

    def __init__(self, path: Path, draw: random.Random) -> None:
        self.path, self.draw = path, draw
        self.states: dict[int, State] = {0: {}}
        self.commits: list[tuple[int, set[bytes], list[Range]]] = []
        self.open()

    def open(self) -> None:
        options = {"segment_bytes": 4_096}
        overlay_bytes = self.draw.choice([2_000, 20_000, 1 << 20])
        self.host = EmbeddedBackend.open(
            self.path, read_only=False, create=True, overlay_bytes=overlay_bytes, log_options=options
        )

    def range(self) -> Range:
        start, end = sorted(self.draw.sample(KEYS, 2))
        return start if self.draw.random() < 0.9 else b"", end if self.draw.random() < 0.8 else None

    def state_at(self, version: int) -> State:
        known = sorted(self.states)
        return self.states[known[bisect_right(known, version) - 1]]

    # ---- steps

    def commit(self) -> None:
        draw = self.draw
        deletes = [self.range() for _ in range(draw.choice([1, 1, 2]))] if draw.random() < 0.35 else []
        writes = {
            draw.choice(KEYS): None if draw.random() < 0.2 else b"%d" % draw.randrange(100) * draw.choice([1, 1, 3_000])
            for _ in range(draw.choice([0, 1, 1, 3]) if deletes else draw.choice([1, 1, 3, 10]))
        }
        reads: dict[str, Any] = {}
        if draw.random() < 0.5:
            coordinator = self.host.machine.coordinator
            reads["snapshot"] = draw.randint(coordinator.floor, coordinator.applied)
            reads["reads"] = draw.sample(KEYS, draw.choice([0, 1, 2]))
            reads["ranges"] = [self.range()] if draw.random() < 0.6 else []
            conditions = [logdb.equals(draw.choice(KEYS), b"7"), logdb.absent(draw.choice(KEYS))]
            reads["conditions"] = draw.sample(conditions, draw.choice([0, 0, 0, 1]))
        version, verdict = self.host.commits.submit(writes, deletes=deletes, **reads)
        assert verdict.committed is self.should_commit(**reads)
        if verdict.committed:
            self.commits.append((version, set(writes), deletes))
            left = {key: value for key, value in self.state.items() if not any(is_within(key, one) for one in deletes)}
            merged: dict[bytes, bytes | None] = {**left, **writes}
            self.states[version] = {key: value for key, value in merged.items() if value is not None}
        self.host.machine.wait_durable(version)

    @property
    def state(self) -> State:
        return self.states[max(self.states)]

    def should_commit(
        self,
        snapshot: int = 0,
        reads: list[bytes] = [],  # noqa: B006
        ranges: list[Range] = [],  # noqa: B006
        conditions: list[Condition] = [],  # noqa: B006
    ) -> bool:
        for version, keys, deletes in self.commits:
            if version > snapshot:
                for key in reads:
                    if key in keys or any(is_within(key, deleted) for deleted in deletes):
                        return False
                for start, end in ranges:
                    if any(is_within(key, (start, end)) for key in keys):
                        return False
                    if any((end is None or low < end) and (high is None or start < high) for low, high in deletes):
                        return False
        return all(
            self.state.get(condition.key) == condition.operand
            if condition.operator == EQUALS
            else condition.key not in self.state
            for condition in conditions
        )

    def checkpoint(self) -> None:
        self.host.checkpoint()

    def compact(self) -> None:
        with contextlib.suppress(VersionTrimmed):
            self.host.compact(self.draw.choice([None, self.draw.randint(0, self.host.version())]))

    def reopen(self) -> None:
        self.host.close()
        if self.draw.random() < 0.5:
            shutil.rmtree(self.path / "map")  # rebuilt from the log
        self.open()

    # ---- checks

    def check(self) -> None:
        host, draw = self.host, self.draw
        floor, newest = host.machine.coordinator.floor, host.version()
        for version in {floor, draw.randint(floor, newest), newest}:
            expected = self.state_at(version)
            assert list(chain.from_iterable(host.scan(None, None, version))) == sorted(expected.items())
            backwards = list(chain.from_iterable(host.scan(None, None, version, reverse=True)))
            assert backwards == sorted(expected.items(), reverse=True)
            start, end = sorted(draw.sample(KEYS, 2))
            some = list(chain.from_iterable(host.scan(start, end, version, limit=3)))[:3]
            assert some == [(key, value) for key, value in sorted(expected.items()) if start <= key < end][:3]
            assert dict(host.multi_get(KEYS, version)[1]) == expected
            key = draw.choice(KEYS)
            assert host.get(key, version) == expected.get(key)
            self.check_history(key, version, floor)
        host.machine.coordinator.check_invariants()

    def check_history(self, key: bytes, version: int, floor: int) -> None:
        wrote = [
            at
            for at, keys, deletes in self.commits
            if at <= version and (key in keys or any(is_within(key, one) for one in deletes))
        ]
        expected = [(at, self.states[at].get(key)) for at in reversed(wrote) if at > floor]
        expected += [
            (at, value) for at in reversed(wrote) if at <= floor and (value := self.states[at].get(key)) is not None
        ][: 1 if wrote and self.state_at(floor).get(key) is not None else 0]
        assert list(self.host.history(key, version)) == expected


@pytest.mark.parametrize("seed", range(16))
def test_a_history_with_range_deletes(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    story = Story(tmp_path / "db", draw)
    for _ in range(draw.randrange(20, 70)):
        (step,) = draw.choices([Story.commit, Story.checkpoint, Story.compact, Story.reopen], [75, 5, 8, 6])
        step(story)
        story.check()
    story.host.close()
    assert not verify(tmp_path / "db").damage
    assert audit(tmp_path / "db").difference is None
    reader = EmbeddedBackend.open(tmp_path / "db", read_only=True, create=False)
    assert dict(chain.from_iterable(reader.scan(None, None))) == story.state
    reader.close()


def test_a_compaction_gives_back_the_space_and_forgets_the_range(tmp_path: Path) -> None:
    host = EmbeddedBackend.open(tmp_path / "db", read_only=False, create=True, log_options={"segment_bytes": 1 << 16})
    host.write({b"key %06d" % number: b"v" * 100 for number in range(5_000)})
    host.write({b"other": b"left"})
    version, _ = host.commits.submit({}, deletes=[(b"key", b"kez")])
    host.commits.acknowledge(version)
    assert len(host.machine.read_record(version, 0).payload) < 100
    before = host.log.size()
    done = host.compact(None)
    assert done.relocated == 1
    assert host.log.size() < before / 10
    assert host.machine.coordinator.map.deletions is None
    host.write({b"other": b"again"})
    host.checkpoint()
    host.close()
    host = EmbeddedBackend.open(tmp_path / "db", read_only=False, create=False)
    assert host.machine.coordinator.map.deletions is None
    assert list(chain.from_iterable(host.scan(None, None))) == [(b"other", b"again")]
    host.close()


def test_repeated_compactions_to_an_older_version_forget_ranges(tmp_path: Path) -> None:
    """As a queue that is truncated, with a history of an hour."""
    options = {"segment_bytes": 8_000}
    host = EmbeddedBackend.open(tmp_path / "db", read_only=False, create=True, log_options=options)
    kept, left = 0, []
    for round in range(12):
        host.write({b"queue %02d" % number: bytes(100) for number in range(30)})
        host.write({b"other": b"%d" % round}, deletes=[(b"queue", b"r")])
        host.write({b"z%02d" % number: bytes(100) for number in range(30)})
        if kept:
            host.compact(kept)
        kept = host.version()
        left.append(len(host.machine.coordinator.map.deletions or ()))
    assert max(left) < 5
    state = list(chain.from_iterable(host.scan(None, None)))
    host.close()
    logdb.rebuild(tmp_path / "db")
    host = EmbeddedBackend.open(tmp_path / "db", read_only=False, create=False, log_options=options)
    assert list(chain.from_iterable(host.scan(None, None))) == state
    host.close()


@pytest.mark.parametrize("end", [b"c", None])
def test_a_range_delete_is_found_in_memory_and_after_its_checkpoint(tmp_path: Path, end: bytes | None) -> None:
    host = EmbeddedBackend.open(tmp_path / "db", read_only=False, create=True)
    host.write({b"a": b"1", b"b": b"2", b"c": b"3"})
    host.checkpoint()
    version, _ = host.commits.submit({b"b1": b"new"}, deletes=[(b"b", end)])
    host.commits.acknowledge(version)
    left = [(b"a", b"1"), (b"b1", b"new"), *([(b"c", b"3")] if end else [])]
    for _ in range(2):
        assert list(chain.from_iterable(host.scan(None, None))) == left
        assert list(host.history(b"b")) == [(version, None), (1, b"2")]
        assert list(chain.from_iterable(host.scan(None, None, 1))) == [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
        host.checkpoint()
    host.close()
