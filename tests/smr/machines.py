"""Machines for tests."""

from __future__ import annotations

import json


class Journal:
    """A list of all commands. The result of a command is its place; commands that begin with "-" are refused."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.refused = 0

    def apply(self, command: bytes, time_ns: int) -> bytes:
        text = command.decode()
        if text.startswith("-"):
            self.refused += 1
            raise ValueError(f"{text} is refused, the {self.refused}th")
        self.entries.append(text)
        return b"%d" % len(self.entries)

    def snapshot(self) -> bytes:
        return json.dumps([self.entries, self.refused]).encode()

    def restore(self, snapshot: bytes) -> None:
        self.entries, self.refused = json.loads(snapshot)
