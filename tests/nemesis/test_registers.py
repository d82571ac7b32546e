"""Registers: a history passes if and only if some order explains it."""

from __future__ import annotations

import itertools
import random

from tests.nemesis.history import Entry
from tests.nemesis.registers import check_register, check_registers, operations_of
from tests.sim.world import Failure


def op(kind: str, *values: str | None, at: tuple[int, int | None], status: str = "ok", refused: bool = False) -> Entry:
    error = {"failed": [0]} if refused else {}
    status = "fail" if refused else status
    return Entry("p", kind, *at, status, [[kind, "x", *values]], linearizable=True, error=error)


def passes(*entries: Entry) -> bool:
    try:
        check_registers(entries, ["x"])
    except Failure:
        return False
    return True


def test_a_sequential_history_passes() -> None:
    assert passes(
        op("r", None, at=(0, 1)),
        op("w", "a", at=(2, 3)),
        op("r", "a", at=(4, 5)),
        op("cas", "a", "b", at=(6, 7)),
        op("cas", "a", "c", at=(8, 9), refused=True),
        op("r", "b", at=(10, 11)),
    )


def test_a_stale_read_is_reported() -> None:
    written = op("w", "a", at=(0, 1)), op("w", "b", at=(2, 3))
    assert not passes(*written, op("r", "a", at=(4, 5)))
    assert not passes(*written, op("r", None, at=(4, 5)))
    assert passes(*written, op("r", "a", at=(2, 5)))


def test_a_read_of_a_future_value_is_reported() -> None:
    assert not passes(op("r", "a", at=(0, 1)), op("w", "a", at=(2, 3)))


def test_reads_that_go_back_are_reported() -> None:
    written = op("w", "a", at=(0, 1)), op("w", "b", at=(2, 20))
    assert passes(*written, op("r", "a", at=(3, 4)), op("r", "b", at=(5, 6)))
    assert not passes(*written, op("r", "b", at=(3, 4)), op("r", "a", at=(5, 6)))


def test_a_value_without_a_writer_is_reported() -> None:
    assert not passes(op("r", "z", at=(0, 1)))


def test_a_read_after_a_deletion_finds_nothing() -> None:
    deleted = op("w", "a", at=(0, 1)), op("w", None, at=(2, 3))
    assert passes(*deleted, op("r", None, at=(4, 5)), op("cas", None, "b", at=(6, 7)), op("r", "b", at=(8, 9)))
    assert not passes(*deleted, op("r", "a", at=(4, 5)))
    assert not passes(*deleted, op("cas", "a", "b", at=(4, 5)))


def test_a_deletion_of_unknown_outcome_explains_one_absence() -> None:
    lost = op("w", "a", at=(0, 1)), op("w", None, at=(2, None), status="info")
    assert passes(*lost, op("r", "a", at=(4, 5)))
    assert passes(*lost, op("r", "a", at=(4, 5)), op("r", None, at=(6, 7)))
    assert not passes(*lost, op("r", None, at=(4, 5)), op("r", "a", at=(6, 7)))
    again = op("w", "b", at=(6, 7))
    assert not passes(*lost, op("r", None, at=(4, 5)), again, op("r", None, at=(8, 9)))
    other = op("w", None, at=(3, None), status="info")
    assert passes(*lost, other, op("r", None, at=(4, 5)), again, op("r", None, at=(8, 9)))


def test_two_successful_comparisons_of_one_value_are_reported() -> None:
    one = op("cas", None, "a", at=(0, 10))
    assert passes(one, op("cas", "a", "b", at=(0, 10)))
    assert not passes(one, op("cas", None, "b", at=(0, 10)))


def test_a_wrongly_failed_comparison_is_reported() -> None:
    assert not passes(op("w", "a", at=(0, 1)), op("cas", "a", "b", at=(2, 3), refused=True))
    assert passes(op("w", "a", at=(0, 1)), op("w", "c", at=(2, 3)), op("cas", "a", "b", at=(2, 4), refused=True))


def test_a_failed_write_has_no_effect() -> None:
    assert not passes(op("w", "a", at=(0, 1), status="fail"), op("r", "a", at=(2, 3)))


def test_an_unknown_write_may_take_effect_but_is_not_undone() -> None:
    unknown = op("w", "a", at=(0, None), status="info")
    assert passes(unknown, op("r", None, at=(5, 6)))
    assert passes(unknown, op("r", None, at=(5, 6)), op("r", "a", at=(7, 8)))
    assert not passes(unknown, op("r", "a", at=(5, 6)), op("r", None, at=(7, 8)))
    chain = unknown, op("cas", "a", "b", at=(3, None), status="info"), op("r", "b", at=(5, 6))
    assert passes(*chain)
    assert not passes(*chain, op("r", "a", at=(7, 8)))


def test_an_unknown_write_may_explain_a_failed_comparison() -> None:
    written = op("w", "a", at=(0, 1)), op("r", "a", at=(4, 5))
    refused = op("cas", "a", "c", at=(2, 9), refused=True)
    assert not passes(*written, refused)
    assert passes(*written, refused, op("cas", "a", "b", at=(6, None), status="info"))
    assert passes(*written, refused, op("w", "b", at=(6, None), status="info"))
    assert not passes(*written, refused, op("w", "b", at=(10, None), status="info"))
    assert not passes(*written, refused, op("cas", "z", "b", at=(6, None), status="info"))


def by_exhaustive_search(entries: list[Entry]) -> bool:
    """Try every order that follows real time, with every subset of the operations of unknown outcome."""
    certain = [entry for entry in entries if entry.status != "info"]
    unknown = [entry for entry in entries if entry.status == "info"]
    chosen = (some for count in range(len(unknown) + 1) for some in itertools.combinations(unknown, count))
    return any(any(map(fits, itertools.permutations([*certain, *some]))) for some in chosen)


def fits(order: tuple[Entry, ...]) -> bool:
    """Whether this order of operations explains their results."""
    for place, earlier in enumerate(order):
        if any(later.returned is not None and later.returned < earlier.invoked for later in order[place + 1 :]):
            return False
    value: str | None = None
    for entry in order:
        kind, _, *what = entry.ops[0]
        held = what[0] == value
        if (kind == "r" and not held) or (kind == "cas" and held == (entry.status == "fail")):
            return False
        if kind == "w" or (kind == "cas" and entry.status != "fail"):
            value = what[-1]
    return True


def test_random_histories_give_the_same_result_as_exhaustive_search() -> None:
    passed = 0
    for seed in range(1_000):
        draw = random.Random(seed)
        entries = []
        for number in range(5):
            begin = draw.randrange(20)
            at = begin, begin + draw.randrange(1, 15)
            old = draw.choice((None, "v0", "v1", "v2"))
            kinds = ("r", "w", "cas", "cas refused", "unknown w", "unknown cas")
            kind = draw.choice((*kinds, "d", "cas d", "unknown d", "unknown cas d"))
            if kind == "d":
                entries.append(op("w", None, at=at))
            elif kind == "cas d":
                entries.append(op("cas", old, None, at=at))
            elif kind == "unknown d":
                entries.append(op("w", None, at=(begin, None), status="info"))
            elif kind == "unknown cas d":
                entries.append(op("cas", old, None, at=(begin, None), status="info"))
            elif kind == "unknown w":
                entries.append(op("w", f"v{number}", at=(begin, None), status="info"))
            elif kind == "unknown cas":
                entries.append(op("cas", old, f"v{number}", at=(begin, None), status="info"))
            elif kind == "r":
                entries.append(op("r", old, at=at))
            elif kind == "w":
                entries.append(op("w", f"v{number}", at=at))
            else:
                entries.append(op("cas", old, f"v{number}", at=at, refused=kind == "cas refused"))
        assert passes(*entries) == by_exhaustive_search(entries), seed
        passed += passes(*entries)
    assert 100 < passed < 900


def test_the_search_of_a_long_history_is_short() -> None:
    entries, value = [], None
    for number in range(3_000):
        new = f"v{number}"
        entries.append(op("cas", value, new, at=(10 * number, 10 * number + 25)))
        if number % 50 == 0:
            entries.append(op("w", f"lost {number}", at=(10 * number, None), status="info"))
        value = new
    check_register("x", operations_of(entries, "x"))
