"""The registered storage servers, by the ids that the ordering layer gave them.

A server draws a token when its disk is formatted and registers with it. A server that has lost its disk has another
token, so it is another server, and never continues with the id of the old one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from logdb.cores.effects import Address

MAX_REMOVED = 100_000
"""Number of removed servers that are remembered, so that they get the message to wipe their disks."""


class RegisteredServer(NamedTuple):
    """A storage server. `shard`: 0 for a spare."""

    id: int
    token: int
    address: Address
    shard: int


class ServerRegistry(dict[int, RegisteredServer]):
    """The servers by id. `spares`: those without a shard. `tokens`: the id for each token. `removed`: the tokens of
    servers that were removed, oldest first."""

    def __init__(self, servers: Iterable[RegisteredServer] = (), removed: Iterable[int] = ()) -> None:
        super().__init__((server.id, server) for server in servers)
        self.spares = {server.id: server for server in self.values() if not server.shard}
        self.tokens = {server.token: server.id for server in self.values()}
        self.removed = dict.fromkeys(removed)

    def by_token(self, token: int) -> RegisteredServer | None:
        """The server with this token, if it is registered."""
        return self.get(self.tokens.get(token, 0))

    def add(self, server: RegisteredServer) -> None:
        """Register a spare."""
        self[server.id] = self.spares[server.id] = server
        self.tokens[server.token] = server.id

    def move(self, server: RegisteredServer, address: Address) -> None:
        """Set the address of a server."""
        moved = self[server.id] = server._replace(address=address)
        if server.id in self.spares:
            self.spares[server.id] = moved

    def assign(self, spare: RegisteredServer, shard: int) -> None:
        """Make a spare a server of `shard`."""
        self[spare.id] = spare._replace(shard=shard)
        del self.spares[spare.id]

    def remove(self, server: RegisteredServer) -> None:
        """Remove a server and remember its token."""
        del self[server.id], self.tokens[server.token]
        self.spares.pop(server.id, None)
        self.removed[server.token] = None
        if len(self.removed) > MAX_REMOVED:
            del self.removed[next(iter(self.removed))]

    def spares_of(self, live: Iterable[int]) -> list[RegisteredServer]:
        """The servers of `live` that are spares."""
        return [self.spares[server] for server in live if server in self.spares]

    def spares_preferring(self, live: Iterable[int]) -> list[RegisteredServer]:
        """All spares, those of `live` first."""
        return list(dict.fromkeys(self.spares_of(live)) | dict.fromkeys(self.spares.values()))
