"""A server for tests: in a loop of this process, at a free port of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import logdb
from logdb.clients.thread_connection import ThreadConnection
from logdb.embedded import EmbeddedBackend
from logdb.embedded.async_backend import CoroutineBackend
from logdb.security.authenticator import Authenticator
from logdb.server.server import Server
from tests.harness.blocking import Loop


def connection_of(db: logdb.Database) -> ThreadConnection:
    """The connection of a client to its server, for tests below the public interface."""
    connection: ThreadConnection = db._host._backend.connection  # type: ignore[union-attr]
    return connection


class Served:
    """The database in a directory (None: in memory), served until `stop`; `start` uses the same port again."""

    def __init__(
        self,
        path: Path | None,
        authenticator: Authenticator | None = None,
        log_options: Mapping[str, Any] | None = None,
        cold: str | Path | None = None,
    ) -> None:
        self.path, self.authenticator, self.log_options, self.cold = path, authenticator, log_options, cold
        self.loop = Loop()
        self.port = 0
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        async def started() -> None:
            if self.path is None:
                host = EmbeddedBackend.in_memory()
            else:
                host = EmbeddedBackend.open(
                    self.path, read_only=False, create=True, cold=self.cold, log_options=self.log_options
                )
            self.host = CoroutineBackend(host, sync_in_loop=True)
            self.server = Server(self.host, self.authenticator)
            self.port = await self.server.start(self.address)

        self.loop.run(started())

    def stop(self) -> None:
        async def stopped() -> None:
            await self.server.stop()
            await self.host.close()

        self.loop.run(stopped())

    def close(self) -> None:
        if not self.host.closed:
            self.stop()
        self.loop.close()
