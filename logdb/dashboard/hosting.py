"""Serving the pages by HTTP or HTTPS, in a thread with an event loop of its own, until the block of `served` ends.

A connection has to begin a request every `REQUEST_S`, and each request has to end in that time: connections that
are silent or do not read their answers are closed. At most `CONNECTIONS` are open.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from asyncio import TimerHandle, Transport
from collections.abc import Iterator
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from logdb.dashboard.application import Dashboard
from logdb.dashboard.visitors import Source, Visitors
from logdb.security.authenticator import Security
from logdb.security.credentials import ca_of, pair_of
from logdb.system.addresses import cannot_listen, is_loopback, joined, parsed

CONNECTIONS: Final = 64
REQUEST_S: Final = 20.0
REQUEST_BYTES: Final = 96 << 10
"""The first line and the headers of a request: keys in an address may take four characters for a byte."""
DRAIN_S: Final = 3

logging.getLogger("uvicorn").setLevel(logging.WARNING)


class Connection(H11Protocol):
    """A connection that is closed when it makes no progress."""

    _timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin to watch."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(REQUEST_S, self._check, self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        """End watching."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _check(self, seen: Any) -> None:
        if self.cycle is seen:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(REQUEST_S, self._check, self.cycle)


@contextlib.contextmanager
def served(source: Source, listen: str, security: Security) -> Iterator[str]:
    """Serve the pages of `source` at an address (port 0: any that is free). `security`: certificate and key for HTTPS,
    and the CA of the certificates that visitors must present. Returns the URL. Raises Unavailable, ValueError."""
    files = _tls(security)
    listener = _listener(listen)
    try:
        host, port = parsed(listen)[0], listener.getsockname()[1]
        dashboard = Dashboard(Visitors(source), is_https=bool(files), port=port, is_loopback=is_loopback(listen))
        config = uvicorn.Config(
            dashboard.app,
            loop="asyncio",
            http=Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS,
            h11_max_incomplete_event_size=REQUEST_BYTES,
            timeout_graceful_shutdown=DRAIN_S,
            **files,
        )
        config.load()
    except BaseException:
        listener.close()
        raise
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), name="logdb-dashboard", daemon=True)
    thread.start()
    try:
        yield f"{'https' if files else 'http'}://{joined(host, port)}/"
    finally:
        server.should_exit = True
        thread.join()
        dashboard.close()


def _tls(security: Security) -> dict[str, Any]:
    """The arguments for uvicorn. Raises ValueError."""
    if security.certificate is None:
        return {}
    pair_of(security.certificate, security.key)
    files: dict[str, Any] = {"ssl_certfile": security.certificate, "ssl_keyfile": security.key}
    if security.ca is not None:
        ca_of(security.ca)
        files |= {"ssl_ca_certs": security.ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return files


def _listener(listen: str) -> socket.socket:
    """Raises Unavailable."""
    host, port = parsed(listen)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(target)
            listener.listen(CONNECTIONS)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise cannot_listen(listen, error) from error
    return listener
