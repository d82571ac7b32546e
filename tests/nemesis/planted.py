"""Bugs planted on purpose in real servers and clients, to check that the nemesis finds them.

    python -m tests.nemesis.planted NAME MODULE ARGUMENTS...

runs a module with the bug in it; `python -m tests.nemesis --planted NAME` does so with all servers and clients. The
simulator's bugs of the database are here too; the others are in parts that it does not simulate.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

from logdb.embedded import EmbeddedBackend
from logdb.store.records import Condition
from logdb.system.disk import Disk
from logdb.txn.speculation import SpeculatedWrites
from tests.harness import planting
from tests.sim.database.planted import PLANTED as SIMULATED

OWN: planting.Plants = {}


@planting.planted(Disk, "sync", OWN)
def acknowledge_before_the_sync(right: Any, disk: Disk, fd: int) -> None:
    """Written data is treated as durable."""


@planting.planted(SpeculatedWrites, "conditions", OWN)
def commit_speculated_reads_untested(right: Any, speculated: SpeculatedWrites, keys: Any) -> list[Condition]:
    """A transaction's speculated reads are not tested."""
    return []


@planting.planted(EmbeddedBackend, "__init__", OWN)
def accept_snapshots_of_an_earlier_incarnation(
    right: Any, host: EmbeddedBackend, *arguments: Any, **options: Any
) -> None:
    """A restarted server is treated as the one before."""
    right(host, *arguments, **options)
    host.incarnation = 1


PLANTED = {**OWN, **SIMULATED}


def main() -> None:
    _, name, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    with PLANTED[name]():
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
