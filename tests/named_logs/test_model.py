"""A named log against a Python list, and keys that expire against a dictionary: random transactions, crashes,
compactions, retention and consumers. The model has the time of each commit, and knows nothing of marks."""

from __future__ import annotations

import shutil
import tempfile
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import logdb
from logdb.embedded import EmbeddedBackend
from logdb.named_logs import Entry, Position
from logdb.named_logs.layout import stored
from logdb.retention.sweep import Sweeper, answer_to
from tests.harness.clocks import Clock
from tests.harness.opening import host_of

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
LARGE = b"large" * 1_000
KEYS = [b"a", b"b", b"c"]
NAMES = ["orders", "ord"]
values = st.one_of(st.binary(max_size=20), st.sampled_from([b"x" * 70, LARGE]))
names = st.sampled_from(NAMES)
ids = st.one_of(st.none(), st.integers(0, 3))
partition_keys = st.one_of(st.none(), st.sampled_from([b"", b"ada"]))
ttls = st.one_of(st.none(), st.sampled_from([1.0, 7.5, 60.0]))
retentions = st.one_of(
    st.none(),
    st.builds(logdb.Retention, st.sampled_from([2.0, 30.0])),
    st.builds(logdb.Retention, st.sampled_from([None, 5.0, 30.0]), st.sampled_from([30, 300, 6_000])),
)


class Timed(NamedTuple):
    """An entry, or a value, and the time by which it was written. `ttl_ns`: of a key that expires."""

    content: Entry | bytes
    time_ns: int
    ttl_ns: int | None = None


class LogMachine(RuleBasedStateMachine):
    """Every rule does one thing to the database and to the model, and compares."""

    @initialize()
    def create(self) -> None:
        self.folder, self.clock = Path(tempfile.mkdtemp()), Clock(START)
        self.entries: dict[str, list[Timed]] = {name: [] for name in NAMES}
        self.last_ids: dict[str, int] = {}
        self.gone_ids: dict[str, int] = {}
        self.retentions: dict[str, logdb.Retention | None] = dict.fromkeys(NAMES)
        self.cursors: dict[str, Position] = {}
        self.keys: dict[bytes, Timed] = {}
        self.db = self.open()

    def open(self) -> logdb.Database:
        options = {"segment_bytes": 6_000, "clock": self.clock}
        host = EmbeddedBackend.open(self.folder / "db", read_only=False, create=True, log_options=options)
        return logdb.Database(host)

    # ---- writing

    def appended(self, name: str, positions: list[Position], *written: tuple[bytes, int | None, bytes | None]) -> None:
        for position, (value, txn_id, key) in zip(positions, written, strict=True):
            self.entries[name].append(Timed(Entry(position, value, txn_id, key), self.clock.now))
            self.last_ids |= {} if txn_id is None else {name: txn_id}

    def is_refused(self, name: str, txn_id: int | None) -> bool:
        return txn_id is not None and txn_id < self.last_ids.get(name, 0)

    @rule(name=names, value=values, txn_id=ids, key=partition_keys)
    def append(self, name: str, value: bytes, txn_id: int | None, key: bytes | None) -> None:
        try:
            position = self.db.log(name).append(value, txn_id=txn_id, key=key)
        except ValueError:
            assert self.is_refused(name, txn_id)
        else:
            assert not self.is_refused(name, txn_id)
            self.appended(name, [position], (value, txn_id, key))

    @rule(several=st.lists(st.tuples(names, values), min_size=1, max_size=6), key=st.sampled_from(KEYS), ttl=ttls)
    def transaction(self, several: list[tuple[str, bytes]], key: bytes, ttl: float | None) -> None:
        with self.db.transaction() as txn:
            txn.put(key, b"v", ttl=ttl)
            for name, value in several:
                txn.log(name).append(value)
        self.keys[key] = Timed(b"v", self.clock.now, None if ttl is None else int(ttl * SECOND))
        for name in NAMES:
            mine = [(value, None, None) for to, value in several if to == name]
            self.appended(name, txn.log(name).appended, *mine)

    @rule(name=names, value=values, key=st.sampled_from(KEYS))
    def abort(self, name: str, value: bytes, key: bytes) -> None:
        try:
            with self.db.transaction() as txn:
                txn.log(name).append(value)
                txn.put(key, value, ttl=1)
                raise KeyError
        except KeyError:
            pass

    @rule(key=st.sampled_from(KEYS), value=st.binary(max_size=3), ttl=ttls)
    def put(self, key: bytes, value: bytes, ttl: float | None) -> None:
        self.db.put(key, value, ttl=ttl)
        self.keys[key] = Timed(value, self.clock.now, None if ttl is None else int(ttl * SECOND))

    @rule(key=st.sampled_from(KEYS))
    def delete_key(self, key: bytes) -> None:
        self.db.delete(key)
        self.keys.pop(key, None)

    @rule(name=names, part=st.floats(0, 1))
    def truncate(self, name: str, part: float) -> None:
        entries = self.entries[name]
        count = round(part * len(entries))
        if count < len(entries):
            self.db.log(name).truncate(before=position_of(entries[count]))
            self.drop(name, count)

    def drop(self, name: str, count: int) -> None:
        """Drop the first entries. The last id among them is still found: by the first entry that is left."""
        for timed in self.entries[name][:count]:
            self.gone_ids |= {name: id_of(timed.content)} if id_of(timed.content) >= 0 else {}
        del self.entries[name][:count]

    @rule(name=names)
    def delete_log(self, name: str) -> None:
        self.db.log(name).delete()
        self.entries[name].clear()
        self.last_ids.pop(name, None)
        self.gone_ids.pop(name, None)
        self.cursors.pop(name, None)
        self.retentions[name] = None

    # ---- time and retention

    @rule(seconds=st.sampled_from([0.001, 1, 3, 20, 100]))
    def wait(self, seconds: float) -> None:
        self.clock.now += int(seconds * SECOND)

    @rule(name=names, retention=retentions)
    def set_retention(self, name: str, retention: logdb.Retention | None) -> None:
        self.db.log(name).set_retention(retention)
        self.retentions[name] = retention

    @rule()
    def sweep(self) -> None:
        self.db.sweep()
        self.has_swept()

    @rule(requests=st.integers(1, 40))
    def interrupted_sweep(self, requests: int) -> None:
        steps, answer, host = Sweeper().sweep(0), None, host_of(self.db)
        try:
            for _ in range(requests):
                answer = answer_to(host, steps.send(answer))
        except StopIteration:
            pass
        self.has_swept()

    @rule()
    def sweep_for_long(self) -> None:
        """After its age and a 32nd of it everything is gone, whatever was marked before."""
        before = {key for key, timed in self.keys.items() if timed.ttl_ns is not None}
        self.sweep()
        marked = {name: len(entries) for name, entries in self.entries.items()}
        for _ in range(2):
            self.clock.now += 64 * SECOND
            self.sweep()
        assert before.isdisjoint(self.keys)
        for name, retention in self.retentions.items():
            if retention is not None and retention.age_s is not None and marked[name]:
                assert self.entries[name] == []

    def has_swept(self) -> None:
        """Take the deletions into the model. Nothing is deleted early."""
        now = self.clock.now
        found = self.db.multi_get(KEYS)
        for key in self.keys.keys() - found.keys():
            _, time_ns, ttl_ns = self.keys.pop(key)
            assert ttl_ns is not None
            assert time_ns + ttl_ns <= now
        for name, entries in self.entries.items():
            left, retention = len(self.db.log(name)), self.retentions[name]
            gone = entries[: len(entries) - left]
            self.drop(name, len(gone))
            kept = sum(map(size_of, entries))
            for timed in gone:
                assert retention is not None
                is_old = retention.age_s is not None and timed.time_ns + retention.age_s * SECOND <= now
                assert is_old or (retention.size_bytes is not None and kept >= retention.size_bytes)

    # ---- consuming, compacting, crashing

    @rule(name=names, limit=st.integers(1, 5), batch=st.integers(1, 3))
    def consume(self, name: str, limit: int, batch: int) -> None:
        seen: list[Entry] = []
        cursor = self.cursors.get(name, Position(0, 0))
        due = [timed.content for timed in self.entries[name] if position_of(timed) > cursor]
        self.db.log(name).consumer("reader").run(
            lambda txn, entry: seen.append(entry), limit=limit, batch=batch, until_end=True
        )
        assert seen == list(islice(due, limit))
        if seen:
            self.cursors[name] = seen[-1].position

    @rule()
    def compact(self) -> None:
        self.db.compact()

    @rule(crashes=st.booleans())
    def reopen(self, crashes: bool) -> None:
        if crashes:  # what a kill leaves: the files as they are
            shutil.copytree(self.folder / "db", self.folder / "copy")
        self.db.close()
        if crashes:
            shutil.rmtree(self.folder / "db")
            (self.folder / "copy").rename(self.folder / "db")
        self.db = self.open()

    # ---- comparing

    @invariant()
    def is_the_model(self) -> None:
        assert self.db.multi_get(KEYS) == {key: timed.content for key, timed in self.keys.items()}
        for name, entries in self.entries.items():
            log = self.db.log(name)
            expected = [timed.content for timed in entries]
            assert list(log.read()) == expected
            assert list(log.read(reverse=True, limit=2)) == expected[::-1][:2]
            assert log.retention == self.retentions[name]
            for txn_id in range(4):
                first = next((at for at, one in enumerate(expected) if id_of(one) >= txn_id), len(expected))
                first = 0 if self.gone_ids.get(name, -1) >= txn_id else first
                found = [entry.position for entry in log.read(from_txn_id=txn_id)]
                assert found == [one.position for one in expected[first:]]  # type: ignore[union-attr]

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
            shutil.rmtree(self.folder)


def position_of(timed: Timed) -> Position:
    assert isinstance(timed.content, Entry)
    return timed.content.position


def size_of(timed: Timed) -> int:
    assert isinstance(timed.content, Entry)
    return len(stored(timed.content.value, timed.content.txn_id, timed.content.key))


def id_of(entry: Entry | bytes) -> int:
    assert isinstance(entry, Entry)
    return -1 if entry.txn_id is None else entry.txn_id


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
