"""The ledger against a plain dictionary: runs, late and repeated transactions, trims, and its rows in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from logdb.txn.ledger import FORGOTTEN_ROWS, MAX_STRETCHES, Ledger, Stretches, joined

steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 3), st.integers(0, 12)),
        st.tuples(st.just("next"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("abort"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("gap"), st.just(0), st.just(0)),
        st.tuples(st.just("trim"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("save"), st.just(0), st.just(0)),
        st.tuples(st.just("restore"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


def numbers(bounds: Stretches) -> Iterator[int]:
    """Of these stretches, which must be as few as can be."""
    assert all(bound < following for bound, following in pairwise(bounds)), bounds
    for first, end in zip(bounds[::2], bounds[1::2], strict=True):
        yield from range(first, end)


@given(steps)
def test_ledger_agrees_with_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    ledger, rows, gsn = Ledger(), dict[bytes, bytes](), 0
    found: dict[tuple[int, int], int] = {}
    forgotten: set[tuple[int, int]] = set()
    last: dict[int, int] = {}
    aborted: set[int] = set()

    def save() -> None:
        for key, raw in ledger.unsaved():
            if raw is None:
                rows.pop(key, None)
            else:
                rows[key] = raw

    for what, client, sequence in steps:
        if what in ("commit", "next", "abort"):
            gsn += 1
            if what != "commit":
                sequence = last.get(client, 0) + 1
            new = (client, sequence) not in found and (client, sequence) not in forgotten
            assert ledger.is_new(client, sequence, gsn) is new
            last[client] = max(last.get(client, 0), sequence)
            if new:
                found[client, sequence] = gsn
            if not new or what == "abort":
                ledger.abort(gsn)
                aborted.add(gsn)
        elif what == "gap":
            gsn += 1
        elif what == "trim":
            floor = max(gsn - client, 0)
            told = ledger.used_before(floor)
            forgotten |= {txn for txn, at in found.items() if at < floor}
            assert {(key, sequence) for key, bounds in told.items() for sequence in numbers(bounds)} == forgotten
            found = {txn: at for txn, at in found.items() if at >= floor}
            aborted = {at for at in aborted if at >= floor}
            ledger.trim(floor, told)
        elif what == "save":
            save()
        else:
            save()
            ledger = Ledger()
            ledger.restore(lambda p: [(key[len(p) :], raw) for key, raw in sorted(rows.items()) if key.startswith(p)])
        for key in range(1, 4):
            for sequence in range(14):
                assert ledger.find(key, sequence) == found.get((key, sequence))
                session = ledger.sessions.get(key)
                assert (session is not None and session.has_forgotten(sequence)) is ((key, sequence) in forgotten)
        assert set(ledger.aborted) == aborted
        assert all(ledger.is_aborted(at) is (at in aborted) for at in range(gsn + 2))
        assert list(ledger.aborted_between(3, 9)) == sorted(at for at in aborted if 3 < at <= 9)


def test_used_numbers_stay_one_stretch_after_many_compactions() -> None:
    """Also of many clients at once, whose numbers come in any order a little apart, and with a gap that is filled."""
    ledger, gsn = Ledger(), 0
    for round_ in range(50):
        for at in range(40):
            for client in range(5):
                gsn += 1
                ledger.is_new(client, round_ * 40 + (at ^ 3), gsn)
        ledger.trim(gsn, ledger.used_before(gsn))
        used = ledger.used_before(gsn + 1)
        assert all(bounds == (0, round_ * 40 + 40) for bounds in used.values())
        assert all(len(session.forgotten) <= 4 for session in ledger.sessions.values())
    assert joined([(5, 7), (0, 2), (2, 5), (9, 10)]) == (0, 7, 9, 10)


def test_an_id_that_was_taken_and_not_used_is_not_taken_for_used() -> None:
    ledger = Ledger()
    for gsn, sequence in enumerate((1, 2, 4, 5, 9), 1):
        ledger.is_new(7, sequence, gsn)
    ledger.trim(6, ledger.used_before(6))
    assert [ledger.is_new(7, sequence, 10 + sequence) for sequence in range(1, 11)] == [
        False, False, True, False, False, True, True, True, False, True,
    ]  # fmt: skip
    ledger.trim(30, ledger.used_before(30))
    assert ledger.sessions[7].forgotten == (1, 11)


def test_so_many_gaps_are_kept_and_the_lowest_are_closed() -> None:
    """Memory is bounded, and what falls into a gap that was closed is refused, not applied twice."""
    ledger = Ledger()
    for gsn in range(1, 5 * MAX_STRETCHES):
        ledger.is_new(7, 2 * gsn, gsn)
        if gsn % 100 == 0:
            ledger.trim(gsn, ledger.used_before(gsn))
    ledger.trim(gsn + 1, ledger.used_before(gsn + 1))
    session = ledger.sessions[7]
    assert len(session.forgotten) == 2 * MAX_STRETCHES
    assert all(session.has_forgotten(2 * used) for used in range(1, gsn + 1))
    assert [not session.has_forgotten(2 * used - 1) for used in range(2, gsn + 1)].count(True) == MAX_STRETCHES - 1
    assert not session.has_forgotten(2 * gsn - 1)
    assert session.has_forgotten(3)


def test_a_checkpoint_of_an_earlier_version_marks_all_numbers_as_used() -> None:
    ledger = Ledger()
    old = {FORGOTTEN_ROWS: [((7).to_bytes(8), (9).to_bytes(8, "little"))]}
    ledger.restore(lambda prefix: old.get(prefix, []))
    assert [ledger.is_new(7, sequence, sequence + 1) for sequence in (0, 5, 9, 10)] == [False, False, False, True]


def test_a_late_transaction_keeps_its_number_when_the_run_after_it_is_trimmed() -> None:
    """Restored, the last run by number was the first by place; trimmed away, it lent its length to the one left."""
    rows: dict[bytes, bytes] = {}
    ledger = Ledger()
    assert ledger.is_new(7, 2, 10)
    assert ledger.is_new(7, 1, 20)
    rows.update((key, raw) for key, raw in ledger.unsaved() if raw is not None)
    restored = Ledger()
    restored.restore(lambda p: [(key[len(p) :], raw) for key, raw in sorted(rows.items()) if key.startswith(p)])
    for each in (ledger, restored):
        each.trim(15, each.used_before(15))
        assert (each.find(7, 1), each.find(7, 2)) == (20, None)
    assert restored.equals(ledger)


def test_a_ledger_of_a_trimmed_log_forgets_what_was_repeated_behind_the_trim() -> None:
    """Transactions 1 to 8 at the GSNs 1 to 8, then again 2, 3, and 5 to 7. The trim at 6 states 1 to 5."""
    whole, trimmed, saved = Ledger(), Ledger(), dict[bytes, bytes | None]()
    for gsn, sequence in enumerate((*range(1, 9), 2, 3, 5, 6, 7), 1):
        whole.is_new(7, sequence, gsn)
        if gsn >= 6:
            trimmed.is_new(7, sequence, gsn)
    saved.update(trimmed.unsaved())
    used = whole.used_before(6)
    for ledger in (whole, trimmed):
        ledger.trim(6, used)
    assert trimmed.equals(whole)
    assert [trimmed.find(7, sequence) for sequence in range(1, 9)] == [None] * 5 + [6, 7, 8]
    saved.update(trimmed.unsaved())
    assert {key: raw for key, raw in saved.items() if raw is not None} == dict(trimmed.rows(b"", 20))


def test_a_trim_in_the_middle_of_a_look_hides_no_abort() -> None:
    ledger = Ledger()
    for gsn in range(1, 11):
        ledger.abort(gsn)

    class TrimmingWhenCompared(int):
        def __gt__(self, other: int) -> bool:
            ledger.trim(5, {})
            return int(self) > other

    assert ledger.is_aborted(TrimmingWhenCompared(8))
    assert not ledger.is_aborted(4)


def test_rows_go_on_where_they_were_left_and_are_the_same_whatever_the_runs() -> None:
    ledger, gsn = Ledger(), 0
    for sequence in (1, 2, 3, 7, 5, 8, 9):
        for client in (3, 1):
            gsn += 3 if sequence == 5 else 1
            ledger.is_new(client, sequence, gsn)
            if sequence in (2, 7):
                ledger.abort(gsn)
    ledger.sessions[3].forgotten = 0, 2, 30, 31
    whole = list(ledger.rows(b"", gsn))
    assert whole == sorted(whole)
    for at, (key, _) in enumerate(whole):
        assert list(ledger.rows(key, gsn)) == whole[at + 1 :]
    for through in range(gsn + 1):
        earlier = Ledger()
        rows = list(ledger.rows(b"", through))
        earlier.restore(lambda prefix, rows=rows: [(key[1:], raw) for key, raw in rows if key[:1] == prefix])
        assert list(earlier.rows(b"", through)) == rows
        assert all(
            earlier.find(client, sequence) in (None, ledger.find(client, sequence))
            for client in (1, 3)
            for sequence in range(1, 10)
        )
        found = [earlier.find(client, sequence) for client in (1, 3) for sequence in range(1, 10)]
        assert sorted(one for one in found if one) == sorted(
            one
            for client in (1, 3)
            for sequence in range(1, 10)
            if 0 < (ledger.find(client, sequence) or 0) <= through
            for one in [ledger.find(client, sequence)]
        )


class Counted(list[int]):
    """A list that counts how many numbers are read of all."""

    reads = 0

    def __iter__(self) -> Iterator[int]:
        for at in range(len(self)):
            yield self[at]

    def __getitem__(self, at: Any) -> Any:
        Counted.reads += 1
        return super().__getitem__(at)


def test_all_pages_of_rows_are_made_in_one_pass() -> None:
    """Each one began with the first transaction of its client: many of clients that take turns took minutes."""
    ledger, count = Ledger(), 500
    for gsn in range(1, 2 * count + 1):
        assert ledger.is_new(gsn % 2, gsn // 2, gsn)
    for session in ledger.sessions.values():
        session.sequences = Counted(session.sequences)  # type: ignore[assignment]
    whole, pages, after = list(ledger.rows(b"", 2 * count)), list[tuple[bytes, bytes]](), b""
    Counted.reads = 0
    while page := list(islice(ledger.rows(after, 2 * count), 10)):
        pages += page
        after = page[-1][0]
    assert Counted.reads <= 10 * count
    assert pages == whole
    assert len(whole) == 2 * count


def test_a_checkpoint_saves_the_used_numbers_of_a_client_once() -> None:
    """A client that has ended leaves its numbers: saving them again would cost more with each client that ever was."""
    ledger = Ledger()
    for client in range(1, 4):
        ledger.is_new(client, 0, client)
    ledger.trim(4, ledger.used_before(4))
    saved = [dict(ledger.unsaved()), dict(ledger.unsaved())]
    assert [len([key for key in rows if key[:1] == FORGOTTEN_ROWS]) for rows in saved] == [3, 0]
    ledger.is_new(2, 1, 4)
    ledger.trim(5, ledger.used_before(5))
    again = [key for key, _ in ledger.unsaved() if key[:1] == FORGOTTEN_ROWS]
    assert again == [FORGOTTEN_ROWS + (2).to_bytes(8)]
