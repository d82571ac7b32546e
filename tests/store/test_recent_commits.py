"""Recent commits against the list of all commits."""

from __future__ import annotations

from random import Random

import pytest

from logdb.store.recent_commits import CommitBlock, OrderedCommit, RecentCommits, watched_commits
from logdb.store.records import Commit
from logdb.store.watched import Watched


def commit(version: int, key: bytes, size: int = 50) -> OrderedCommit:
    return OrderedCommit(version, version * 10, size, Commit(1, version, {key: b"%d" % version}))


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_those_of_the_whole_list(seed: int) -> None:
    random = Random(seed)
    recent, everything, end = RecentCommits(random.choice([0, 20_000, 1 << 20])), list[OrderedCommit](), 1
    recent.restart(end)
    for _ in range(60):
        first, end = end, end + random.randint(1, 5)
        commits = [commit(gsn, b"%d" % random.randrange(3)) for gsn in range(first, end) if random.random() < 0.7]
        everything += commits
        recent.add(CommitBlock(first, end, commits))
        begin = random.randrange(recent.first, recent.end)
        watched = Watched(None, None if random.random() < 0.3 else [b"%d" % random.randrange(3)])
        at, found = begin, []
        while at < recent.end:
            at, part = recent.part_of(at, watched)
            found += part
        assert found == watched_commits([each for each in everything if each.version >= begin], watched)


def test_the_bytes_are_bounded() -> None:
    recent = RecentCommits(100_000)
    recent.restart(1)
    for gsn in range(1, 500):
        recent.add(CommitBlock(gsn, gsn + 1, [commit(gsn, b"k", size=1_000)]))
        assert recent.size <= 100_000
    assert recent.first > 400
    recent.add(CommitBlock(500, 501, [commit(500, b"k", size=1 << 20)]))
    assert (recent.first, recent.end) == (500, 501)


def test_a_part_is_filtered_once_for_equal_sets_of_keys() -> None:
    block = CommitBlock(1, 3, [commit(1, b"a"), commit(2, b"b")])
    assert block.part_of(Watched(b"a", [b"b"])) is block.part_of(Watched(b"a", {b"b"}))
    for number in range(100):
        assert len(block.part_of(Watched(None, [b"a", b"%d" % number]))) == 1
    assert block.part_of(Watched(None, [b"a", b"0"])) is block.part_of(Watched(None, [b"a", b"0"]))
    assert block.part_of(Watched(None, [b"a", b"99"])) is not block.part_of(Watched(None, [b"a", b"99"]))


def test_a_block_does_not_keep_many_watched_keys() -> None:
    block = CommitBlock(1, 3, [commit(1, b"a"), commit(2, b"b")])
    for large in (Watched(None, [b"%d" % number for number in range(10)] + [b"a"]), Watched(bytes(1_000), [b"a"])):
        assert block.part_of(large) == block.part_of(large)
        assert block.part_of(large) is not block.part_of(large)
