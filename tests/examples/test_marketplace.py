"""The marketplace runs, and detects an event that the log has lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import logdb.log
from examples import marketplace
from tests.harness.clusters import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two shards, and spare servers for four more."""
    cluster = Cluster(tmp_path, replicas=1, storage=6, aggregators=0)
    try:
        cluster.start(2)
        yield cluster
    finally:
        cluster.close()


def test_a_day(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    (endpoint,) = cluster.ordering
    marketplace.main(["--endpoints", endpoint, "--jobs", "2", "--events", "200"])
    output = capsys.readouterr().out
    assert "[1, 2]" in output
    assert "[3, 4]" in output
    assert "the log has each of them once" in output
    with logdb.log.connect(endpoint) as log:
        assert log.view().finalized == {1, 2, 3, 4}
        assert log.view().active == {5, 6}


def test_an_event_that_is_lost_is_missed(cluster: Cluster) -> None:
    (endpoint,) = cluster.ordering
    with logdb.log.connect(endpoint) as log:
        log.append([(marketplace.BOUGHT, b'{"product": "p", "cents": 5}')] * 3)
        figures = marketplace.count(log, 1, 3, marketplace.Figures())
        assert (figures.events, figures.cents) == (3, 15)
        marketplace.check(endpoint, log, figures, done=3, appended=3)
        with pytest.raises(AssertionError, match="events were lost"):
            marketplace.check(endpoint, log, figures, done=3, appended=4)
        figures.cents += 1
        with pytest.raises(AssertionError, match="a replay computes other figures"):
            marketplace.check(endpoint, log, figures, done=3, appended=3)
