"""A program with a slow disk: `python -m tests.harness.slow_disk FILE MODULE ARGUMENTS...`.

The file holds the seconds by which each flush is delayed ("inf": until the file changes); without the file nothing is
delayed. A process that is killed meanwhile loses records that were ordered and not written.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from logdb.log.segments import SegmentStore
from tests.harness import planting

PLANTS: planting.Plants = {}


def set_delay(file: Path, seconds: float) -> None:
    """Delay every flush, also those under way; 0: no delay."""
    new = file.with_suffix(".new")
    new.write_text(str(seconds))
    os.replace(new, file)


def delay(file: Path) -> float:
    """The delay of the last `set_delay`."""
    with suppress(FileNotFoundError):
        return float(file.read_text())
    return 0.0


@planting.planted(SegmentStore, "flush", PLANTS)
def wait_before_writing(right: Any, store: SegmentStore, taken: Any) -> None:
    """Wait as the file requires."""
    begun = time.monotonic()
    while time.monotonic() - begun < delay(FILE):
        time.sleep(0.001)
    right(store, taken)


if __name__ == "__main__":
    _, file, module, *arguments = sys.argv
    FILE = Path(file)
    sys.argv = [module, *arguments]
    with PLANTS["wait before writing"]():
        runpy.run_module(module, run_name="__main__", alter_sys=True)
