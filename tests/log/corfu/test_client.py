"""The client core, as far as a test can drive it without servers."""

from __future__ import annotations

from logdb.log import requests as calls
from logdb.log.corfu.messages import Entry, Pull, Pulled
from tests.log.corfu.client_stage import Client, shard_of, view_of


def test_a_pull_ends_where_another_unit_becomes_the_last_one_of_the_chain() -> None:
    """From there on, the entries of the former last unit may not be complete (COR-11)."""
    client = Client()
    subscription = client.call(calls.Subscribe(1))
    client.call(calls.Next(client.answers[subscription]))
    client.configure(view_of(shard_of(1, 0, 0, 5, 9)))
    for first, end, unit in ((1, 5, "s12"), (5, 9, "s13"), (9, 0, "s14")):
        to, pull = client.one(Pull)
        assert (to, pull.first, pull.end) == (unit, first, end)
        entries = tuple([Entry(position, 1, 0, 0, 0) for position in range(first, end or 10)])
        client.give(unit, Pulled(pull.request, 9, entries))
