"""The `logdb` command: thin, prints what the library returns."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The entry point. Ctrl-C while the program is still being loaded ends it as quietly as later."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are exceptions, printed in one line
    try:
        from .commands import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli()
