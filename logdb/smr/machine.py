"""The machine that an application gives."""

from __future__ import annotations

from typing import Protocol


class Machine(Protocol):
    """A deterministic machine: its state and its results depend on the commands and their order, and on nothing else.

    No clock, random number, file, environment variable, or order of a set may influence them. Each replica has its own
    machine. One thread at a time calls it.
    """

    def apply(self, command: bytes, time_ns: int) -> bytes:
        """Carry out `command` and return its result.

        `time_ns`: when the log ordered the command, in ns since the epoch. It never decreases, and is the only time
        that a machine may use. An exception is the result of the command: its caller gets `CommandFailed`, and the
        machine continues on every replica with the state that it has then. So check a command before changing anything.
        MemoryError, OSError, RecursionError and exceptions outside `Exception` depend on the process: they stop the
        replica.
        """

    def snapshot(self) -> bytes:
        """The whole state. Commands wait meanwhile. Equal states have equal bytes, if `Replica.verify` is used."""

    def restore(self, snapshot: bytes) -> None:
        """Replace the whole state by that of `snapshot`."""
