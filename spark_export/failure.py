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

FILE: Final = "damage.json"


@contextlib.contextmanager
def reporting(folder: Path) -> Iterator[None]:
    """Leaves a Corruption that is raised inside in `folder`."""
    try:
        yield
    except Corruption as error:
        staging = folder / f"{FILE}.{os.getpid()}"
        with contextlib.suppress(OSError):
            staging.write_text(json.dumps([error.path, error.offset, error.what]))
            os.replace(staging, folder / FILE)
        raise


def reported(folder: Path) -> Corruption | None:
    """The damage that a task has found."""
    try:
        return Corruption(*json.loads((folder / FILE).read_bytes()))
    except FileNotFoundError:
        return None
