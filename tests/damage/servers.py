"""One damaged file in the directory of a server of a cluster: a founder, a storage server or a mapping server."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import logdb
from logdb.clients.background_loop import in_shared_loop
from logdb.node.storage import DamagedJournals
from tests.damage.embedded import Served, damages, exchanges, write
from tests.harness.clusters import Cluster

KEYS = [b"key %03d" % number for number in range(60)]
TIMEOUT_S = 60.0


def made(path: Path, engine: str) -> tuple[Cluster, dict[bytes, bytes]]:
    """A cluster that has stopped, and the contents of its database."""
    cluster = Cluster(path, engine=engine, replicas=3, storage=3, failures=1, mapping=2)  # one is a spare
    cluster.start(shards=1)
    with connected(cluster) as db:
        for number in range(4):
            db.multi_put({key: b"%d of " % number + key for key in KEYS[number::4]})
        db.put(b"large", b"large " * 2_000)
        held = dict(db.scan())
    in_shared_loop(cluster.end_all())
    return cluster, held


def connected(cluster: Cluster) -> logdb.Database:
    return logdb.connect([*cluster.ordering, *cluster.mapping], timeout=TIMEOUT_S)


def check(scratch: Path, seed: int, samples: int, engine: str) -> Iterator[str]:
    """Damage a file of one server of each role, `samples` times; yields the damage. Raises Served."""
    rng = random.Random(seed)
    cluster, held = made(scratch / "cluster", engine)
    names = sorted({cluster.founders[0], cluster.storage[0], "m1"})
    sound = scratch / "sound"
    shutil.copytree(cluster.path, sound)
    for name in names:
        files = sorted(file for file in (sound / name).rglob("*") if file.is_file() and file.name != "LOCK")
        for file in rng.choices(files, k=samples) if samples else files:
            content = file.read_bytes()
            below = [one for one in files if one.parent == file.parent and one.parent.name == "map"]
            kinds = chain(damages(content, rng, 3), exchanges(below) if file in below else ())
            what, damaged = rng.choice([one for one in kinds if one[1] != content])
            case = f"{file.relative_to(sound)} {what}"
            yield case
            shutil.rmtree(cluster.path)
            shutil.copytree(sound, cluster.path)
            write(cluster.path / file.relative_to(sound), damaged)
            try:
                judge(cluster, name, held)
            except Exception as error:
                raise Served(f"{case}: {type(error).__name__}: {error}") from error


def judge(cluster: Cluster, name: str, held: dict[bytes, bytes]) -> None:
    """Either the server names its directory and does not start, or all answers are as before; the others work without
    it."""
    try:
        for other in cluster.configs:
            if other != name:
                in_shared_loop(cluster.begin(other))
        try:
            in_shared_loop(cluster.begin(name))
        except (DamagedJournals, logdb.LogDBError) as error:
            if str(cluster.path / name) not in str(error):
                raise Served(f"the error does not name the directory of {name}: {error}") from error
        with connected(cluster) as db:
            if dict(db.scan()) != held or {key: db.get(key) for key in held} != held:
                raise Served("a wrong answer")
    finally:
        in_shared_loop(cluster.end_all())
