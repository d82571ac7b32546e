"""The ledger against a plain dictionary: runs, late and repeated transactions, trims, and its rows in a checkpoint."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logdb.txn.ledger import Ledger

steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 3), st.integers(1, 12)),
        st.tuples(st.just("next"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("abort"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("gap"), st.just(0), st.just(0)),
        st.tuples(st.just("trim"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("save"), st.just(0), st.just(0)),
        st.tuples(st.just("restore"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_ledger_agrees_with_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    ledger, rows, gsn = Ledger(), dict[bytes, bytes](), 0
    found: dict[tuple[int, int], int] = {}
    forgotten: dict[int, int] = {}
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
            new = (client, sequence) not in found and sequence > forgotten.get(client, 0)
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
            told = ledger.last_before(floor)
            before = {key: sequence for (key, sequence), at in found.items() if at < floor}
            for key, sequence in [(key, sequence) for (key, sequence), at in found.items() if at < floor]:
                forgotten[key] = max(forgotten.get(key, 0), sequence)
            assert {key: told[key] for key in before} == {key: forgotten[key] for key in before}
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
            for sequence in range(1, 14):
                assert ledger.find(key, sequence) == found.get((key, sequence))
        assert set(ledger.aborted) == aborted
        assert all(ledger.is_aborted(at) is (at in aborted) for at in range(gsn + 2))
        assert list(ledger.aborted_between(3, 9)) == sorted(at for at in aborted if 3 < at <= 9)


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
        each.trim(15, each.last_before(15))
        assert (each.find(7, 1), each.find(7, 2)) == (20, None)
    assert restored.equals(ledger)


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
    ledger.sessions[3].forgotten = 1
    whole = list(ledger.rows(b"", gsn))
    assert whole == sorted(whole)
    for at, (key, _) in enumerate(whole):
        assert list(ledger.rows(key, gsn)) == whole[at + 1 :]
    for through in range(gsn + 1):
        earlier = Ledger()
        rows = list(ledger.rows(b"", through))
        earlier.restore(lambda prefix, rows=rows: [(key[1:], raw) for key, raw in rows if key[:1] == prefix])
        assert list(earlier.rows(b"", through)) == rows
        assert all(earlier.find(client, sequence) in (None, ledger.find(client, sequence))
                   for client in (1, 3) for sequence in range(1, 10))
        found = [earlier.find(client, sequence) for client in (1, 3) for sequence in range(1, 10)]
        assert sorted(one for one in found if one) == sorted(
            one for client in (1, 3) for sequence in range(1, 10) if 0 < (ledger.find(client, sequence) or 0) <= through
            for one in [ledger.find(client, sequence)])
