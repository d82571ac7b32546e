"""A server of a cluster that notes when its messages leave and come and when its journals are flushed.

`python -m benchmarks.traced DIRECTORY ROLE ... --name NAME` is `logdb serve ROLE ... --name NAME`; when it ends, its
notes are in DIRECTORY/NAME.notes, one in each line.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import runpy
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from logdb.log.paxos.messages import MemberEnvelope
from logdb.node.host import Host
from logdb.node.journals import FlushBatch, Journals
from logdb.transport.peers import Port

MAX_NOTES: Final = 200_000


def kind_of(message: Any) -> str:
    """Its name; of what a member of the ordering layer says, that of what it says."""
    return type(message.message if isinstance(message, MemberEnvelope) else message).__name__


class Note(NamedTuple):
    """Something happened at `at` (ns; the clock is the same for all processes of a machine).

    `what`: "sent" or "came", a message of `kind` to or from `peer`; "flushes" or "flushed".
    """

    at: int
    what: str
    peer: str = ""
    kind: str = ""


@contextlib.contextmanager
def noted() -> Iterator[deque[Note]]:
    """The notes of this process, as they are taken."""
    notes: deque[Note] = deque(maxlen=MAX_NOTES)
    send, receive, flush = Port.send, Host.receive, Journals.flush
    clock = time.monotonic_ns

    def noted_send(self: Port, to: str, message: Any) -> None:
        notes.append(Note(clock(), "sent", to, kind_of(message)))
        send(self, to, message)

    def noted_receive(self: Host, sender: str, messages: Sequence[Any]) -> None:
        now = clock()
        notes.extend([Note(now, "came", sender, kind_of(message)) for message in messages])
        receive(self, sender, messages)

    def noted_flush(self: Journals, taken: FlushBatch) -> None:
        notes.append(Note(clock(), "flushes"))
        flush(self, taken)
        notes.append(Note(clock(), "flushed"))

    Port.send, Host.receive, Journals.flush = noted_send, noted_receive, noted_flush  # type: ignore[method-assign]
    try:
        yield notes
    finally:
        Port.send, Host.receive, Journals.flush = send, receive, flush  # type: ignore[method-assign]


def read(path: Path) -> list[Note]:
    """The notes of a server."""
    return [Note(*json.loads(line)) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    directory = sys.argv[1]
    sys.argv[1] = "serve"
    taking = noted()
    notes = taking.__enter__()
    path = Path(directory, f"{sys.argv[-1]}.notes")
    atexit.register(lambda: path.write_text("".join([json.dumps(note) + "\n" for note in notes])))
    runpy.run_module("logdb_cli", run_name="__main__")
