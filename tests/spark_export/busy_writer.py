"""Writes and compacts a database with small segments until its standard input ends: `python -m ... DIR`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from logdb import Database
from logdb.embedded import EmbeddedBackend
from logdb.log.segments import segment


def main() -> None:
    segment.ALLOCATE_BYTES = 1 << 14
    options = {"segment_bytes": 1 << 16}
    with Database(EmbeddedBackend.open(Path(sys.argv[1]), read_only=False, create=True, log_options=options)) as db:
        ended = threading.Event()

        def wait() -> None:
            sys.stdin.read()
            ended.set()

        threading.Thread(target=wait, daemon=True).start()
        number = 0
        while not ended.is_set():
            size = 5_000 if number % 50 == 0 else 100
            db.multi_put({b"k%02d" % at: b"%09d" % number * (size // 9) for at in range(40)})
            number += 1
            if number == 1:
                print("ready", flush=True)
            if number % 60 == 0:
                db.compact()


if __name__ == "__main__":
    main()
