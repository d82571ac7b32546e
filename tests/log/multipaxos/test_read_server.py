"""The memory that parked requests take."""

from __future__ import annotations

import tracemalloc
from typing import Any

from logdb.log.multipaxos.messages import Pull
from logdb.log.multipaxos.read_server import ReadServer


class Ends:
    """A log that ends before GSN 10."""

    next_gsn, oldest = 10, 1


def test_a_pull_that_is_sent_again_takes_no_more_memory() -> None:
    """With another GSN each time; the queue had an entry for each, and no limit counted them."""
    store: Any = None
    reads = ReadServer(store, [], lambda: (True, "me"))
    end: Any = Ends
    reads.on_request(Pull(1, 1_000, None, 1_000), "reader", end)
    tracemalloc.start()
    try:
        for gsn in range(2_000, 6_000):
            reads.on_request(Pull(1, gsn, None, 1_000), "reader", end)
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
