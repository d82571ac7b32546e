"""What the certificate of a server says: which server of which cluster it is."""

from __future__ import annotations

from typing import Final, NamedTuple

SCHEME: Final = "logdb://"


class Identity(NamedTuple):
    """Which server it is."""

    cluster: str
    role: str
    name: str

    @property
    def uri(self) -> str:
        """As it stands in the certificate."""
        return f"{SCHEME}{self.cluster}/{self.role}/{self.name}"
