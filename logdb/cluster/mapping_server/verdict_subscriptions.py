"""The clients that wait for verdicts at a mapping server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from typing import Final

from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import AwaitVerdicts, Decided, Verdicts
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address
from logdb.store.records import TxnId

MAX_AWAITED: Final = 1 << 14
"""Maximum number of verdicts that one client waits for. It sends further requests again, when it has others."""


class VerdictSubscriptions:
    """Pushes each verdict once to every client that waits for it. `pushed`: the number of verdicts pushed.

    A subscription older than `ttl_ns` is dropped: by then the client has sent it again, perhaps to another server.
    """

    def __init__(self, context: ClientContext, replica: Replica, ttl_ns: int) -> None:
        self._context, self._replica, self._ttl_ns = context, replica, ttl_ns
        self.pushed = 0
        self._since: dict[TxnId, dict[Address, int]] = {}
        self._counts = Counter[Address]()
        self._verdicts: dict[Address, list[Decided]] = {}
        self._expiry = Timer(self._expire)

    @property
    def is_awaited(self) -> bool:
        """Whether a client waits for a verdict."""
        return bool(self._since)

    def on_await(self, message: AwaitVerdicts, client: Address) -> None:
        """Push the verdicts that are decided, and subscribe the client to the others.

        A client that names a GSN which is applied and holds no record of its transaction is dropped: its claim
        contradicts the log (DBS-6), and no verdict will come.
        """
        for number, sequence, gsn in message.waits:
            txn = TxnId(number, sequence)
            if client not in self._since.get(txn, ()):
                if self._counts[client] >= MAX_AWAITED:
                    continue
                self._counts[client] += 1
            self._since.setdefault(txn, {})[client] = self._context.now
            self._push(txn)
            if txn in self._since and 0 < gsn <= self._replica.applied:
                self._drop(txn, [client])
        self._set_expiry()

    def on_decided(self, decided: Iterable[TxnId], contended: Container[TxnId] = ()) -> None:
        """Push the verdicts of these transactions to their subscribers. With those in `contended` others contend."""
        for txn in decided:
            if txn in self._since:
                self._push(txn, txn in contended)

    def on_installed(self) -> None:
        """Push the verdicts that a checkpoint has brought."""
        self.on_decided(list(self._since))

    def flush(self) -> None:
        """Send the verdicts of this event: one message for each client."""
        for client, verdicts in self._verdicts.items():
            self._context.send(client, Verdicts(tuple(verdicts)))
        self._verdicts = {}

    def _push(self, txn: TxnId, is_contended: bool = False) -> None:
        decided = self._replica.decided(txn)
        if decided is not None:
            if is_contended:
                decided = decided._replace(is_contended=True)
            for client in self._since.pop(txn):
                self._ended(client)
                self.pushed += 1
                self._verdicts.setdefault(client, []).append(decided)

    def _drop(self, txn: TxnId, clients: Iterable[Address]) -> None:
        subscribed = self._since[txn]
        for client in clients:
            del subscribed[client]
            self._ended(client)
        if not subscribed:
            del self._since[txn]

    def _ended(self, client: Address) -> None:
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]

    def _set_expiry(self) -> None:
        if self._expiry.at is None and self._since:
            self._context.set_timer(self._expiry, self._context.now + self._ttl_ns)

    def _expire(self) -> None:
        oldest = self._context.now - self._ttl_ns
        for txn, clients in list(self._since.items()):
            self._drop(txn, [client for client, since in clients.items() if since <= oldest])
        self._set_expiry()

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert not self._since or self._expiry.at is not None, "subscriptions never expire"
        assert self._counts == Counter([client for clients in self._since.values() for client in clients])
