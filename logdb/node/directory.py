"""The directory of one server of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from logdb.errors import NotADatabase
from logdb.system.directories import Kind, identify, lock, make_identity, prepare

SERVER: Final = Kind("the directory of a LogDB server", "SERVER", 1)
FOUNDING: Final = Kind("what a LogDB server knows of its cluster", "FOUNDING", 1)


class ServerDirectory:
    """The directory of one server, locked. `fresh`: it was made by this process.

    SERVER      the identity: format version, an id, the server's role, name and cluster
    FOUNDING    the ordering layer that the server has met (`Hello.founding`), if it has met one
    LOCK        held by the process that runs the server
    journals/   what the core has persisted (`logdb/node/journals.py`)
    map/        of a mapping server instead: its checkpoint (`checkpoints.py`)
    cold/       of a mapping server, while it runs: maps of old versions (`cold_store.py`)
    """

    def __init__(self, path: Path, *, role: str, name: str, cluster: str) -> None:
        """Open the directory, or make it. Raises NotADatabase, Corruption, UnsupportedFormat, DatabaseInUse,
        Unavailable."""
        self.path, self.journals, self.map, self.cold = path, path / "journals", path / "map", path / "cold"
        self._server = {"cluster": cluster, "role": role, "name": name}
        prepare(path, SERVER, create=True)
        self._lock = lock(path)
        try:
            self.fresh = not (path / SERVER.identity).exists()
            if self.fresh:
                make_identity(path, SERVER, self._server)
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        self.id, found = identify(self.path, SERVER)
        if any(found.get(key) != value for key, value in self._server.items()):
            raise NotADatabase(f"{self.path} belongs to {_shown(found)}, not to {_shown(self._server)}")

    @property
    def founding(self) -> int:
        """The ordering layer that the server has met, 0 if it has met none. Raises Corruption, UnsupportedFormat."""
        if not (self.path / FOUNDING.identity).exists():
            return 0
        _, fields = identify(self.path, FOUNDING)
        return int(fields["founding"], 16)

    def keep_founding(self, founding: int) -> None:
        """Record the ordering layer that the server has met. Durable on return. Raises Unavailable."""
        make_identity(self.path, FOUNDING, {"founding": f"{founding:x}"})

    def renew(self) -> None:
        """Become the directory of a new server: the new id makes files of the old one that are left invalid."""
        make_identity(self.path, SERVER, self._server)
        self._check()

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()


def _shown(server: Mapping[str, Any]) -> str:
    return f"{server.get('role')} {server.get('name')} of cluster {server.get('cluster')}"
