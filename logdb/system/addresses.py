"""Network addresses: "HOST:PORT" as people write it, and listening there. A server that shares its process with others,
on a node, has the address "HOST:PORT/ROLE"; the part before the slash is the node's."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Final

from logdb.errors import Unavailable

DEFAULT_ADDRESS: Final = "127.0.0.1:7400"


def parsed(address: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT or [IPV6]:PORT. Raises ValueError."""
    parts = re.fullmatch(r"\[([^\]]+)\]:(\d{1,5})|([^:\s/,]+):(\d{1,5})", address)
    if parts is None or int(parts[2] or parts[4]) > 65_535:
        raise ValueError(f"{address!r} is not an address such as {DEFAULT_ADDRESS}")
    return parts[1] or parts[3], int(parts[2] or parts[4])


def joined(host: str, port: int) -> str:
    """The address of a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def location_of(address: str) -> str:
    """Where to connect to reach a server: the address of its node."""
    return address.partition("/")[0]


def role_in(address: str) -> str:
    """The role of a server on a node, "" for a server with an address of its own."""
    return address.partition("/")[2]


def endpoints_of(endpoints: str | Iterable[str]) -> list[str]:
    """The addresses of "HOST:PORT,HOST:PORT" or of a list, without repetitions. Raises TypeError, ValueError."""
    if isinstance(endpoints, str):
        endpoints = endpoints.split(",")
    endpoints = list(endpoints) if isinstance(endpoints, Iterable) else [endpoints]
    for endpoint in endpoints:
        if not isinstance(endpoint, str):
            raise TypeError(f'endpoints must be a str such as "{DEFAULT_ADDRESS}" or a list of these, not {endpoint!r}')
    found = list(dict.fromkeys(endpoint.strip() for endpoint in endpoints))
    for endpoint in found:
        if parsed(endpoint)[1] == 0:
            raise ValueError(f"{endpoint!r} has no port")
    if not found:
        raise ValueError("no address is given")
    return found


def is_loopback(address: str) -> bool:
    """Whether only this machine can connect to the address. Raises ValueError."""
    host, _ = parsed(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_free(address: str) -> None:
    """Try to listen at the address, to report the system's own reason if it fails: gRPC prints a stack trace instead.
    Raises Unavailable."""
    host, port = parsed(address)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
            probe.listen(1)
    except OSError as error:
        raise cannot_listen(address, error) from error


def cannot_listen(address: str, error: OSError | RuntimeError) -> Unavailable:
    """The error to raise when listening at the address has failed."""
    return Unavailable(f"cannot listen at {address}: {getattr(error, 'strerror', None) or error}")
