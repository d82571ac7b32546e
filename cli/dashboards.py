"""The dashboard of a server and of a cluster: what `logdb serve --dashboard` and `logdb cluster dashboard` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from logdb.system.logging_setup import log_to_stderr

from .failing import FAILED, BadInput, Failure

if TYPE_CHECKING:
    from logdb.dashboard.visitors import Source
    from logdb.embedded import EmbeddedBackend
    from logdb.security.authenticator import Authenticator, Security

DEFAULT: Final = "127.0.0.1:7480"


def check_installed() -> None:
    """Raises Failure without the extra."""
    try:
        import logdb.dashboard.hosting  # noqa: F401 - it imports all that is needed
    except ImportError as error:
        missing = f"a dashboard needs more than is installed ({error.name}): pip install 'logdb[dashboard]'"
        raise Failure(missing, FAILED) from error


@contextmanager
def pages(source: Source, listen: str, security: Security) -> Iterator[None]:
    """Serve the dashboard, and print where. Raises Failure, Unavailable."""
    from logdb.dashboard.hosting import served

    try:
        with served(source, listen, security) as url:
            click.echo(f"dashboard: {url}")
            yield
    except ValueError as error:
        raise BadInput(str(error)) from error


def server_pages(
    authenticator: Authenticator, listen: str, security: Security
) -> Callable[[EmbeddedBackend], AbstractContextManager[None]]:
    """The dashboard of a server that runs in this process. Raises Failure."""
    check_installed()
    from logdb.dashboard.visitors import ServerSource

    return lambda backend: pages(ServerSource(backend, authenticator), listen, security)


def cluster_pages(
    endpoints: str, path: Path | None, files: dict[str, Path | None], listen: str, **https: Path | None
) -> None:
    """Serve the dashboard of a cluster until SIGTERM or Ctrl-C. `path`: its directory, if it is on this machine;
    `files`: the credentials of the dashboard; `https`: the files of `Security`. Raises Failure, Unavailable."""
    check_installed()
    from logdb.dashboard.visitors import ClusterSource
    from logdb.security.authenticator import Security
    from logdb.system.addresses import is_loopback
    from logdb.system.event_loop import run
    from logdb.system.signals import stop_requests

    security = Security(**https)
    try:
        is_local = is_loopback(listen) or security.ca is not None
        if not is_loopback(listen) and security.certificate is None:
            raise ValueError(f"{listen} can be reached from other machines: name a certificate (--https-certificate)")
        if security.certificate is None and (security.ca is not None or security.key is not None):
            raise ValueError("name the certificate of the pages, too (--https-certificate)")
        if files["certificate"] is not None and security.ca is None:
            raise ValueError("every visitor would read with --certificate: require theirs, too (--https-ca)")
        source = ClusterSource(endpoints, path, files, is_local=is_local)
    except ValueError as error:
        raise BadInput(str(error)) from error

    async def until_stopped() -> None:
        with stop_requests() as stop_request, pages(source, listen, security):
            await stop_request.wait()

    log_to_stderr("dashboard")
    run(until_stopped())
