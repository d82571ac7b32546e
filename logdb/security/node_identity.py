"""The identity of a server in its certificate."""

from __future__ import annotations

from typing import Final, NamedTuple

SCHEME: Final = "logdb://"


class Identity(NamedTuple):
    """A server of a cluster."""

    cluster: str
    role: str
    name: str

    @property
    def uri(self) -> str:
        """The URI in the certificate."""
        return f"{SCHEME}{self.cluster}/{self.role}/{self.name}"
