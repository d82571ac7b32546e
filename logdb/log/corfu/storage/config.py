"""The configuration of a storage unit."""

from __future__ import annotations

from dataclasses import dataclass

from logdb.cores.effects import MILLISECOND, Address


@dataclass(frozen=True, slots=True)
class UnitConfig:
    """The configuration of one unit. `ordering`: the addresses of the auxiliary.

    `resend_ns`: time after which a unit that copies entries repeats a request. `cache_bytes`: size of the newest
    entries that are kept in memory for readers. `copy_bytes`: approximate size of a response to a copying unit.
    """

    address: Address
    ordering: tuple[Address, ...]
    heartbeat_ns: int = 100 * MILLISECOND
    resend_ns: int = 200 * MILLISECOND
    cache_bytes: int = 8 << 20
    copy_bytes: int = 1 << 20
