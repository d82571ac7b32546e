"""A program whose disk is as slow as a file says: `python -m tests.harness.slow_disk FILE MODULE ARGUMENTS...`.

The file holds the seconds that each flush waits before it writes anything ("inf": until the file says something else);
without it the disk is as it is. Who is killed meanwhile loses what was ordered and not written.
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
    """Have every flush, those under way included, wait so long; 0: not at all."""
    new = file.with_suffix(".new")
    new.write_text(str(seconds))
    os.replace(new, file)


def delay(file: Path) -> float:
    """What `set_delay` has set last."""
    with suppress(FileNotFoundError):
        return float(file.read_text())
    return 0.0


@planting.planted(SegmentStore, "flush", PLANTS)
def wait_before_writing(right: Any, store: SegmentStore, taken: Any) -> None:
    """As long as the file says."""
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
