"""An aggregator: merges the local cuts of its shards on their way up and spreads the updates on their way down.

It keeps soft state only, so it has no journal, and may be killed at any time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from logdb.log.cores import MILLISECOND, SECOND, Address, Effect, Event, Journal


@dataclass(frozen=True, slots=True)
class AggregatorConfig:
    """How an aggregator does its work. `ordering`: the addresses of all ordering replicas.

    `retry_ns`: a tally that no update has followed is sent again after so long. `heartbeat_ns`: the whole tally goes up
    so often, whatever happens. `suspect_after_ns`, `straggle_after_ns`: how long a member may be silent, or behind
    the others. `suspect_aggregator_after_ns`: how long the parent may be silent.
    """

    address: Address
    ordering: tuple[Address, ...]
    retry_ns: int = 20 * MILLISECOND
    heartbeat_ns: int = 100 * MILLISECOND
    suspect_after_ns: int = SECOND
    straggle_after_ns: int = 5 * SECOND
    suspect_aggregator_after_ns: int = SECOND

    def __post_init__(self) -> None:
        if not self.ordering:
            raise ValueError("an aggregator needs the address of at least one ordering replica")


class Aggregator:
    """The core of an aggregator. `journals` is ignored: there are none."""

    def __init__(self, config: AggregatorConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        raise NotImplementedError

    def start(self, now: int) -> list[Effect]:
        """What to do when the node starts."""
        raise NotImplementedError

    def handle(self, event: Event, now: int) -> list[Effect]:
        """What to do about an event. Raises ProtocolViolation."""
        raise NotImplementedError

    def check_invariants(self) -> None:
        """That every tally follows from the reports. Raises AssertionError."""
        raise NotImplementedError
