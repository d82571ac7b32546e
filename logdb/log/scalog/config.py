"""What a storage server is told: all of its parts read it."""

from __future__ import annotations

from dataclasses import dataclass

from logdb.cores.effects import MILLISECOND, SECOND, Address


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """What a storage server is told. Bytes of records are their payloads and 32 each.

    `ordering`: all replicas of the ordering layer. `heartbeat_ns`: a report at least so often. `ask_ns`: the wait
    before a question (to the ordering layer, to other members) is put again. `suspect_after_ns`: who is silent for so
    long is gone round (the aggregator, the leader, the primary of a segment that this copy lacks something of).
    `straggle_after_ns`: a server whose disk has made nothing durable for so long, although something waits for that,
    falls silent and so counts as failed.
    `resend_ns`: what a backup has not acknowledged for so long is sent again. `meta_ns`: links wait so long to be
    written together. `buffer_bytes`: records that are not ordered yet, beyond which appends are refused with BUSY.
    `batch_bytes`: about so much goes into one message to another member; `window_bytes` may be under way to one.
    `fresh_bytes`: records kept in memory for the backups, beyond which laggards are served from the journal.
    `checkpoint_bytes`: the journal `meta` is condensed when it has grown by this, and by its last checkpoint's size.
    `links_per_message`: so many placements at most answer one question.
    """

    address: Address
    ordering: tuple[Address, ...]
    heartbeat_ns: int = 100 * MILLISECOND
    ask_ns: int = 200 * MILLISECOND
    suspect_after_ns: int = SECOND
    straggle_after_ns: int = 5 * SECOND
    resend_ns: int = 100 * MILLISECOND
    meta_ns: int = 100 * MILLISECOND
    buffer_bytes: int = 16 << 20
    batch_bytes: int = 1 << 20
    window_bytes: int = 8 << 20
    fresh_bytes: int = 8 << 20
    checkpoint_bytes: int = 256 << 10
    links_per_message: int = 500
