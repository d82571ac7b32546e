"""Compaction of a map over runs, given up, carried on and killed at any step: the map, and what is rebuilt from the log
that a trim leaves, say what a dictionary of versions says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from logdb.log.contract import LogRecord, Record
from logdb.store import checkpoint as checkpoints
from logdb.store import relocating, runs
from logdb.store.key_map import KeyMap
from logdb.store.records import (
    COMMIT,
    COMPACTION,
    RELOCATION,
    VALUE,
    Commit,
    Place,
    Value,
    decode_commit,
    decode_relocation,
    digest,
    encode_commit,
)
from logdb.store.relocating import Copied, Relocator
from logdb.store.values import Values
from tests.store.test_runs import KEYS, Machine, Model


class TrimmedModel(Model):
    """A log whose values may be large, and whose prefix may be trimmed.

    `relocated_from`: the first copy of a compaction that has not ended, 0 if there is none.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.oldest = 1
        self.compacted_at = self.relocated_from = 0

    def read(self, gsn: int, shard: int) -> LogRecord:
        assert gsn >= self.oldest, f"record {gsn} is gone: the log begins with {self.oldest}"
        return self.log[gsn]

    def append(self, tag: int, payload: bytes) -> int:
        gsn = self.end + 1
        self.log[gsn] = LogRecord(gsn, 0, tag, payload)
        return gsn

    def commit(self, keys: list[bytes] | None = None) -> None:
        draw, found, writes = self.draw, dict[bytes, bytes | None](), dict[bytes, Value]()
        for key in keys or draw.sample(KEYS, draw.randrange(1, 8)):
            value = None if draw.random() < 0.3 else b"%d " % self.end * draw.choice((1, 30))
            found[key] = writes[key] = value
            if value is not None and draw.random() < 0.2:
                writes[key] = Place(self.append(VALUE, value), 0, len(value), digest(value))
        gsn = self.append(COMMIT, encode_commit(Commit(1, self.end + 1, writes)))
        for key, value in found.items():
            self.versions.setdefault(key, {})[gsn] = value

    def copied(self) -> list[Copied]:
        """The copies of unfinished compactions."""
        first = self.relocated_from or self.end + 1
        return sorted(
            Copied(key, version, gsn, value)
            for gsn in range(first, self.end + 1)
            if self.log[gsn].tag == RELOCATION
            for key, version, value in decode_relocation(self.log[gsn].payload)
        )


class CompactingMachine(Machine):
    """Compacts, too."""

    model: TrimmedModel

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(path, TrimmedModel(seed), inline=False)

    def apply(self, gsn: int) -> None:
        apply(self.map, self.model.log[gsn])

    def compact(self) -> None:
        """Compact to a random floor and reach; cancelled with some probability at each step."""
        model, draw = self.model, self.draw
        self.write()
        floor = draw.randrange(model.floor, self.checkpoint.covers + 1)
        reach = draw.randrange(model.oldest, max(min(floor, model.relocated_from or floor), model.oldest) + 1)
        while reach > model.oldest and {model.log[gsn].tag for gsn in (reach - 1, reach)} == {VALUE}:
            reach -= 1  # as the backend does: the commit record may come after the floor
        copied = model.copied()
        self.cancel_merging()
        relocator = Relocator(floor, reach, model.compacted_at, iter(copied), self.map.values)
        steps = self.checkpoint.relocate(relocator)
        self.merging = iter(())  # there is a file of one
        endurance = draw.choice((0.6, 0.8, 1))
        records = next(steps)
        while records is not None:
            if draw.random() >= endurance:
                steps.close()
                self.cancel_merging()
                return
            records = steps.send(self.append(records))
            if draw.random() < 0.3:
                self.commit()
            if draw.random() < 0.2:
                self.write()
        copies = model.copied()
        assert len(copies) - len(copied) == relocator.relocated
        small = [copy[:2] for copy in copies if isinstance(copy.value, bytes)]  # a large value precedes its copy
        assert len(set(small)) == len(small), "it was copied already"
        raised_at = model.append(COMPACTION, b"")
        self.write()
        model.floor, model.compacted_at, model.relocated_from = floor, raised_at, 0
        if draw.random() < 0.1:
            steps.close()  # fails just before the run is committed: the log is not trimmed
            self.cancel_merging()
            return
        with pytest.raises(StopIteration):
            steps.send(raised_at)
        self.cancel_merging()
        oldest = draw.randrange(model.oldest, max(reach, model.oldest) + 1)  # files are removed one by one
        model.oldest = oldest
        self.check_rebuilt()
        model.oldest = max(model.oldest, reach)
        self.check_rebuilt()

    def append(self, records: list[Record]) -> int:
        first = self.model.end + 1
        for record in records:
            gsn = self.model.append(*record)
            if record[0] == RELOCATION:
                self.model.relocated_from = self.model.relocated_from or gsn
        return first

    def check_rebuilt(self) -> None:
        model = self.model
        rebuilt = KeyMap(Values(model.read), None)
        for gsn in range(model.oldest, model.end + 1):
            apply(rebuilt, model.log[gsn])
        for at in {model.floor, model.end, self.draw.randrange(model.floor, model.end + 1)}:
            for key in KEYS:
                assert rebuilt.get(key, at) == model.value(key, at), (key, at)


def apply(key_map: KeyMap, record: LogRecord) -> None:
    if record.tag == COMMIT:
        key_map.apply(record.gsn, decode_commit(record.payload, record.gsn).writes)
    elif record.tag == RELOCATION:
        key_map.relocate(record.gsn, decode_relocation(record.payload))


STEPS = (
    ["commit"] * 8
    + ["write", "write_on", "write_in_order", "merge", "merge_on", "cancel_merging", "reopen", "kill"]
    + ["compact"] * 4
)


@pytest.mark.parametrize("seed", range(12))
def test_a_compacted_map_agrees_with_the_log(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(checkpoints, "SLICE_ROWS", draw.choice((1, 7, 1_000)))
    monkeypatch.setattr(runs, "CHUNK_ROWS", draw.choice((1, 3, 1_000)))
    monkeypatch.setattr(runs, "OLDER_ROWS", draw.choice((1, 500)))
    monkeypatch.setattr(relocating, "BATCH_BYTES", draw.choice((1, 100, 10_000)))
    machine = CompactingMachine(tmp_path / "map", seed)
    for _ in range(60):
        getattr(machine, machine.draw.choice(STEPS))()
        machine.check()
    machine.reopen()
    machine.check()
    machine.checkpoint.close()
