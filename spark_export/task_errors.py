"""Passes damage that a task finds to the driver of an export, as the same error.

Spark passes an error of a Python worker on as text in the middle of two stack traces. So the task that fails writes the
error into the plan's folder, and the driver reads it there.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from logdb.errors import Corruption
from spark_export.snapshot_source import SnapshotPlan

FILE: Final = "damage.json"


@contextlib.contextmanager
def task(plan: SnapshotPlan) -> Iterator[None]:
    """Run a block that reads the plan, as `SnapshotPlan.task`; report a Corruption that it raises."""
    try:
        with plan.task():
            yield
    except Corruption as error:
        folder = Path(plan.folder)
        staging = folder / f"{FILE}.{os.getpid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            staging.write_text(json.dumps([error.path, error.offset, error.what]))
            os.replace(staging, folder / FILE)
        raise


def reported_damage(plan: SnapshotPlan) -> Corruption | None:
    """The damage that a task of the plan has reported."""
    try:
        return Corruption(*json.loads((Path(plan.folder) / FILE).read_bytes()))
    except FileNotFoundError:
        return None
