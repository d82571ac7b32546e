"""Whether tables of LMDB are as they were written: every page, and every row by its seal (`sealed.py`).

Run as a program, for a process of its own: liblmdb trusts its file, and one that is damaged may end whoever reads it
with a signal. It imports nothing of LogDB, so that it starts at once. It ends with 0 if all is well, with DAMAGED and
one line on stderr if not, or as the damage will have it: SIGXCPU, where that keeps it busy for ever.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Any, Final

import lmdb
from google_crc32c import extend, value

RESIDUE: Final = 0x48674BC7
"""The CRC32C of anything that is followed by its own."""
DAMAGED: Final = 3
LEAST_CPU_S: Final = 60
BYTES_PER_CPU_S: Final = 1 << 20
"""A hundredth of what it does, or less."""


class Broken(Exception):
    """What is wrong."""


def is_sealed(key: bytes, row: bytes) -> bool:
    """Whether a row is what was put there under that key."""
    return extend(value(key), row) == RESIDUE  # type: ignore[no-any-return]


def check(path: str) -> None:
    """Look at all of it. Raises Broken, lmdb.Error; or worse."""
    with lmdb.open(path, readonly=True, lock=False, max_dbs=64) as env, env.begin() as txn:
        for name in list(txn.cursor().iternext(values=False)):
            _check_rows(txn, name, env.open_db(name, txn=txn, create=False))
        with open(os.devnull, "wb") as nowhere:
            env.copyfd(nowhere.fileno(), compact=True, txn=txn)  # looks at each page, and that none is missing


def _check_rows(txn: Any, name: bytes, table: Any) -> None:
    rows, before = 0, b""
    with txn.cursor(db=table) as cursor:
        for key, row in cursor:
            if key <= before or extend(value(key), row) != RESIDUE:
                raise Broken(f"row {rows:,} of table {name.decode()} is not what was written")
            before = key
            rows += 1
    if rows != txn.stat(table)["entries"]:
        raise Broken(f"table {name.decode()} has {rows:,} rows, and should have {txn.stat(table)['entries']:,}")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    cpu_s = LEAST_CPU_S + os.path.getsize(os.path.join(sys.argv[1], "data.mdb")) // BYTES_PER_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
    try:
        check(sys.argv[1])
    except (Broken, lmdb.Error) as error:
        print(error, file=sys.stderr)
        sys.exit(DAMAGED)
