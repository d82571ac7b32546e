"""Projections: each position has one shard, and the strides of the shards cover all positions."""

from __future__ import annotations

from random import Random

from logdb.log.corfu.projection import NO_VIEW, Range, ShardConfig, Unit, View, gsn_at, position_of


def view_of(*ranges: Range) -> View:
    """A projection with these ranges. The shards of the last one are live."""
    numbers = sorted({shard for one in ranges for shard in one.shards})
    shards = [
        ShardConfig(number, (Unit(number, f"s{number}", 0),), 1, number in ranges[-1].shards) for number in numbers
    ]
    return NO_VIEW._replace(version=1, epoch=2, shards=tuple(shards), next_shard=9, ranges=ranges)


def test_positions_belong_to_the_shards_of_their_range_in_turn() -> None:
    view = view_of(Range(1, (1, 2)), Range(6, (2, 3, 5)))
    owners = [config.shard for position in range(1, 12) if (config := view.owner(position)) is not None]
    assert owners == [1, 2, 1, 2, 1, 2, 3, 5, 2, 3, 5]
    assert view.owner(0) is None


def test_a_range_without_shards_has_no_positions() -> None:
    view = view_of(Range(1, (1,)), Range(4, ()))
    assert [view.owner(position) is None for position in (3, 4, 99)] == [False, True, True]
    assert view.stride(1, 4) is None
    assert view.live() == []


def test_strides_find_exactly_the_positions_of_a_shard() -> None:
    draw = Random(3)
    for _ in range(200):
        firsts = sorted(draw.sample(range(1, 40), draw.randint(1, 5)))
        ranges = [Range(first, tuple(sorted(draw.sample((1, 2, 3, 4), draw.randint(1, 4))))) for first in firsts]
        view = view_of(*ranges)
        for config in view.shards:
            owned = [at for at in range(1, 60) if view.owner(at) == config]
            found, at = [], 1
            while (stride := view.stride(config.shard, at)) is not None and stride.first < 60:
                last = stride.end or 60
                found += list(range(stride.first, min(last, 60), stride.step))
                at = last
            assert found == owned


def test_a_chain_leaves_out_units_that_lack_the_position() -> None:
    units = Unit(1, "s1", 0), Unit(2, "s2", 10), Unit(3, "s3", 20, is_leaving=True)
    config = ShardConfig(1, units, 2, True)
    assert [[unit.server for unit in config.chain(position)] for position in (9, 10, 20)] == [[1], [1, 2], [1, 2, 3]]
    assert ([one.server for one in config.members], config.joining, config.replaced) == ([1, 2], (2, 3), units[2:])


def test_gsns_of_a_position() -> None:
    assert [position_of(gsn_at(7, index)) for index in (0, 4095)] == [7, 7]
    assert gsn_at(8) == gsn_at(7, 4095) + 1


def test_a_stride_ends_where_another_unit_joins_the_chain() -> None:
    units = Unit(1, "s1", 0), Unit(2, "s2", 10), Unit(3, "s3", 20)
    for end, ranges in ((0, (Range(1, (1,)),)), (25, (Range(1, (1,)), Range(25, (2,))))):
        view = view_of(*ranges)._replace(shards=(ShardConfig(1, units, 2, not end),))
        assert [view.stride(1, position) for position in (1, 10, 19, 20)] == [
            (1, 1, 10),
            (10, 1, 20),
            (19, 1, 20),
            (20, 1, end),
        ]
