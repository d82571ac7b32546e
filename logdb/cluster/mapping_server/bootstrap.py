"""How an empty mapping server gets its state: from a checkpoint of another server, else from the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.cluster.client.leases import RENEWAL_NS, Leases
from logdb.cluster.log_adapter import LogAdapter
from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.log_recovery import PAUSE_NS, LogRecovery
from logdb.cluster.mapping_server.replica import SLICE_BYTES, Replica
from logdb.cluster.messages import Cursor, MapRows, Part, Slice, SliceRequest, SliceUnavailable
from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address, Stop
from logdb.log.contract import Trimmed


class Bootstrap:
    """Fills an empty replica, and sends slices of a full one to other servers.

    A checkpoint is transferred slice by slice, from any of the peers, whose floor is leased: a transfer begins again
    when a compaction moves it. If no peer has a checkpoint the log is replayed from its first record; if that was
    trimmed the state is recovered from the records of the last compaction (`LogRecovery`).

    `is_active`: the replica has no state yet. `recovery`: the recovery from the log under way. `on_active` and
    `on_done` are called when the bootstrap begins and when the replica can follow the log.
    """

    def __init__(
        self,
        context: ClientContext,
        log: LogAdapter,
        replica: Replica,
        config: MappingConfig,
        on_active: Callable[[], None],
        on_done: Callable[[], None],
    ) -> None:
        self._context, self._log, self._replica, self._config = context, log, replica, config
        self._on_active, self._on_done = on_active, on_done
        self._requests = PendingRequests(context)
        self._lease = Leases(context, config.peers, RENEWAL_NS)
        self._peer = context.rng.randrange(8)
        self.is_active = False
        self.recovery: LogRecovery | None = None
        self._rows = 0
        # The checkpoint under way: its parts but for the map, and the floor of the servers that send it.
        self._parts: list[Part] = []
        self._floor = 0
        # The oldest record of the log when its first one was found trimmed, else 0.
        self._oldest = 0

    @property
    def rows(self) -> int:
        """The number of versions received of the checkpoint, or recovered from the log."""
        return self._rows if self.recovery is None else self.recovery.rows

    def start(self) -> None:
        """Begin a bootstrap if the replica needs a state and has a peer; else the replica follows the log at once."""
        if self._config.peers and not self._replica.applied:
            self._begin_transfer()
        else:
            self._on_done()

    def on_log_failed(self, reason: Any) -> None:
        """The log cannot be followed from the replica's version: an empty replica gets its state in another way, any
        other one stops, and starts again empty if the next record was trimmed."""
        is_trimmed = isinstance(reason, Trimmed)
        if is_trimmed and not self._replica.applied:
            self._oldest = reason.oldest
        if self._oldest and self._config.peers and not self._replica.applied:
            self._begin_transfer()
        elif is_trimmed and not self._replica.applied:
            self._recover()
        else:
            self._context.out.append(Stop(f"it cannot follow the log: {reason}", wipe=is_trimmed))

    # ---- a checkpoint of another server

    def on_slice_request(self, message: SliceRequest, sender: Address) -> None:
        """Send a slice of the checkpoint at a version. The source keeps no state of the transfer: the state
        at a version does not change."""
        request, version, cursor = message
        applied = self._replica.applied
        version = version or applied
        if not 0 < version <= applied:
            self._context.send(sender, SliceUnavailable(request))
            return
        part, following = self._replica.slice(version, cursor, min(self._config.answer_bytes, SLICE_BYTES))
        self._context.send(sender, Slice(request, version, self._replica.coordinator.floor, part, following))

    def on_slice(self, message: Slice | SliceUnavailable, sender: Address) -> None:
        """The answer to a slice request."""
        self._requests.on_reply(message.request, message, sender)

    def _begin_transfer(self) -> None:
        self._activate()
        self._rows = 0
        self._request_slice(0, None)

    def _activate(self) -> None:
        self.is_active, self.recovery, self._parts = True, None, []
        self._on_active()

    def _request_slice(self, version: int, cursor: Cursor | None) -> None:
        peers, number = self._config.peers, self._context.next_number()

        def where(attempt: int) -> Address | None:
            if attempt:
                self._peer += 1
            if attempt >= self._config.join_attempts * len(peers):
                self._requests.cancel(number)
                self._on_no_checkpoint()
                return None
            return peers[self._peer % len(peers)]

        def on_reply(message: Slice | SliceUnavailable, sender: Address) -> int | None:
            if isinstance(message, SliceUnavailable):
                return self._context.backoff(1)
            self._requests.cancel(number)
            self._take(message, cursor)
            return None

        self._requests.send(number, SliceRequest(number, version, cursor), where, on_reply)

    def _take(self, slice_: Slice, cursor: Cursor | None) -> None:
        """Take in a slice. All slices are of one version, from servers with one floor; else the transfer begins again
        (DBS-9)."""
        assert self.is_active
        if cursor is None:
            self._floor = slice_.floor
            self._lease.set(self, slice_.floor)
            self._parts = []
            if not self._discard():
                return
        elif slice_.floor != self._floor:
            self._begin_transfer()
            return
        if isinstance(slice_.part, MapRows):
            self._replica.take_in(slice_.part)
            self._rows += len(slice_.part.rows)
        else:
            self._parts.append(slice_.part)
        if slice_.next is not None:
            self._request_next(slice_.version, slice_.next)
        else:
            self._install(slice_.version, self._parts)

    def _request_next(self, version: int, cursor: Cursor) -> None:
        """Request the next slice, later while the disk is behind."""
        if self._replica.map.is_ahead_of_disk:
            resume = Timer(lambda: self._request_next(version, cursor))
            self._context.set_timer(resume, self._context.now + PAUSE_NS)
        else:
            self._request_slice(version, cursor)

    def _install(self, version: int, parts: list[Part]) -> None:
        """The map is complete; `parts` has everything else."""
        self._replica.install(version, parts)
        self._rows = self.rows
        self._finish()

    def _finish(self) -> None:
        self._lease.set(self, None)
        self.is_active, self.recovery, self._parts = False, None, []
        self._on_done()

    def _discard(self) -> bool:
        """Discard the rows of an incomplete checkpoint. If they are on disk the server stops, and starts again empty;
        returns whether it goes on."""
        if not self._replica.forget():
            self._context.out.append(Stop("the rows of an incomplete checkpoint are on disk", wipe=True))
            return False
        return True

    # ---- the log

    def _on_no_checkpoint(self) -> None:
        """No peer has a checkpoint."""
        if self._oldest:
            self._recover()
        elif self._discard():
            self._finish()

    def _recover(self) -> None:
        """The log's first record was trimmed: recover from its last compaction."""
        self._lease.set(self, None)
        if self._discard():
            self._activate()
            self.recovery = LogRecovery(
                self._log, self._context, self._replica, self._oldest, self._install, self.on_log_failed
            )
            self.recovery.start()

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert not self.is_active or not self._replica.applied, "DBS-9: the replica has a state during its bootstrap"
        assert self.is_active or self.recovery is None, "a recovery outlives its bootstrap"
