"""Where the records of a client are."""

from __future__ import annotations

from logdb.log.ziplog import messages
from logdb.log.ziplog.storage.sessions import Sessions
from tests.harness.samples import sent

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


def test_a_client_that_has_settled_all_its_records_leaves_a_mark_alone() -> None:
    """Its empty table doubled what a short-lived client leaves in each saved state."""
    sessions, same = Sessions(), Sessions()
    sessions.add(CLIENT, 1, 100)
    sessions.settle(CLIENT, 2)
    same.settle(CLIENT, 2)
    assert sessions.to_json() == same.to_json()
    sessions.add(CLIENT, 2, 200)
    assert (sessions.find(CLIENT, 1), sessions.find(CLIENT, 2), sessions.mark(CLIENT)) == (0, 200, 2)


def test_any_number_of_clients_fits_in_messages_of_limited_size() -> None:
    """All clients were in one message, which was too large to send above some 150,000 clients that ever appended: no
    member could join the shard any more."""
    sessions, copied = Sessions(), Sessions()
    for client in range(1 << 63, (1 << 63) + 120_000):
        sessions.add(client, 1 << 62, 1 << 62)
        sessions.settle(client, 1 << 61)
    firsts, followings = [], []
    for part in sessions.parts():
        arrived = sent(messages.Sessions(1, 2, 3, *part))
        firsts.append(arrived.first)
        followings.append(arrived.following)
        assert copied.merge(Sessions.from_json(arrived.sessions), arrived.first)
    assert len(firsts) > 5
    assert (firsts[0], followings[-1], firsts[1:]) == (0, 0, followings[:-1])
    assert copied.to_json() == sessions.to_json()


def test_any_number_of_records_of_a_client_fits_in_messages_of_limited_size() -> None:
    """All were in one message, which was too large to send above some 100,000 records that a client had sent and not
    settled, as small ones when a member fails: no member could join the shard any more."""
    sessions, copied = Sessions(), Sessions()
    sessions.settle(CLIENT, 1 << 61)
    for number in range(1 << 61, (1 << 61) + 120_000):
        sessions.add(CLIENT, number, (1 << 61) + number)
    sessions.add(CLIENT + 1, 1, 1)
    parts = [sent(messages.Sessions(1, 2, 3, *part)) for part in sessions.parts()]
    assert [(one.first, one.following) for one in parts[:3]] == [(0, CLIENT), (CLIENT, CLIENT), (CLIENT, CLIENT)]
    merged = [copied.merge(Sessions.from_json(parts[at].sessions), parts[at].first) for at in (0, 2, 1, 1, 2)]
    assert merged == [True, False, True, True, True], "one comes too early, and one again"
    for one in parts[3:]:
        assert copied.merge(Sessions.from_json(one.sessions), one.first)
    assert copied.to_json() == sessions.to_json()
