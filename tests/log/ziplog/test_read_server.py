"""The memory that parked requests take."""

from __future__ import annotations

import tracemalloc
from typing import Any

from logdb.log.ziplog.messages import Pull
from logdb.log.ziplog.storage.read_server import ReadServer


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
