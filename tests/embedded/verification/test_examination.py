"""The verification of decisions by partitions of the keys agrees with the log, and finds every wrong decision."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import logdb
from logdb.api.inspection import audit, verify
from logdb.embedded import EmbeddedBackend
from logdb.embedded.verification import examination, examination_tasks, spills
from logdb.embedded.verification.audit import audit_log
from logdb.errors import LogDBError
from logdb.store.records import Condition
from logdb.txn.validation import Reason
from tests.harness.opening import host_of

KEYS = [b"key %02d" % number for number in range(25)] + [b"long" * 200, b"0"]
LARGE = b"large " * 1_500
Decisions = dict[int, Reason]
Build = Callable[..., None]


@pytest.fixture(params=["in this process", "in processes"])
def spread(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide even a small log into many partitions; in this process, write their files in many pieces."""
    monkeypatch.setattr(spills, "PARTITION_BYTES", 4_000)
    monkeypatch.setattr(spills, "BUFFER_BYTES", 1_000)
    monkeypatch.setattr(examination_tasks, "ITEMS_AT_ONCE", 10)
    if request.param == "in processes":
        monkeypatch.setattr(examination, "SMALL_BYTES", 0)


def write_history(path: Path, seed: int, steps: int = 120, *, compacts: bool) -> Decisions:
    """Write records of all kinds. Returns the decision of each commit."""
    rng = random.Random(seed)
    host = EmbeddedBackend.open(path, read_only=False, create=True, log_options={"segment_bytes": 3_000})
    db, decisions = logdb.Database(host), Decisions()
    used = [host.new_txn_id()]

    def value() -> bytes | None:
        return rng.choice([None, b"", b"value %d" % rng.randrange(50), LARGE + b"%d" % rng.randrange(3)])

    def writes() -> dict[bytes, bytes | None]:
        return {key: value() for key in rng.sample(KEYS, rng.randint(1, 4))}

    def some_range() -> tuple[bytes, bytes | None]:
        first, last = sorted(rng.sample(KEYS, 2))
        return rng.choice([b"", first]), rng.choice([None, last])

    def condition() -> Condition:
        key = rng.choice(KEYS)
        held = db.get(key, b"nothing") if rng.random() < 0.7 else value() or b"other"
        makers = logdb.version_equals, logdb.version_less, logdb.version_greater
        makes = [
            lambda: logdb.equals(key, held),
            lambda: logdb.absent(key),
            lambda: logdb.exists(key),
            lambda: rng.choice(makers)(key, rng.randrange(host.version() + 1)),
        ]
        return rng.choice(makes)()

    for _ in range(steps):
        txn = used[-1] if rng.random() < 0.05 else host.new_txn_id()
        used.append(txn)
        snapshot = max(0, host.version() - rng.choice([0, 0, 1, 5, 40]))
        kind = rng.randrange(10)
        if kind < 3:
            gsn, verdict = host.commits.submit(writes(), txn_id=txn)
        elif kind < 7:
            reads = sorted(rng.sample(KEYS, rng.randrange(3)))
            ranges = [some_range() for _ in range(rng.randrange(3))]
            gsn, verdict = host.commits.submit(writes(), snapshot=snapshot, reads=reads, ranges=ranges, txn_id=txn)
        elif kind < 9:
            tested = [condition() for _ in range(rng.randint(1, 2))]
            gsn, verdict = host.commits.submit(writes(), conditions=tested, txn_id=txn)
        else:
            if rng.random() < 0.3:
                db.outcome(f"{rng.randrange(5):016x}-{rng.randrange(9)}", settle=True)
            if rng.random() < 0.3:
                db.pin(rng.choice(["one", "two"]), rng.randint(db.oldest_version or 1, db.version))
            if rng.random() < 0.3:
                db.checkpoint()
            if compacts and rng.random() < 0.4:
                for name in list(db.pins):
                    if rng.random() < 0.7:
                        db.unpin(name)
                db.compact(rng.randint(db.oldest_version, db.version))
            continue
        host.log.wait_durable(gsn)
        decisions[gsn] = verdict.reason
    if rng.random() < 0.5:
        db.checkpoint()
    db.close()
    return decisions


@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize("seed", range(6))
def test_a_correct_history_has_no_difference(tmp_path: Path, seed: int) -> None:
    decisions = write_history(tmp_path / "db", seed, compacts=bool(seed % 2))
    assert verify(tmp_path / "db").damage == []
    found = audit(tmp_path / "db")
    assert found.difference is None
    if not seed % 2:
        aborted = sum(reason is not Reason.COMMITTED for reason in decisions.values())
        settled = found.commits - len(decisions)
        assert (found.aborted, found.trusted) == (aborted + settled, 0)
        assert {*Reason} - {Reason.DANGLING, Reason.TOO_OLD, Reason.NOT_A_NUMBER} <= {*decisions.values()}


def test_a_range_that_a_single_put_has_changed(tmp_path: Path) -> None:
    """Puts are decoded apart from other commits; keys of recent puts are collected only after a range read."""
    host = EmbeddedBackend.open(tmp_path / "db", read_only=False, create=True)
    db = logdb.Database(host)
    reasons = []
    for key in (b"a", b"b", b"c"):
        before = db.put(key, b"1")
        for snapshot in (before - 1, before):
            gsn, verdict = host.commits.submit(
                {b"d": b"2"}, snapshot=snapshot, reads=[], ranges=[(b"a", b"d")], txn_id=host.new_txn_id()
            )
            host.log.wait_durable(gsn)
            reasons.append(verdict.reason)
    db.close()
    assert reasons == [Reason.CONFLICT, Reason.COMMITTED] * 3
    assert audit(tmp_path / "db").difference is None
    assert verify(tmp_path / "db").damage == []


@pytest.mark.parametrize("seed", range(10, 13))
def test_every_wrong_decision_is_reported(tmp_path: Path, seed: int) -> None:
    decisions = write_history(tmp_path / "db", seed, 60, compacts=bool(seed % 2))
    host = EmbeddedBackend.open(tmp_path / "db", read_only=True, create=False)
    ledger = host.machine.coordinator.ledger
    correct = ledger.aborted
    for gsn, reason in decisions.items():
        if gsn <= host.machine.coordinator.floor:
            continue
        ledger.aborted = type(correct)("Q", sorted({*correct} ^ {gsn}))
        found = audit_log(host)
        wrong = "committed" if gsn in correct else "aborted"
        assert found.difference is not None
        assert f" at version {gsn}: the database holds {wrong}, but the log decides: " in found.difference
        if not found.trusted:
            assert found.difference.endswith(reason.value)
    host.close()


@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({b"a": b"1"}, {b"b": b"1"}),
        ({b"a": b"1"}, {b"a": b"2"}),
        ({b"a": b"1"}, {b"a": None}),
        ({b"a": None}, {b"a": b"1"}),
        ({b"a": LARGE}, {b"a": LARGE + b"!"}),
        ({b"a": b"1", b"b": b"2"}, {b"a": b"1"}),
    ],
)
def test_a_sound_map_of_another_history_is_found(
    tmp_path: Path, ours: dict[bytes, bytes | None], theirs: dict[bytes, bytes | None]
) -> None:
    """A missing row, an additional row and another value, of the newest version and of an older one."""
    write_history(tmp_path / "base", 1, 30, compacts=False)
    for later in ({}, {b"a": b"newer", b"b": b"newer"}):
        for name, writes in (("ours", ours), ("theirs", theirs)):
            shutil.copytree(tmp_path / "base", tmp_path / name)
            with logdb.open(tmp_path / name) as db:
                # Both use the same transaction ids, so that their maps differ only by `writes`.
                host_of(db).commits.client = 7
                db.multi_put(writes)
                if later:
                    db.multi_put(later)
                db.checkpoint()
        for name in ("ours", "theirs"):
            assert verify(tmp_path / name).damage == []
        shutil.rmtree(tmp_path / "ours/map")
        shutil.copytree(tmp_path / "theirs/map", tmp_path / "ours/map")
        found = verify(tmp_path / "ours").damage
        if later and (ours, theirs) == ({b"a": b"1"}, {b"a": b"2"}):
            assert found == []  # small values of older versions are only in the log
        else:
            assert [Path(one.path) for one in found] == [tmp_path / "ours/map"]
            assert "is not what the log says" in found[0].what
        for name in ("ours", "theirs"):
            shutil.rmtree(tmp_path / name)


@pytest.mark.usefixtures("spread")
def test_all_damage_to_all_segments_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "db"
    host = EmbeddedBackend.open(path, read_only=False, create=True, log_options={"segment_bytes": 2_000})
    for number in range(60):
        host.write({b"%d" % number: b"v" * 150})
    host.close()
    files = sorted((path / "log").glob("*.log"))
    assert len(files) > 4
    damaged = files[1:4]
    for file in damaged:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 16
        content[-1] ^= 1
        file.write_bytes(content)
    named = verify(path).damage
    assert [Path(one.path) for one in named] == [file for file in damaged for _ in range(2)]
    assert all("does not match its checksum" in one.what for one in named)
    with pytest.raises(logdb.Corruption, match=damaged[0].name):
        audit(path)


PEAK = """
import sys, tracemalloc
from pathlib import Path
from logdb.embedded.verification import spills
from logdb.embedded.verification.verify import verify_files
spills.PARTITION_BYTES, spills.BUFFER_BYTES = 100_000, 200_000
tracemalloc.start()
assert verify_files(Path(sys.argv[1]), None)[2:] == (int(sys.argv[2]), [])
print(tracemalloc.get_traced_memory()[1])
"""


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """In a process of its own: threads that other tests have started would be counted."""
    peaks = []
    for count in (6_000, 24_000):
        path = tmp_path / f"{count}"
        host = EmbeddedBackend.open(path, read_only=False, create=True, log_options={"segment_bytes": 100_000})
        for first in range(0, count, 100):
            host.write({b"%09d" % key: b"v" * 50 for key in range(first, first + 100)})
        host.checkpoint()
        host.close()
        peaks.append(int(subprocess.check_output([sys.executable, "-c", PEAK, path, f"{count}"])))
    assert peaks[1] - peaks[0] < 18_000 * 20  # keeping all keys would take 400 bytes each


SCRIPT = """
import sys
from pathlib import Path
from logdb.embedded.verification import examination, workers
examination.SMALL_BYTES = 0
from logdb.api.inspection import verify
def progress(done, total):
    print("begun", flush=True)
    sys.stdin.readline()
verify(sys.argv[1], progress=progress)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_workers_of_a_verification_end_with_it(tmp_path: Path, how: signal.Signals) -> None:
    write_history(tmp_path / "db", 2, compacts=False)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={"TMPDIR": str(scratch)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    assert len(processes_of(process.pid)) > 1
    process.send_signal(how)
    _, errors = process.communicate()
    if how is signal.SIGINT:
        assert errors.rstrip().endswith(b"KeyboardInterrupt")
        assert list(scratch.iterdir()) == []
    while processes_of(process.pid):  # workers end when their pipe is closed
        pass


def processes_of(session: int) -> list[str]:
    """The running processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, after = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, _, _, of = after.split()[:4]
        if int(of) == session and state != "Z":
            found.append(stat.parent.name)
    return found


def test_a_killed_worker_is_an_error_and_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_history(tmp_path / "db", 2, compacts=False)
    monkeypatch.setattr(examination, "SMALL_BYTES", 0)
    read = examination.Examination.read

    def killing(self: examination.Examination, *given: object, **named: object) -> object:
        for worker in self.workers:
            worker.end()
        return read(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(examination.Examination, "read", killing)
    with pytest.raises(LogDBError, match="could not be checked"):
        verify(tmp_path / "db")
