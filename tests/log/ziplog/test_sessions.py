"""Where the records of a client are."""

from __future__ import annotations

from logdb.log.ziplog.storage.sessions import Sessions

CLIENT = 7


def test_the_records_in_some_ranges_each_once_whatever_the_counts_claim() -> None:
    sessions = Sessions()
    for number in range(1, 10):
        sessions.add(CLIENT, number, 100 * number)
    sessions.settle(CLIENT, 3)
    assert sessions.find_all(CLIENT, [(5, 2), (1, 3)]) == [(3, 300), (5, 500), (6, 600)]
    assert sessions.find_all(CLIENT, [(8, 2**62), (4, 1), (7, 2**62)]) == [(4, 400), (7, 700), (8, 800), (9, 900)]
    assert sessions.find_all(CLIENT, [(1, 2**62)] * 1000) == [(number, 100 * number) for number in range(3, 10)]
    assert sessions.find_all(CLIENT, []) == sessions.find_all(CLIENT + 1, [(1, 2**62)]) == []
