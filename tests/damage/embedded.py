"""One damaged file in the directory of an embedded database."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from itertools import chain, combinations
from pathlib import Path

import logdb
from logdb.api.inspection import verify
from tests.harness.opening import open_database

KEYS = [b"key %03d" % number for number in range(120)]
LARGE = b"large " * 1_500
Contents = tuple[dict[bytes, bytes], dict[bytes, bytes], int]


class Served(Exception):
    """A wrong answer, or an error that does not name the cause."""


def make(path: Path) -> Path:
    """A database with a map of several runs with rows in all tables, and records after the checkpoint."""
    with open_database(path, segment_bytes=8_000) as db:
        for number in range(6):
            db.multi_put({key: b"%d of " % number + key * 3 for key in KEYS[number::6]})
        db.multi_put({b"large": LARGE, b"long" * 200: b"value"})
        db.pin("here")
        db.test_and_multi_put([logdb.absent(KEYS[0])], {KEYS[1]: b"never"})
        db.checkpoint()
        db.delete(KEYS[3])
        db.compact()
        for number in range(6):
            db.multi_put(dict.fromkeys(KEYS[number::10], b"%d" % number * 150))
            if number in (1, 3):
                db.checkpoint()
    return path


def contents(db: logdb.Database) -> Contents:
    newest = dict(db.scan())
    if {key: db.get(key) for key in newest} != newest or dict(db.multi_get(newest)) != newest:
        raise Served("a get and a scan answer differently")
    return newest, dict(db.at(db.pins["here"]).scan()), db.version


def damages(content: bytes, rng: random.Random, samples: int) -> Iterator[tuple[str, bytes]]:
    """(what was done to the file, its bytes)."""
    size = len(content)
    yield "emptied", b""
    yield "zeroed", bytes(size)
    yield "extended by zeros", content + bytes(5_000)
    yield "extended by garbage", content + rng.randbytes(5_000)
    yield "doubled", content + content
    yield "garbage", rng.randbytes(max(size, 100))
    for _ in range(samples if size else 0):
        at, bit = rng.randrange(size), rng.randrange(8)
        yield f"bit {bit} of byte {at} flipped", content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        cut = rng.randrange(size)
        yield f"cut off at {cut}", content[:cut]
        first, last = sorted(rng.choices(range(size + 1), k=2))
        yield f"zeroed from {first} to {last}", content[:first] + bytes(last - first) + content[last:]


def check(sound: Path, scratch: Path, seed: int, samples: int) -> Iterator[str]:
    """Damage each file in turn; yields the damage. Raises Served."""
    rng = random.Random(seed)
    with logdb.open(sound, read_only=True) as db:
        truth = contents(db)
    files = sorted(file.relative_to(sound) for file in sound.rglob("*") if file.is_file())
    of_map = sorted((sound / "map").iterdir())
    for file in files:
        content = (sound / file).read_bytes()
        kinds = chain(damages(content, rng, samples), exchanges(of_map) if sound / file in of_map else ())
        for what, damaged in kinds:
            if damaged == content:
                continue
            case = f"{file} {what}"
            yield case
            path = scratch / "db"
            shutil.copytree(sound, path)
            write(path / file, damaged)
            try:
                judge(path, file, truth, verified=rng.random() < 0.1)
            except Exception as error:
                raise Served(f"{case}: {type(error).__name__}: {error}") from error
            shutil.rmtree(path)
    for one, other in combinations([file.relative_to(sound) for file in of_map], 2):
        case = f"{one} and {other} swapped"
        yield case
        path = scratch / "db"
        shutil.copytree(sound, path)
        write(path / one, (sound / other).read_bytes())
        write(path / other, (sound / one).read_bytes())
        try:
            judge(path, one, truth, verified=True)
        except Exception as error:
            raise Served(f"{case}: {type(error).__name__}: {error}") from error
        shutil.rmtree(path)


def exchanges(files: list[Path]) -> Iterator[tuple[str, bytes | None]]:
    """(the damage, the file's bytes): a file of a map is removed, or replaced by another one."""
    yield "removed", None
    for other in files:
        yield f"replaced by {other.name}", other.read_bytes()


def write(file: Path, content: bytes | None) -> None:
    """Replace the file's content; None: remove the file."""
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)


def judge(path: Path, file: Path, truth: Contents, *, verified: bool) -> None:
    """Open it, to read and to write. Either all contents are there, or an error names the file (or the map as a whole).

    `verified`: run `verify`, too.
    """
    for read_only in (True, False):
        try:
            with logdb.open(path, read_only=read_only) as db:
                found = contents(db)
                if not read_only:
                    db.put(b"goes on", b"1")
                    if db.get(b"goes on") != b"1":
                        raise Served("it does not go on")
        except logdb.LogDBError as error:
            named = path / "map" if file.parts[0] == "map" else path / file
            if str(named) not in str(error):
                raise Served(f"the error does not name {named}: {error}") from error
            if not read_only and file.parts[0] == "map":
                raise Served(f"the map is not rebuilt: {error}") from error
        else:
            if found != truth:
                keys = f"{len(found[0])} keys of {len(truth[0])}"
                raise Served(f"a wrong answer: version {found[2]} of {truth[2]}, {keys}")
    if not verified:
        return
    try:
        verify(path)
    except logdb.LogDBError as error:
        if str(path / file.parts[0]) not in str(error):
            raise Served(f"verify does not name {file}: {error}") from error
