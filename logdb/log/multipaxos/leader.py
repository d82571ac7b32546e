"""The leader: collects appends into commands, and answers them when the commands are applied.

This is soft state. A new leader starts without it: clients resend records that were not acknowledged, and records
that were chosen before are recognized by client and sequence number (MPX-3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from logdb.cores.effects import Address, Effect, Send
from logdb.log.multipaxos.commands import Append, Batch, Trim
from logdb.log.multipaxos.config import ReplicaConfig
from logdb.log.multipaxos.messages import AppendRefused, AppendRequest, AppendResponse, NotLeader, TrimRequest
from logdb.log.multipaxos.sessions import Run
from logdb.log.multipaxos.state import Applied, LogState
from logdb.log.requests import record_bytes


class Pending(NamedTuple):
    """A request that is not applied yet: its sender and its size in bytes."""

    sender: Address
    size: int


class Leader:
    """The soft state of a leader. `out`: the list for effects. `proposed`: the last slots of commands in flight."""

    def __init__(self, config: ReplicaConfig, out: list[Effect]) -> None:
        self._config, self._out = config, out
        self._queue: deque[AppendRequest] = deque()
        self._pending: dict[tuple[int, int], Pending] = {}
        self._pending_bytes = 0
        self._trims: deque[Trim] = deque()
        self._trimming: dict[int, Address] = {}
        self._answers: dict[tuple[Address, int], list[tuple[int, int, int]]] = {}
        self.proposed: deque[int] = deque()

    # ---- requests

    def on_append(self, request: AppendRequest, sender: Address, state: LogState, is_overloaded: bool) -> None:
        """Acknowledge the records that are in the log already, and queue the request if some are not, or refuse it.
        `is_overloaded`: too many commands are not durable at this replica, even if others have chosen them."""
        client, sequence, _, records = request
        runs = state.sessions.find(client, sequence, len(records))
        self._answer(sender, client, runs)
        if all(run.gsn for run in runs):
            return
        pending = self._pending.get((client, sequence))
        if pending is not None:
            self._pending[client, sequence] = pending._replace(sender=sender)
            return
        size = record_bytes(records)
        if is_overloaded or (self._pending and self._pending_bytes + size > self._config.buffer_bytes):
            self._out.append(Send(sender, AppendRefused(client, sequence, self._config.address)))
            return
        self._pending[client, sequence] = Pending(sender, size)
        self._pending_bytes += size
        self._queue.append(request)

    def on_trim(self, request: TrimRequest, sender: Address) -> None:
        """Queue a trim. A repeated trim has no further effect, so results of earlier requests are not stored."""
        if request.request not in self._trimming:
            self._trims.append(Trim(request.request, request.gsn))
        self._trimming[request.request] = sender

    def next_command(self, now: int) -> Batch | Trim | None:
        """The next command to propose, or None."""
        if self._trims:
            return self._trims.popleft()
        if not self._queue or len(self.proposed) >= self._config.window:
            return None
        appends: list[Append] = []
        size = 0
        while self._queue and (not appends or size < self._config.batch_bytes):
            request = self._queue.popleft()
            appends.append(Append(*request))
            size += record_bytes(request.records)
        return Batch(now, appends)

    # ---- commands that were applied

    def applied(self, slot: int, applied: Applied) -> list[tuple[Address, int, str]]:
        """Answer the requests of a command. Returns the trims to answer: (sender, request, error)."""
        while self.proposed and self.proposed[0] <= slot:
            self.proposed.popleft()
        for client, sequence, runs in applied.appends:
            pending = self._pending.pop((client, sequence), None)
            if pending is not None:
                self._pending_bytes -= pending.size
                self._answer(pending.sender, client, runs)
        if applied.trim is None:
            return []
        id, error = applied.trim
        sender = self._trimming.pop(id, None)
        return [] if sender is None else [(sender, id, error)]

    def _answer(self, to: Address, client: int, runs: Sequence[Run]) -> None:
        known = [tuple(run) for run in runs if run.gsn]
        if known:
            self._answers.setdefault((to, client), []).extend(known)  # type: ignore[arg-type]

    def send_answers(self) -> None:
        """Send the collected answers, one message for each client."""
        for (to, client), ranges in self._answers.items():
            self._out.append(Send(to, AppendResponse(client, tuple(ranges))))
        self._answers.clear()

    def stop(self, leader: Address) -> None:
        """This replica was deposed: send its clients the address of the new leader."""
        self.send_answers()
        for (client, sequence), pending in self._pending.items():
            self._out.append(Send(pending.sender, AppendRefused(client, sequence, leader)))
        for request, sender in self._trimming.items():
            self._out.append(Send(sender, NotLeader(request, leader)))

    def check(self) -> None:
        """Raises AssertionError."""
        assert self._pending_bytes == sum([pending.size for pending in self._pending.values()])
