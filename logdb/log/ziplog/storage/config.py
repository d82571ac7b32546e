"""The configuration of a storage server: all of its parts read it."""

from __future__ import annotations

from dataclasses import dataclass

from logdb.cores.effects import MILLISECOND, Address


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """`ordering`: the addresses of the MMS.

    `heartbeat_ns`: between heartbeats to other members and reports to the MMS. `suspect_after_ns`: a member that is
    silent for this long is reported. `resend_ns`: what a backup has not stored after this time is sent again.
    `epoch_age_ns`: a server places no records in an older epoch, since these would get an old time; at least twice the
    time that the epoch stands for, else epochs would begin too early and move the time of the log on. `batch_bytes`:
    about the largest message. `cache_bytes`: the newest records, kept in memory for readers. `buffer_bytes`: records
    that wait to be placed, beyond which a server drops inserts. `checkpoint_bytes`: the sessions are saved after so
    many bytes of records. `acks_received`: the server acknowledges records that it has not synced yet (ZIP-12).
    """

    address: Address
    ordering: tuple[Address, ...]
    heartbeat_ns: int = 100 * MILLISECOND
    suspect_after_ns: int = 500 * MILLISECOND
    resend_ns: int = 100 * MILLISECOND
    epoch_age_ns: int = 100 * MILLISECOND
    batch_bytes: int = 1 << 20
    cache_bytes: int = 8 << 20
    buffer_bytes: int = 64 << 20
    checkpoint_bytes: int = 4 << 20
    acks_received: bool = False
