"""The `logdb` command: thin, prints what the library returns."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point. Ctrl-C while the program is still being loaded ends it as quietly as later."""
    try:
        from .commands import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli()
