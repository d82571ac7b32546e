"""How fast `verify` and `audit` are, against a plain sequential read of the same files with a CRC."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from google_crc32c import extend
from rich.table import Table

import logdb
from benchmarks.rounds import spread
from logdb.api.inspection import audit, verify

BATCH: Final = 1_000
OVERWRITES: Final = 2
VALUE_BYTES: Final = 100
CHUNK_BYTES: Final = 1 << 20
ROUNDS: Final = 3


class Measured(NamedTuple):
    """Bytes of log and map, rows written, seconds of each round, and the most memory of any worker, in bytes."""

    log_bytes: int
    map_bytes: int
    rows: int
    plain_log: list[float]
    plain: list[float]
    log_only: list[float]
    verify: list[float]
    audit: list[float]
    peak_bytes: int


def measure(root: Path, keys: int, rounds: int, progress: Callable[[str], None]) -> Measured:
    """Write the keys and overwrite all of them in random order, then check it all in turns."""
    path = root / "db"
    progress(f"writing {keys:,} keys {1 + OVERWRITES} times")
    rng = random.Random(20130101)
    with logdb.open(path) as db:
        for _ in range(1 + OVERWRITES):
            order = rng.sample(range(keys), keys)
            for first in range(0, keys, BATCH):
                db.multi_put({b"key%012d" % key: rng.randbytes(VALUE_BYTES) for key in order[first : first + BATCH]})
        db.checkpoint()
    logs, maps = files_of(path / "log"), files_of(path / "map")
    found = Measured(size_of(logs), size_of(maps), (1 + OVERWRITES) * keys, [], [], [], [], [], 0)
    for turn in range(rounds):
        progress(f"round {turn + 1} of {rounds}")
        found.plain_log.append(took(lambda: read(logs)))
        found.plain.append(took(lambda: read(logs + maps)))
        (path / "map").rename(root / "map")
        found.log_only.append(took(lambda: verify(path)))
        (root / "map").rename(path / "map")
        found.verify.append(took(lambda: verify(path)))
        found.audit.append(took(lambda: audit(path)))
    return found._replace(peak_bytes=1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def files_of(directory: Path) -> list[Path]:
    return sorted(file for file in directory.iterdir() if file.is_file())


def size_of(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def read(files: list[Path]) -> int:
    """The CRC32C of all bytes."""
    crc = 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                crc = extend(crc, chunk)
    return crc


def took(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def table(found: Measured) -> Table:
    """Medians."""
    shown = Table(
        title=f"{found.rows:,} rows, {found.log_bytes / 1e6:,.0f} MB of log, {found.map_bytes / 1e6:,.0f} MB of map; "
        f"no worker took more than {found.peak_bytes >> 20} MiB"
    )
    for heading in ("", "seconds", "MB/s", "rows/s", "share of a plain read's speed"):
        shown.add_column(heading, justify="left" if not heading else "right")
    both = found.log_bytes + found.map_bytes
    for name, size, seconds, plain in (
        ("plain read and CRC of the log", found.log_bytes, found.plain_log, found.plain_log),
        ("plain read and CRC of log and map", both, found.plain, found.plain),
        ("verify of the log alone", found.log_bytes, found.log_only, found.plain_log),
        ("verify", both, found.verify, found.plain),
        ("audit", found.log_bytes, found.audit, found.plain_log),
    ):
        median = spread(seconds).median
        share = spread([other / own for own, other in zip(seconds, plain, strict=True)]).median
        rate = f"{found.rows / median:,.0f}"
        shown.add_row(name, f"{median:.2f}", f"{size / median / 1e6:,.0f}", rate, f"{share:.2f}")
    return shown
