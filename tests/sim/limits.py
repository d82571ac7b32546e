"""Small limits: in some seeds, what a message or an answer may have is so little that ordinary records exceed it.

The limits are constants of the product, which have the proportions of the real ones; all of them are changed here, for
the time of one seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

from logdb.cores.effects import MILLISECOND

SHARE = 0.2
"""The share of seeds with small limits."""
WITHOUT = frozenset({40, 87, 122, 207, 219, 321, 891})
"""Seeds that keep the real limits, since few others catch certain planted bugs."""
RECORD_BYTES = 2_000
"""The payload of the largest records in such a seed."""
LASTING_NS = 400 * MILLISECOND
"""Such a seed lasts no longer: it has many more messages than others."""
LOADS = ((300, 0.01, 10), (60, 0.6, 4), (5, 0.6, 10), (2, 0.02, 100))
"""Records of the largest batch, the share of large ones, calls of an application: about as much as the links carry."""
SMALL_BYTES = 60
"""The payload of the largest of the other records."""
HEADER_BYTES = 64
"""At least what is stored and sent with a record beside its payload."""

QUEUE_BYTES = 40_000
"""Of a link. All sessions of a shard fit, as they do in a real queue."""

CHOICES: dict[str, tuple[int, ...]] = {
    "log.corfu.client.record_trims.WINDOW": (1, 8),
    "log.corfu.client.streams.FILLS_AT_ONCE": (1, 8),
    "log.corfu.client.subscription.HOLES": (1, 8),
    "log.corfu.client.subscription.MIN_FETCH_BYTES": (500, 4_000),
    "log.corfu.storage.entry_store.RUN": (1, 10, 100),
    "log.corfu.storage.read_server.PULL_BYTES": (500, 2_000),
    "log.corfu.storage.unit.MAX_FETCHES": (1, 10),
    "log.corfu.storage.unit.MAX_HELD": (1, 10),
    "log.corfu.storage.unit.MAX_OPEN": (1, 16),
    "log.multipaxos.log_index.GRAIN_BYTES": (1, 100),
    "log.multipaxos.read_server.PULL_BYTES": (500, 2_000),
    "log.scalog.client.subscription.MIN_PULL_BYTES": (500, 4_000),
    "log.scalog.storage.metadata_journal.MAX_BUFFERED_LINKS": (2, 10),
    "log.scalog.storage.read_server.MAX_RANGES_PER_PULL": (2, 10),
    "log.scalog.storage.read_server.PULL_BYTES": (500, 2_000),
    "log.scalog.storage.segment_replica.SAMPLE_BYTES": (1, 100),
    "log.scalog.storage.sessions.PART_ROWS": (2, 10),
    "log.ziplog.client.subscription.MIN_FETCH_BYTES": (500, 4_000),
    "log.ziplog.storage.log_store.GRAIN_BYTES": (1, 100),
    "log.ziplog.storage.read_server.PULL_BYTES": (500, 2_000),
    "log.ziplog.storage.replication.FLIGHT_BYTES": (1_000, 4_000),
    "log.ziplog.storage.sessions.PART_ROWS": (2, 10),
    "log.ziplog.storage.shard_log.TRIM_RECORDS": (2, 10),
}
"""The values that each constant may have, behind its module. Its unit is that of the constant."""
SHARED: dict[str, tuple[str, ...]] = {
    "MAX_MESSAGE_BYTES": ("wire.codec",),
    "MAX_BATCH_BYTES": ("wire.packing",),
    "MAX_RECORD_BYTES": ("wire.packing",),
    "MAX_PLAIN_BYTES": ("wire.envelopes",),
    "MAX_PACKET_BYTES": ("wire.envelopes",),
    "PACKET_BYTES": ("wire.envelopes",),
    "PROMPT_BYTES": ("log.requests", "log.scalog.storage.replication"),
    "BYTES_A_SECOND": ("log.requests",),
}
"""The modules that use constants which belong together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a seed. `constants`: by module and name. `queue_bytes`, `bytes_a_second`: of a link. `large`: the
    share of large records; `records`: of the largest batch; `under_way`: calls of an application."""

    constants: tuple[tuple[str, int], ...]
    queue_bytes: int
    bytes_a_second: int
    large: float
    records: int
    under_way: int

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """The product has these limits meanwhile."""
        before = []
        try:
            for path, value in self.constants:
                module_name, _, name = path.rpartition(".")
                module = import_module(f"logdb.{module_name}")
                before.append((module, name, getattr(module, name)))
                setattr(module, name, value)
            yield
        finally:
            for module, name, value in reversed(before):
                setattr(module, name, value)


def limits_of(seed: int, draw: random.Random) -> Limits | None:
    """The small limits of a seed; None: it has the real ones."""
    if draw.random() >= SHARE or seed in WITHOUT:
        return None
    bytes_a_second = draw.choice((100_000, 400_000))
    record = RECORD_BYTES + HEADER_BYTES
    batch, plain = record + draw.choice((200, 500, 2_000)), 4_000
    together = {
        "MAX_MESSAGE_BYTES": plain,
        "MAX_BATCH_BYTES": batch,
        "MAX_RECORD_BYTES": record,
        "MAX_PLAIN_BYTES": plain + 200,
        "MAX_PACKET_BYTES": batch + plain + 200,
        "PACKET_BYTES": 500,
        "PROMPT_BYTES": 500,
        "BYTES_A_SECOND": bytes_a_second // 2,
    }
    shared = [(f"{module}.{name}", together[name]) for name, modules in SHARED.items() for module in modules]
    records, large, under_way = draw.choice(LOADS)
    number = draw.getrandbits(64)  # another constant leaves the values of these as they are
    own = [(path, random.Random(f"{number}/{path}").choice(choices)) for path, choices in CHOICES.items()]
    return Limits(
        (*own, *shared),
        queue_bytes=QUEUE_BYTES,
        bytes_a_second=bytes_a_second,
        large=large,
        records=records,
        under_way=under_way,
    )
