"""The operations of clients and their results, as JSON lines: the evidence of a run on real processes.

One line when an operation begins, one when it ends, all with `process` (a worker, which has one operation at a time),
`time` (ns of the machine's monotonic clock, the same for all its processes) and `type`:

    invoke   it begins; `f`: its kind, `ops`: its intended reads and writes
    plan     it has read, and will write this
    ok       it is done, at `version`; `ops`: with the values read
    fail     nothing of it was or ever will be applied
    info     unknown; an operation that was killed with its client has no second line at all

`ops`: some of ["r", key, value or null], ["w", key, value or null], ["append", key, element], ["cas", key, old or null,
new or null] and ["scan", start, end, {key: value}]. A write of null is a deletion. A list is kept as its elements with
commas between them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Ops = list[list[Any]]


class Recorder:
    """Writes the history of one client process. Each line is in the file when its call returns."""

    def __init__(self, path: Path, client: str) -> None:
        self.client = client
        self._file = path.open("ab", buffering=0)

    def write(self, process: str, type_: str, **fields: Any) -> None:
        """Write one line, without fields that are None or empty."""
        said = {name: value for name, value in fields.items() if value not in (None, "", 0)}
        line = {"process": f"{self.client}.{process}", "time": time.monotonic_ns(), "type": type_, **said}
        self._file.write(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class Entry:
    """One operation. `invoked`, `returned`: in ns; `returned` is None if the client got no result.

    `version`: of a commit its place in the log, of a read the version that it read, 0 if unknown. `snapshot`: the
    version of a transaction's reads. `session`: the newest version that its client had seen. `error`: the error of a
    failed operation, by field.
    """

    process: str
    f: str
    invoked: int
    returned: int | None = None
    status: str = "info"
    ops: Ops = field(default_factory=list)
    version: int = 0
    snapshot: int = 0
    session: int = 0
    txn: str = ""
    label: str = ""
    linearizable: bool = False
    error: dict[str, Any] = field(default_factory=dict)
    result: list[Any] | None = None

    @property
    def reads(self) -> dict[str, str | None]:
        """The first value that it read of each key."""
        found: dict[str, str | None] = {}
        for kind, key, *rest in self.ops:
            if kind == "r":
                found.setdefault(key, rest[0])
        return found

    @property
    def scans(self) -> dict[tuple[str, str | None], dict[str, str]]:
        """The ranges that it read."""
        return {(start, end): rows for kind, start, *rest in self.ops if kind == "scan" for end, rows in [rest]}

    @property
    def writes(self) -> dict[str, str | None]:
        """Its intended or completed writes; None for a deletion."""
        written: dict[str, str | None] = {}
        reads = self.reads
        for kind, key, *rest in self.ops:
            if kind == "append":
                before = written.get(key, reads.get(key))
                written[key] = f"{before},{rest[0]}" if before else rest[0]
            elif kind in ("w", "cas"):
                written[key] = rest[-1]
        return written


def elements_of(value: str | None) -> list[str]:
    """The elements of a list."""
    return value.split(",") if value else []


def load(paths: Iterable[Path]) -> list[Entry]:
    """The operations of all clients, in the order in which they began. Raises ValueError."""
    lines: list[dict[str, Any]] = []
    for path in paths:
        for line in path.read_bytes().split(b"\n")[:-1]:  # the rest is a write that was cut short
            lines.append(json.loads(line))
    return assemble(lines)


def assemble(lines: list[dict[str, Any]]) -> list[Entry]:
    """Operations of lines. Raises ValueError."""
    entries: list[Entry] = []
    open_: dict[str, Entry] = {}
    for line in sorted(lines, key=lambda line: line["time"]):
        line = dict(line)
        process, at, type_ = line.pop("process"), line.pop("time"), line.pop("type")
        if type_ == "invoke":
            if process in open_:
                raise ValueError(f"{process} begins {line} in the middle of {open_[process]}")
            open_[process] = Entry(process, line.pop("f"), at, **line)
            entries.append(open_[process])
        elif type_ == "plan":
            open_[process].ops = line["ops"]
        else:
            entry = open_.pop(process)
            entry.status, entry.returned = type_, at if type_ != "info" else None
            for name, value in line.items():
                setattr(entry, name, value)
    return entries
