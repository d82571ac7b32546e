"""Answers with records, and the memory that parked requests take."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from logdb.log.contract import LogRecord
from logdb.log.ziplog.messages import Pull, Pulled
from logdb.log.ziplog.records import gsn_of, wrap
from logdb.log.ziplog.storage.read_server import ReadServer
from logdb.wire.envelopes import pack
from tests.harness.samples import arrivals, tight


class Ends:
    """A log that ends before GSN 10."""

    stable = 9


def test_a_pull_that_is_sent_again_takes_no_more_memory() -> None:
    """With another GSN each time; the queue had an entry for each, and no limit counted them."""
    reads = ReadServer([])
    reads.can_wait = True
    end: Any = Ends
    reads.on_request(Pull(1, 1, 1_000, None, 1_000, 0), "reader", end)
    tracemalloc.start()
    try:
        for gsn in range(2_000, 6_000):
            reads.on_request(Pull(1, 1, gsn, None, 1_000, 0), "reader", end)
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("first", "gsn", "end"), [(5, 10, 20), (10, 10, 20), (15, 20, 30), (20, 20, 30)])
def test_no_record_is_missing_from_an_answer_that_was_too_large(
    monkeypatch: pytest.MonkeyPatch, first: int, gsn: int, end: int
) -> None:
    """Of two records of 40 MB, a subscriber that had the first one never got the second one."""
    tight(monkeypatch, 1_000)
    records = [LogRecord(gsn, 0, *wrap(gsn, 7, gsn, (1, bytes(600)))) for gsn in (10, 20)]
    (arrived,) = arrivals(pack("one:1", "two:2", [Pulled(1, first, 30, 1, records)]))
    assert ([gsn_of(one.payload) for one in arrived.records], arrived.end) == ([gsn], end)
