"""A process with a replica of the journal: it prints `ready`, and a line for each command that has returned.

python -m tests.smr.replica_process ADDRESS FIRST END
"""

from __future__ import annotations

import sys

from logdb import smr
from tests.smr.machines import Journal


def main(address: str, first: int, end: int) -> None:
    """Execute the commands from `first` to `end` - 1. Each has an id that is printed before it is executed."""
    with smr.connect(address, Journal(), snapshot_bytes=500) as replica:
        for number in range(first, end):
            command_id = replica.reserve()
            print("reserved", number, command_id, flush=True)
            print("done", number, int(replica.execute(b"%d" % number, command_id=command_id)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
