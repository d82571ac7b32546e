"""How damage found in a task reaches the export as the error that it is, not as the text of a Java exception.

Spark carries an error of a Python worker to the driver as text in the middle of two stack traces. The task that fails
leaves the error itself in the plan's folder, where the driver of an export finds it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from logdb.errors import Corruption
from spark_export.decoding import AnyPlan, folder_of
from spark_export.remote import RemotePlan
from spark_export.scratch import used

FILE: Final = "damage.json"


@contextlib.contextmanager
def task(plan: AnyPlan) -> Iterator[None]:
    """What is done inside needs the plan, whose folders are kept and whose servers hold its version; a Corruption that
    is raised inside is left in the plan's folder."""
    folder = Path(plan.folder)
    try:
        with used(folder_of(plan)), plan.held() if isinstance(plan, RemotePlan) else contextlib.nullcontext():
            yield
    except Corruption as error:
        staging = folder / f"{FILE}.{os.getpid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            staging.write_text(json.dumps([error.path, error.offset, error.what]))
            os.replace(staging, folder / FILE)
        raise


def reported(folder: Path) -> Corruption | None:
    """The damage that a task has found."""
    try:
        return Corruption(*json.loads((folder / FILE).read_bytes()))
    except FileNotFoundError:
        return None
