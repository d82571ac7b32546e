"""The names of files that a manifest gives: a manifest may be forged, and a name must not lead out of its folder."""

from __future__ import annotations

import re
from typing import Final

_STEM: Final = re.compile("[A-Za-z0-9][A-Za-z0-9_-]*")


def check_file_name(name: str, suffix: str) -> None:
    """Raises ValueError unless `name` is that of a file in the folder of its manifest, with this suffix; TypeError."""
    if not name.endswith(suffix) or not _STEM.fullmatch(name.removesuffix(suffix)):
        raise ValueError(f"{name!r} is not the name of a file (*{suffix})")
