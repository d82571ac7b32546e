"""Every anomaly is reported, in handmade histories; strictly serializable histories pass."""

from __future__ import annotations

import random

import pytest

from tests.nemesis.history import Entry
from tests.nemesis.list_append import check_list_append, find_cycle
from tests.sim.world import Failure


def txn(*ops: tuple, at: tuple[int, int | None] = (0, 100), status: str = "ok", version: int = 0) -> Entry:
    """("r", key, elements) and ("append", key, element)."""
    written = [["r", key, value or None] if kind == "r" else [kind, key, value] for kind, key, value in ops]
    begun, ended = at
    return Entry("p", "append", begun, ended, status, written, version=version)


def caught(*entries: Entry, **final: str) -> str:
    """The name of the anomaly, "" if there is none."""
    lists = {key: value.split(",") for key, value in final.items()}
    try:
        check_list_append(entries, lists)
    except Failure as failure:
        return failure.check
    return ""


def test_a_serial_history_passes() -> None:
    assert not caught(
        txn(("r", "x", ""), ("append", "x", "1"), at=(0, 1), version=1),
        txn(("r", "x", "1"), ("append", "x", "2"), ("append", "y", "3"), at=(2, 3), version=2),
        txn(("r", "x", "1,2"), ("r", "y", "3"), at=(4, 5), version=2),
        x="1,2",
        y="3",
    )


def test_a_transaction_of_unknown_outcome_may_or_may_not_be_applied() -> None:
    one = txn(("append", "x", "1"), at=(0, None), status="info")
    assert not caught(one, txn(("r", "x", ""), at=(5, 6)))
    assert not caught(one, txn(("r", "x", ""), at=(5, 6)), txn(("r", "x", "1"), at=(7, 8)), x="1")
    assert (
        caught(one, txn(("r", "x", "1"), at=(5, 6)), txn(("r", "x", ""), at=(7, 8)), x="1") == "G-single in real time"
    )


def test_incompatible_orders_are_reported() -> None:
    one, other = txn(("append", "x", "1")), txn(("append", "x", "2"))
    assert caught(one, other, txn(("r", "x", "2,1")), x="1,2") == "incompatible orders"
    assert caught(one, other, txn(("r", "x", "2")), x="1,2") == "incompatible orders"


def test_a_duplicate_element_is_reported() -> None:
    assert caught(txn(("append", "x", "1")), x="1,1") == "duplicate elements"


def test_an_element_without_an_author_is_reported() -> None:
    assert caught(txn(("append", "x", "1")), x="1,7") == "elements without an author"
    assert caught(txn(("append", "x", "1")), x="1", y="1") == "elements without an author"


def test_a_read_of_an_aborted_element_is_reported() -> None:
    assert caught(txn(("append", "x", "1"), status="fail"), txn(("r", "x", "1")), x="1") == "aborted read"


def test_a_lost_acknowledged_append_is_reported() -> None:
    assert caught(txn(("append", "x", "1"))) == "lost append"
    assert caught(txn(("append", "x", "1")), txn(("append", "x", "2")), x="2") == "lost append"


def test_an_incomplete_transaction_is_reported() -> None:
    both = ("append", "x", "1"), ("append", "x", "2")
    assert caught(txn(*both, status="info"), x="1") == "an incomplete transaction"
    assert caught(txn(*both), txn(("append", "x", "3")), x="1,3,2") == "an incomplete transaction"


def test_an_intermediate_read_is_reported() -> None:
    entries = txn(("append", "x", "1"), ("append", "x", "2")), txn(("r", "x", "1"))
    assert caught(*entries, x="1,2") == "intermediate read"


def test_writes_in_opposite_orders_are_reported() -> None:
    entries = txn(("append", "x", "1"), ("append", "y", "2")), txn(("append", "x", "3"), ("append", "y", "4"))
    assert caught(*entries, x="1,3", y="4,2") == "G0"


def test_a_cycle_of_reads_is_reported() -> None:
    one = txn(("append", "x", "1"), ("r", "y", "2"))
    other = txn(("append", "y", "2"), ("r", "x", "1"))
    assert caught(one, other, x="1", y="2") == "G1c"


def test_a_fractured_read_is_reported() -> None:
    one = txn(("append", "x", "1"), ("append", "y", "2"))
    assert caught(one, txn(("r", "x", "1"), ("r", "y", "")), x="1", y="2") == "G-single"


def test_a_lost_update_is_reported() -> None:
    one = txn(("r", "x", ""), ("append", "x", "1"))
    assert caught(one, txn(("r", "x", ""), ("append", "x", "2")), x="1,2") == "G-single"


def test_write_skew_is_reported() -> None:
    one = txn(("r", "x", ""), ("append", "y", "1"))
    other = txn(("r", "y", ""), ("append", "x", "2"))
    assert caught(one, other, x="2", y="1") == "G2"


def test_a_stale_read_is_reported() -> None:
    one = txn(("append", "x", "1"), at=(0, 1))
    assert caught(one, txn(("r", "x", ""), at=(2, 3)), x="1") == "G-single in real time"
    assert not caught(one, txn(("r", "x", ""), at=(0, 3)), x="1")


def test_a_commit_ordered_before_an_earlier_one_is_reported() -> None:
    one, other = txn(("append", "x", "1"), at=(0, 1)), txn(("append", "x", "2"), at=(2, 3))
    assert caught(one, other, x="2,1") == "G0 in real time"


def test_real_time_order_is_transitive() -> None:
    between = [txn(("append", f"z{n}", f"z{n}"), at=(10 * n, 10 * n + 1)) for n in range(1, 50)]
    first, last = txn(("append", "x", "1"), at=(0, 1)), txn(("r", "x", ""), at=(900, 901))
    final = {f"z{n}": f"z{n}" for n in range(1, 50)}
    assert caught(first, *between, last, x="1", **final) == "G-single in real time"


def test_versions_in_another_order_are_reported() -> None:
    one, other = txn(("append", "x", "1"), version=2), txn(("append", "x", "2"), version=1)
    assert caught(one, other, x="1,2") == "versions against the order"
    assert caught(one, txn(("r", "x", "1"), version=1), x="1") == "versions against the order"
    assert caught(one, txn(("r", "x", ""), version=2), x="1") == "versions against the order"
    assert not caught(one, txn(("r", "x", "1"), version=2), txn(("r", "x", ""), version=1), x="1")


def test_an_element_appended_by_two_transactions_is_rejected() -> None:
    with pytest.raises(ValueError, match="1 is of"):
        check_list_append([txn(("append", "x", "1")), txn(("append", "x", "1"))], {})


def has_cycle(edges: dict[int, dict[int, str]]) -> bool:
    """Whether there is a cycle, by exhaustive search."""

    def reaches(one: int, goal: int, been: set[int]) -> bool:
        return any(
            other == goal or (other not in been and reaches(other, goal, been | {other})) for other in edges[one]
        )

    return any(reaches(one, one, {one}) for one in edges)


def test_cycles_are_found_in_random_graphs() -> None:
    found = 0
    for seed in range(300):
        draw = random.Random(seed)
        edges: dict[int, dict[int, str]] = {number: {} for number in range(8)}
        for _ in range(draw.randrange(4, 14)):
            one, other = draw.sample(range(8), 2)
            edges[one][other] = draw.choice(("ww", "wr", "rw", "rt"))
        cycle = find_cycle(edges)
        assert bool(cycle) == has_cycle(edges), seed
        assert all(other in edges[one] for one, other in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True))
        found += bool(cycle)
    assert 50 < found < 250
