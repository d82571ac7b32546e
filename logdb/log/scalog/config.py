"""The configuration of a storage server, read by all of its parts."""

from __future__ import annotations

from dataclasses import dataclass

from logdb.cores.effects import MILLISECOND, SECOND, Address


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """The configuration of a storage server. The size of a record is that of its payload plus 32 bytes.

    - `ordering`: the addresses of all replicas of the ordering layer.
    - `heartbeat_ns`: about the maximum time between two reports, and between two acknowledgements of a backup.
    - `ask_ns`: time before a request to the ordering layer or to another member is repeated.
    - `suspect_after_ns`: time without a message after which the server bypasses its aggregator, the leader, or the
      primary of a segment of which its copy is incomplete.
    - `straggle_after_ns`: time that a write may wait for the disk. After it the server stops reporting, so that it
      counts as failed.
    - `resend_ns`: time without an acknowledgement after which records are sent to a backup again. More than
      `heartbeat_ns`, the period of acknowledgements.
    - `meta_ns`: time that links are collected before they are written together.
    - `buffer_bytes`: maximum size of records that are not ordered yet; further appends are rejected with BUSY.
    - `batch_bytes`: approximate size of the records in one message to another member.
    - `window_bytes`: maximum size of unacknowledged records sent to one backup.
    - `fresh_bytes`: size of the newest records kept in memory for the backups; slower backups are served from the
      journal.
    - `checkpoint_bytes`: growth of the journal `meta` after which a checkpoint is written, unless the last checkpoint
      was larger: then its size counts.
    - `links_per_message`: maximum number of links in one message.
    """

    address: Address
    ordering: tuple[Address, ...]
    heartbeat_ns: int = 100 * MILLISECOND
    ask_ns: int = 200 * MILLISECOND
    suspect_after_ns: int = SECOND
    straggle_after_ns: int = 5 * SECOND
    resend_ns: int = 200 * MILLISECOND
    meta_ns: int = 100 * MILLISECOND
    buffer_bytes: int = 16 << 20
    batch_bytes: int = 1 << 20
    window_bytes: int = 8 << 20
    fresh_bytes: int = 8 << 20
    checkpoint_bytes: int = 256 << 10
    links_per_message: int = 500
