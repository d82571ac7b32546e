"""A planted bug is caught only if the code around it fails, not if the planted code itself is broken."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.harness.planting import BrokenPlant, Plants, Wrong, catch, planted


class Stock:
    """A toy to plant bugs in."""

    def __init__(self) -> None:
        self.left = 10

    def take(self, count: int) -> int:
        self.left -= count
        return self.left


class Result(NamedTuple):
    seed: int
    failure: str
    detail: str = ""


def run(seed: int) -> Result:
    """Odd seeds take nothing, so they show no bug."""
    try:
        left = Stock().take(0 if seed % 2 else 3)
    except Exception as error:
        return Result(seed, type(error).__name__, str(error))
    return Result(seed, "" if left == (10 if seed % 2 else 7) else "what is left")


PLANTED: Plants = {}


@planted(Stock, "take", PLANTED)
def take_twice(right: Wrong, self: Stock, count: int) -> int:
    right(self, count)
    return int(right(self, count))


@planted(Stock, "take", PLANTED)
def change_nothing(right: Wrong, self: Stock, count: int) -> int:
    return int(right(self, count))


@planted(Stock, "take", PLANTED)
def call_with_too_many_arguments(right: Wrong, self: Stock, count: int) -> int:
    return int(right(self, count, count))


@planted(Stock, "take", PLANTED)
def read_a_missing_attribute(right: Wrong, self: Stock, count: int) -> int:
    return int(self.right)  # type: ignore[attr-defined]


@planted(Stock, "take", PLANTED)
def use_a_name_before_it_is_set(right: Wrong, self: Stock, count: int) -> int:
    if count > 100:
        amount = count
    return int(right(self, amount))


def test_the_remembered_seed_comes_first() -> None:
    assert catch("take twice", PLANTED, 8, run, tries=5) == ("take twice", Result(8, "what is left"), 1)
    assert catch("take twice", PLANTED, 7, run, tries=5) == ("take twice", Result(2, "what is left"), 3)


def test_a_bug_that_no_seed_shows() -> None:
    assert catch("change nothing", PLANTED, 1, run, tries=5) == ("change nothing", None, 5)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("call with too many arguments", "TypeError"),
        ("read a missing attribute", "AttributeError"),
        ("use a name before it is set", "UnboundLocalError"),
    ],
)
def test_an_error_of_the_planted_code_does_not_count(name: str, error: str) -> None:
    with pytest.raises(BrokenPlant, match=f"{name}.*{error}"):
        catch(name, PLANTED, 1, run, tries=5)


def test_nor_does_one_that_the_simulator_reports_as_something_else() -> None:
    def wrapped(seed: int) -> Result:
        return Result(seed, "an answer of an unexpected kind", "Get(b'a'): TypeError('take() takes 2')")

    with pytest.raises(BrokenPlant, match="seed 3"):
        catch("take twice", PLANTED, 3, wrapped, tries=5)
