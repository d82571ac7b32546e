"""The log of a server: one line on stderr for each event, as `key=value` pairs.

    time=2026-11-21T13:05:07.123Z level=warning server=s1 event="peer not reached" peer=127.0.0.1:7401 why="..."

A healthy server under load logs nothing.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

_STANDARD: Final = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None)))
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/[],")


class Pairs(logging.Formatter):
    """A record as one line, with the fields of its `extra` at the end."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        pairs = {"time": time, "level": record.levelname.lower(), "server": self._server, "event": record.getMessage()}
        pairs |= {name: str(value) for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            pairs["error"] = self.formatException(record.exc_info)
        return " ".join(f"{name}={_quoted(value)}" for name, value in pairs.items())


def _quoted(value: str) -> str:
    return value if value and _PLAIN.issuperset(value) else json.dumps(value, ensure_ascii=False)


def log_to_stderr(server: str, level: int | str = logging.INFO) -> None:
    """Log what this process does, under the name of its server."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Pairs(server))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("logdb").setLevel(level)
