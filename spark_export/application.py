"""The Spark application on whose behalf this process plans, and whether an application has ended.

An application ends with its process, the JVM of the driver. One JVM may run several applications one after another, so
an application also has the id that Spark gives it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from logdb.embedded.external_leases import LeaseOwner, is_alive, process_owner


class Application(NamedTuple):
    """A Spark application: its process, and its id ("" if it is unknown)."""

    process: LeaseOwner
    id: str = ""

    def __str__(self) -> str:
        return "~".join((*map(str, self.process), re.sub(r"[^\w.-]", "_", self.id)))

    @classmethod
    def parse(cls, text: str) -> Application:
        """The reverse of `str`. Raises ValueError."""
        host, pid, started, id = text.split("~")
        return cls(LeaseOwner(host, int(pid), int(started)), id)

    def has_ended(self, current: Application) -> bool:
        """Return whether this application is known to have ended: its process has, or runs `current` instead."""
        if self.process == current.process and self.id and current.id:
            return self.id != current.id
        return is_alive(self.process) is False


def current_application(id: str = "") -> Application:
    """The application of this process: that of the JVM if this is a worker of Spark, else the process itself."""
    pid = os.getpid()
    while pid > 1:
        name, parent = _process(pid)
        if name == "java":
            return Application(process_owner(pid), id)
        pid = parent
    return this_process()


def this_process() -> Application:
    """An application that ends with this process."""
    return Application(process_owner(os.getpid()))


def _process(pid: int) -> tuple[str, int]:
    """(name, parent)"""
    head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return head.partition("(")[2], int(tail.split()[1])
