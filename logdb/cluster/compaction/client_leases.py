"""The versions that clients lease while they read at them, as far as one mapping server has received the leases."""

from __future__ import annotations

from logdb.cluster.messages import Hold
from logdb.cores.context import ClientContext
from logdb.cores.effects import Address


class ClientLeases:
    """The lease of each client, which ends `lease_ns` after it was last renewed. `by_client`: (version, renewed at)."""

    def __init__(self, context: ClientContext, lease_ns: int) -> None:
        self._context, self._lease_ns = context, lease_ns
        self.by_client: dict[Address, tuple[int, int]] = {}

    def on_hold(self, message: Hold, client: Address) -> None:
        """Begin or renew the lease of a client, or end it."""
        if message.version is not None:
            self.by_client[client] = message.version, self._context.now
        else:
            self.by_client.pop(client, None)

    def versions(self) -> list[int]:
        """The leased versions."""
        self.drop_expired()
        return [version for version, _ in self.by_client.values()]

    def drop_expired(self) -> None:
        """Drop the leases that were not renewed: a client that dies ends none."""
        oldest = self._context.now - self._lease_ns
        self.by_client = {client: lease for client, lease in self.by_client.items() if lease[1] >= oldest}
