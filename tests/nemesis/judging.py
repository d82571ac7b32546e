"""All checks of a run: those of the simulator, which use the versions, and those that use only the values read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import logdb
from logdb.store.records import TxnId
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import Reason, Verdict
from tests.nemesis.history import Entry, elements_of
from tests.nemesis.list_append import check_list_append
from tests.nemesis.registers import check_registers
from tests.sim.database import checks
from tests.sim.database.checks import Model
from tests.sim.database.history import History, Op, Versioned
from tests.sim.world import Failure

LIST_PREFIX, CELL_PREFIX = "list", "cell"
NAMES = {"append": "append", "transfer": "transfer", "cas": "compare and set", "put": "put", "delete": "delete"}
"""The names of writing transactions in the simulator."""


@dataclass
class End:
    """The final state of the database. `commits`: (version, label, changes) of its whole feed. `state`: a scan.

    `settled`: the outcomes of transactions whose clients did not get one. `oldest`: earlier versions were compacted
    away. `states`: the same version as other servers return it. `reads_ahead`: a server of one directory, where a
    transaction that does not commit may read commits that a kill then loses.
    """

    version: int
    commits: list[tuple[int, str, dict[bytes, bytes | None]]]
    state: dict[bytes, bytes]
    settled: dict[str, Outcome]
    oldest: int = 0
    states: list[dict[bytes, bytes]] = field(default_factory=list)
    reads_ahead: bool = False

    def model(self, history: History) -> Model:
        """All versions of all keys, and their authors: every transaction has its own label."""
        versions: dict[bytes, list[tuple[int, bytes | None]]] = {}
        for version, _, changes in self.commits:
            for key, value in changes.items():
                versions.setdefault(key, []).append((version, value))
        ops = {op.label: op for op in history.ops if op.writes}
        return Model(versions, {version: ops[label] for version, label, _ in self.commits if label in ops})


def judge(entries: Sequence[Entry], end: End) -> list[str]:
    """The problems found, empty if there are none."""
    settled = {
        TxnId.parse(txn): answers for txn, answers in end.settled.items() if answers.status is not Status.FORGOTTEN
    }
    wrong: list[str] = []
    for check in _checks(entries, end, settled):
        try:
            check()
        except Failure as failure:
            wrong.append(f"{failure.check}: {failure}"[:3_000])
    return wrong


def _checks(entries: Sequence[Entry], end: End, settled: Mapping[TxnId, Outcome]) -> Iterator[Callable[[], None]]:
    yield lambda: check_feed(end)
    yield lambda: check_expected(entries)
    yield lambda: check_list_append(*lists_of(entries, end))
    yield lambda: check_registers(entries, sorted({key for entry in entries for key in _cells(entry)}))
    yield lambda: check_conflicts(entries, end)
    yield lambda: check_outcomes_are_kept(entries, end)
    try:
        history = as_simulated(entries, end)
    except Failure as failure:
        raised = failure

        def without_author() -> None:
            raise raised

        yield without_author
        return
    model = end.model(history)
    yield lambda: checks.check_outcomes_of_writes(history, model, settled)
    yield lambda: checks.check_reads(history, model)
    yield lambda: checks.check_serial(history, model)
    yield lambda: checks.check_real_time(history, model)
    yield lambda: checks.check_sessions(history)
    yield lambda: checks.check_aborts(history, model)
    yield lambda: checks.check_bank(history, model)
    yield lambda: checks.check_outcomes(history, settled)


def _cells(entry: Entry) -> Iterator[str]:
    return (op[1] for op in entry.ops if op[0] != "scan" and op[1].startswith(CELL_PREFIX))


def lists_of(entries: Sequence[Entry], end: End) -> tuple[list[Entry], dict[str, list[str]]]:
    """The operations for the checker of list-append."""
    concerned = [
        entry
        for entry in entries
        if (entry.linearizable or entry.f == "append") and any(op[1].startswith(LIST_PREFIX) for op in entry.ops)
    ]
    lists = {key.decode(): elements_of(value.decode()) for key, value in end.state.items()}
    return concerned, {key: elements for key, elements in lists.items() if key.startswith(LIST_PREFIX)}


# ---- checks that the simulator does not have


def check_feed(end: End) -> None:
    """The folded change feed equals a scan, and every server returns the same state."""
    versions = [version for version, _, _ in end.commits]
    if versions != sorted(set(versions)):
        raise Failure("the feed is in order", f"{versions}")
    state: dict[bytes, bytes | None] = {}
    for version, _, changes in end.commits:
        if version <= end.version:
            state.update(changes)
    folded = {key: value for key, value in state.items() if value is not None}
    for found in (end.state, *end.states):
        if found != folded:
            different = {key for key in {*found, *folded} if found.get(key) != folded.get(key)}
            some = sorted(different)[:3]
            raise Failure("the feed gives the state", f"{[(key, found.get(key), folded.get(key)) for key in some]}")


EXPECTED = {"", "Unavailable", "OutcomeUnknown", "ConflictError", "VersionTrimmed", "condition"}


def check_expected(entries: Sequence[Entry]) -> None:
    """No client got an impossible error."""
    for entry in entries:
        if entry.error.get("error", "") not in EXPECTED:
            raise Failure("an error of an expected kind", f"{entry}")


def check_conflicts(entries: Sequence[Entry], end: End) -> None:
    """The reported winner of a conflict wrote that key, at that version, after the snapshot."""
    by_version = {version: (label, changes) for version, label, changes in end.commits}
    for entry in entries:
        if entry.error.get("error") == "ConflictError":
            version, key = entry.error["version"], entry.error["key"].encode()
            if end.reads_ahead and not version:  # the conflict is with a server that was killed
                continue
            label, changes = by_version.get(version, ("", {}))
            if key not in changes or version <= entry.error["snapshot"] or entry.error["winner"] not in ("", label):
                raise Failure("a reported conflict exists", f"{entry}: {version} is {label!r}: {changes}")


def check_outcomes_are_kept(entries: Sequence[Entry], end: End) -> None:
    """The outcomes of transactions that were not compacted away are known."""
    versions = {entry.txn: entry.version for entry in entries if entry.txn and entry.version}
    answers = [(txn, outcome.status.name) for txn, outcome in end.settled.items()]
    answers += [(entry.result[0], entry.result[1]) for entry in entries if entry.result is not None]
    for txn, status in answers:
        if status == Status.FORGOTTEN.name and versions.get(txn, 0) >= end.oldest:
            raise Failure("an outcome is remembered", f"{txn} is at {versions.get(txn)}, the oldest is {end.oldest}")


# ---- the same history for the simulator's checks


def as_simulated(entries: Sequence[Entry], end: End) -> History:
    """Raises Failure if a read returned a value that no transaction wrote."""
    places: dict[tuple[bytes, bytes | None], int] = {
        (key, value): version for version, _, changes in end.commits for key, value in changes.items()
    }

    def versioned(key: str, value: str, entry: Entry) -> Versioned:
        found = places.get((key.encode(), value.encode()))
        if found is None:
            raise Failure("every write has an author", f"{key}: {value} in {entry}")
        return found, value.encode()

    history = History()
    moments = sorted(
        (moment, not begins, number)
        for number, entry in enumerate(entries)
        for moment, begins in ((entry.invoked, True), (entry.returned, False))
        if moment is not None
    )
    ops: dict[int, Op] = {}
    for moment, ends, number in moments:
        entry = entries[number]
        if ends:
            history.complete(ops[number], entry.status, moment)
        else:
            ops[number] = op = history.invoke(NAMES.get(entry.f, entry.f), entry.process, moment)
            _fill(op, entry, versioned, end.reads_ahead)
    return history


def _fill(op: Op, entry: Entry, versioned: Callable[[str, str, Entry], Versioned], reads_ahead: bool) -> None:
    op.status = "info"  # until it is completed
    op.txn = TxnId.parse(entry.txn) if entry.txn else None
    op.label, op.snapshot, op.version = entry.label, entry.snapshot, entry.version
    op.session = entry.session if entry.version else 0
    op.is_linearizable = entry.linearizable and bool(entry.version)
    op.writes = {key.encode(): None if value is None else value.encode() for key, value in entry.writes.items()}
    for kind, key, *rest in entry.ops:
        if kind == "cas":
            name, expected = key.encode(), rest[0]
            op.conditions = (logdb.absent(name) if expected is None else logdb.equals(name, expected.encode()),)
    was_decided = entry.status == "ok" or bool(entry.error.get("version") or "failed" in entry.error)
    if (was_decided if reads_ahead else entry.status != "info") and (entry.snapshot or entry.version):
        found_keys = [(key, value) for key, value in entry.reads.items() if value is not None]
        op.reads = {key.encode(): versioned(key, value, entry) for key, value in found_keys}
        op.seen = {key.encode(): None for key, value in entry.reads.items() if value is None}
        for (start, end), rows in entry.scans.items():
            found = {key.encode(): value.encode() for key, value in rows.items()}
            op.scans[start.encode(), None if end is None else end.encode()] = found
    if "failed" in entry.error:
        op.verdict = Verdict(Reason.CONDITION, failed=tuple(entry.error["failed"]))
    if entry.result is not None:
        txn, status, version = entry.result
        if status != Status.FORGOTTEN.name:
            op.result = TxnId.parse(txn), Outcome(Status[status], version)
