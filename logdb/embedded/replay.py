"""Where the replay of a log begins whose prefix a compaction has trimmed."""

from __future__ import annotations

from logdb.log.contract import OrderedLog
from logdb.store.records import DECISION, decode_decision
from logdb.txn.coordinator import Coordinator


def begin_at_oldest(coordinator: Coordinator, log: OrderedLog, through: int) -> None:
    """Prepare a coordinator, empty or interrupted on its way, for a log whose prefix is gone: decisions that only the
    prefix could explain are taken from the decision records."""
    oldest = log.oldest_after_trim(log.oldest())
    if oldest > 1:
        records = log.scan(oldest, through + 1)
        coordinator.preload_decisions(decode_decision(record.payload) for record in records if record.tag == DECISION)
        coordinator.applied = max(coordinator.applied, oldest - 1)
