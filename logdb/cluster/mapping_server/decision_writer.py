"""Decision records: which commit records have aborted, written to the log (DBS-8)."""

from __future__ import annotations

from typing import Any

from logdb.cluster.log_adapter import LogAdapter
from logdb.cluster.mapping_server.replica import Replica
from logdb.log import requests as log_requests
from logdb.store.records import DECISION, encode_decision


class DecisionWriter:
    """Appends decision records, one at a time. Two servers may append the same one: both state what the log implies."""

    def __init__(self, log: LogAdapter, replica: Replica) -> None:
        self._log, self._replica = log, replica
        self._is_appending = False

    def append(self, through: int) -> None:
        """Append the aborted commit records since the last decision record, up to version `through`, if there are any.
        A failed append is not retried: the next call covers the same records."""
        coordinator = self._replica.coordinator
        decision = coordinator.undeclared()
        if through < decision.through:
            aborted = coordinator.ledger.aborted_between(decision.after, through)
            decision = decision._replace(through=through, aborted=aborted)
        if decision.aborted and not self._is_appending:
            self._is_appending = True
            self._log.call(log_requests.Append([(DECISION, encode_decision(decision))]), self._on_appended)

    def _on_appended(self, _: Any) -> None:
        self._is_appending = False
