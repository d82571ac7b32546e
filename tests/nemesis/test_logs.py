"""The checks of a log without a database: a handmade history for each violation."""

from __future__ import annotations

import pytest

from tests.nemesis.history import Entry
from tests.nemesis.logs import check_log
from tests.sim.world import Failure


def append(*texts: str, at: tuple[int, int | None], status: str = "ok", gsns: list[int] | None = None) -> Entry:
    return Entry("p", "records", at[0], at[1], status, [["records", *texts]], result=gsns)


@pytest.fixture
def entries() -> list[Entry]:
    """Two concurrent appends, one after them, one that failed, and one of unknown outcome."""
    return [
        append("a", "b", at=(1, 4), gsns=[2, 3]),
        append("c", at=(2, 5), gsns=[1]),
        append("d", at=(6, 7), gsns=[4]),
        append("e", at=(8, 9), status="fail"),
        append("f", "g", at=(8, None), status="info"),
    ]


def log_of(texts: str) -> dict[int, str]:
    return dict(enumerate(texts, 1))


@pytest.mark.parametrize("texts", ["cabd", "cabdf", "cabdg", "cabdgf"])
def test_an_append_of_unknown_outcome_may_or_may_not_be_in_the_log(entries: list[Entry], texts: str) -> None:
    check_log(entries, log_of(texts))


def test_gsns_need_not_be_dense(entries: list[Entry]) -> None:
    check_log(entries, log_of("cabd") | {4096: "f"})


def test_an_empty_log() -> None:
    check_log([], {})


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (log_of("cab"), "no acknowledged write is lost"),
        (log_of("acbd"), "no acknowledged write is lost"),
        (log_of("cabda"), "a transaction is applied once"),
        (log_of("cabdff"), "a transaction is applied once"),
        (log_of("cabde"), "a failed append is not in the log"),
        (log_of("cabdx"), "every write has an author"),
    ],
)
def test_a_violation_is_reported(entries: list[Entry], found: dict[int, str], wrong: str) -> None:
    with pytest.raises(Failure) as failure:
        check_log(entries, found)
    assert failure.value.check == wrong


def test_real_time_violations_of_acknowledged_appends_are_reported() -> None:
    early, late = append("a", at=(1, 2), gsns=[2]), append("b", at=(3, 4), gsns=[1])
    with pytest.raises(Failure, match="began after 2"):
        check_log([early, late], log_of("ba"))


def test_real_time_violations_of_unacknowledged_appends_are_reported() -> None:
    early, late = append("a", at=(1, 2), gsns=[2]), append("b", at=(3, None), status="info")
    with pytest.raises(Failure, match="began after 2"):
        check_log([early, late], log_of("ba"))
