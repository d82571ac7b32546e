"""Rights of clients: the file of the holders of tokens and certificates, with the right of each.

    [ada]
    right = "write"          # "read"; "write", which includes it; "admin", which is everything
    token = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

    [grafana]                # without a token: the client whose certificate has this common name
    right = "read"

A token is 32 random bytes, so its plain SHA-256 does not reveal it. The file is read again when it has changed, and the
new rights also hold for open streams. `logdb token` adds an entry.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from logdb.log.engine import Right

LOOK_S: Final = 1.0
"""Minimum time between two checks whether the file has changed."""
NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
_RIGHTS: Final = '"read", "write" or "admin"'

logger = logging.getLogger("logdb.security")


class _Holder(NamedTuple):
    right: Right
    token: bytes


def hashed(token: str) -> str:
    """The hash of a token, as the file has it."""
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


class AccessFile:
    """The file, as it was when it was last valid. Raises ValueError if it is invalid at first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state = self._seen()
        self._holders = read(path)
        self._looked = time.monotonic()

    def holder(self, token: str) -> str | None:
        """The holder of a token, None for an unknown token. Takes the same time for every token."""
        self._look()
        shown, found = hashed(token).encode(), None
        for name, holder in self._holders.items():
            if hmac.compare_digest(holder.token, shown):
                found = name
        return found

    def right(self, name: str, token_hash: str) -> Right:
        """The current right of `name`. `token_hash`: of the token that authenticated it, "" for a certificate. A
        certificate has no right if the file requires a token, nor has a token that the file has replaced."""
        self._look()
        holder = self._holders.get(name)
        return holder.right if holder is not None and holder.token.decode() == token_hash else Right.NONE

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        state = self._seen()
        if state == self._state:
            return
        self._state = state
        try:
            self._holders = read(self.path)
        except ValueError as error:
            logger.error("the tokens file is invalid; its earlier version stays in force", extra={"why": str(error)})
        else:
            logger.info("tokens file read again", extra={"path": self.path, "holders": len(self._holders)})

    def _seen(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def read(path: Path) -> dict[str, _Holder]:
    """The holders in the file. Raises ValueError, which names what is wrong."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    holders = {name: _holder(path, name, table) for name, table in tables.items()}
    tokens = [holder.token for holder in holders.values() if holder.token]
    if len(set(tokens)) < len(tokens):
        raise ValueError(f"{path}: two holders have the same token")
    return holders


def _holder(path: Path, name: str, table: Any) -> _Holder:
    if not isinstance(table, Mapping) or not NAME.fullmatch(name):
        raise ValueError(f"{path}: {name!r} must be a table [NAME], the name of letters, digits and _.@-")
    unknown = set(table) - {"right", "token"}
    if unknown:
        raise ValueError(f"{path}: {min(unknown)} is not a key of [{name}]; its keys are right and token")
    token = table.get("token", "")
    if token and not (isinstance(token, str) and _HASH.fullmatch(token)):
        raise ValueError(f'{path}: the token of [{name}] must be "sha256:" with 64 hexadecimal digits, not the token')
    return _Holder(right_of(table.get("right"), f"{path}: the right of [{name}]"), token.encode())


def right_of(text: Any, subject: str) -> Right:
    """Raises ValueError."""
    rights = {right.label: right for right in Right if right}
    if text not in rights:
        raise ValueError(f"{subject} must be {_RIGHTS}; it is {text!r}")
    return rights[text]


def add(path: Path, name: str, right: Right) -> str:
    """Add a holder to the file, which is created if it does not exist. Returns the token, which the file does not have.

    Raises ValueError, OSError.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} must be a name of letters, digits and _.@-")
    if path.exists() and name in read(path):
        raise ValueError(f"{path} has a table [{name}] already: remove it first")
    token = secrets.token_urlsafe(32)
    entry = f'["{name}"]\nright = "{right.label}"\ntoken = "{hashed(token)}"\n'
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(fd, "a") as file:
        file.write(("\n" if file.tell() else "") + entry)
    return token
