"""The client of a Scalog log: the core in the application's process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from logdb.log.cores import MILLISECOND, SECOND, Address, Effect, Event, Journal
from logdb.log.scalog.policies import ANYWHERE, Policy


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What a client is told. Bytes of records are their payloads and 32 each.

    `linger_ns`: so long records wait for others while a batch to their segment is under way. `batch_bytes`: about so
    much goes into one message, to or from a server. `window_bytes`: so much may be under way to a segment,
    `buffer_bytes` be in this client altogether (what is beyond waits), and `fetch_bytes` be fetched for a subscription.
    `answer_timeout_ns`: after so long without an answer ask again, or another. `backoff_ns`, `max_backoff_ns`: the
    wait before what was refused is tried again, which doubles. `suspect_after_ns`: a primary that is silent for so
    long is reported, and others are asked for the fates.
    """

    address: Address
    ordering: tuple[Address, ...]
    policy: Policy = ANYWHERE
    linger_ns: int = 2 * MILLISECOND
    batch_bytes: int = 1 << 20
    window_bytes: int = 8 << 20
    buffer_bytes: int = 64 << 20
    fetch_bytes: int = 8 << 20
    answer_timeout_ns: int = SECOND // 2
    backoff_ns: int = 5 * MILLISECOND
    max_backoff_ns: int = SECOND // 2
    suspect_after_ns: int = 2 * SECOND


class LogClient:
    """A core that turns calls (`calls.py`) into messages, and their answers into answers.

    It needs no journal. Its number, by which servers know its records, is drawn from `rng`: a host gives each
    incarnation a generator of its own.
    """

    def __init__(self, config: ClientConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self._config, self._rng = config, rng

    def start(self, now: int) -> list[Effect]:
        """Asks for the view."""
        return []

    def handle(self, event: Event, now: int) -> list[Effect]:
        return []

    def check_invariants(self) -> None:
        """Cheap."""
