"""Where servers listen: HOST:PORT, as people write it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

DEFAULT_ADDRESS: Final = "127.0.0.1:7400"


def parsed(address: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT or [IPV6]:PORT. Raises ValueError."""
    parts = re.fullmatch(r"\[([^\]]+)\]:(\d{1,5})|([^:\s/,]+):(\d{1,5})", address)
    if parts is None or int(parts[2] or parts[4]) > 65_535:
        raise ValueError(f"{address!r} is not an address such as {DEFAULT_ADDRESS}")
    return parts[1] or parts[3], int(parts[2] or parts[4])


def endpoints_of(endpoints: str | Iterable[str]) -> list[str]:
    """The addresses of "HOST:PORT,HOST:PORT" or of a list, each once. Raises TypeError, ValueError."""
    if isinstance(endpoints, str):
        endpoints = endpoints.split(",")
    found = list(dict.fromkeys(endpoint.strip() for endpoint in endpoints))
    for endpoint in found:
        if parsed(endpoint)[1] == 0:
            raise ValueError(f"{endpoint!r} has no port")
    if not found:
        raise ValueError("no address is given")
    return found


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach what listens there. Raises ValueError."""
    host, _ = parsed(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
