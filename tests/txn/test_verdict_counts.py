"""The counts of verdicts, which a server exports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import logdb
from logdb.log.engine import Metric
from logdb.node.metrics import NodeMetrics
from logdb.txn.validation import Reason
from logdb.txn.verdict_counts import MAX_LABELS, OTHERS, VerdictCounts
from tests.harness.opening import host_of


def test_aborts_are_counted_by_reason_and_label() -> None:
    with logdb.open(":memory:") as db:
        counts = host_of(db).machine.coordinator.counts
        db.put(b"k", b"1")
        assert not db.test_and_multi_put([logdb.absent(b"k")], {b"k": b"2"}, label="create").committed

        def lose(txn: logdb.Transaction) -> None:
            txn.get(b"k")
            if txn.attempt < 3:
                db.put(b"k", b"3")
            txn.put(b"k", b"4")

        db.run(lose, label="raise")
        assert counts.commits == 4
        assert counts.listed() == [("conflict", "raise", 2), ("condition", "create", 1)]


def test_many_labels_are_counted_together() -> None:
    counts = VerdictCounts()
    for number in range(MAX_LABELS + 30):
        counts.add_abort(Reason.CONFLICT, f"order {number}")
    counts.add_abort(Reason.CONFLICT, "order 0")
    assert counts.listed()[:2] == [("conflict", OTHERS, 30), ("conflict", "order 0", 2)]
    assert len(counts.listed()) == MAX_LABELS + 1


@pytest.mark.parametrize("roles", [("mapping",), ("mapping", "storage")])
def test_metrics_have_their_labels(roles: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.role, self.name = self, name

    class Node:
        peers = worker = None
        servers = tuple(map(Named, roles))

    def metrics(server: Named) -> Iterator[Metric]:
        yield Metric("aborts", "Aborts.", 2, is_counter=True, labels=(("reason", "conflict"),))
        yield Metric("aborts", "Aborts.", 3, is_counter=True, labels=(("reason", "condition"),))

    monkeypatch.setattr("logdb.node.metrics._metrics_of", metrics)
    (family,) = NodeMetrics(Node()).collect()  # type: ignore[arg-type]
    found = [(sample.labels, sample.value) for sample in family.samples]
    roles_shown = [{"role": role} if len(roles) > 1 else {} for role in roles]
    assert found == [
        (shown | {"reason": reason}, value)
        for shown in roles_shown
        for reason, value in (("conflict", 2), ("condition", 3))
    ]
