"""GSNs are computed from the rates of an epoch: each belongs to one shard, whatever the rates are (ZIP-1)."""

from __future__ import annotations

import random

import pytest

from logdb.cores.effects import MILLISECOND
from logdb.log.ziplog.epochs import Epoch, Share, Slots, base_at, last_at, time_of

ORIGIN = 1_700_000_000_123_456_789


def epoch_of(draw: random.Random) -> Epoch:
    shards = sorted(draw.sample(range(1, 20), draw.randint(1, 6)))
    shares = tuple([Share(shard, 1, draw.choice((1, 2, 3, 7, 100, draw.randint(1, 1_000)))) for shard in shards])
    base = draw.randint(1, 1 << 50)
    return Epoch(1, base, base + 1_500, shares)


def test_the_figure_of_the_dissertation() -> None:
    """Figure 4.2: 3 records/ms and 2 records/ms; ties by shard."""
    epoch = Epoch(1, 1, 10, (Share(1, 1, 3), Share(2, 1, 2)))
    assert [Slots(epoch, epoch.shares[0]).gsn(slot) for slot in range(6)] == [1, 3, 4, 6, 8, 9]
    assert [Slots(epoch, epoch.shares[1]).gsn(slot) for slot in range(4)] == [2, 5, 7, 10]


@pytest.mark.parametrize("seed", range(60))
def test_each_gsn_belongs_to_one_shard(seed: int) -> None:
    epoch = epoch_of(random.Random(seed))
    owned = [gsn for share in epoch.shares for gsn in Slots(epoch, share).take(0, 10_000)]
    assert sorted(owned) == list(range(epoch.base, epoch.end + 1))


@pytest.mark.parametrize("seed", range(60))
def test_the_first_slot_behind_a_gsn(seed: int) -> None:
    draw = random.Random(seed)
    epoch = epoch_of(draw)
    for share in epoch.shares:
        slots = Slots(epoch, share)
        for _ in range(50):
            gsn = draw.randint(epoch.base - 5, epoch.end)
            slot = slots.after(gsn)
            assert slots.gsn(slot) > gsn
            assert slot == 0 or slots.gsn(slot - 1) <= gsn


def test_an_epoch_that_is_used_up_has_no_more_gsns() -> None:
    epoch = Epoch(1, 1, 10, (Share(1, 1, 3), Share(2, 1, 2)))
    assert Slots(epoch, epoch.shares[1]).take(5, 5) == [7, 10]
    assert Slots(epoch, epoch.shares[1]).take(10, 5) == []


def test_a_gsn_is_a_time() -> None:
    for after_ns in (0, 1, MILLISECOND, 17 * MILLISECOND + 5):
        base = base_at(ORIGIN + after_ns, ORIGIN)
        time = time_of(base, ORIGIN)
        assert time <= ORIGIN + after_ns < time + MILLISECOND
        assert time_of(last_at(ORIGIN + after_ns, ORIGIN), ORIGIN) == time
        assert time_of(last_at(ORIGIN + after_ns, ORIGIN) + 1, ORIGIN) == time + MILLISECOND
    assert last_at(ORIGIN - 1, ORIGIN) == 0
    assert base_at(ORIGIN - 5, ORIGIN) == 1


def test_the_log_outlives_a_century() -> None:
    century_ns = 100 * 366 * 24 * 3_600 * 1_000 * MILLISECOND
    assert base_at(ORIGIN + century_ns, ORIGIN) < 1 << 63
