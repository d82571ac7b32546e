"""What must be true of a history of the database. Each check raises `Failure`.

The witness is the version: every operation that ended says where in the log it stands or was read, and `Model` is what
the database says in the end of all versions of all keys. The checks show that the order of the versions is a serial
order of the transactions (each saw everything before it and nothing after), and that it keeps to real time: strict
serializability, and with it linearizability of each key. They know nothing of how it is done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logdb.store.conditions import holds
from logdb.store.records import TxnId
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import Reason
from tests.sim.database.history import History, Op, Versioned
from tests.sim.database.workload import ACCOUNTS, BALANCE, LISTS, balance_of, elements_of
from tests.sim.world import Failure

WRITERS = {"append", "transfer", "compare and set", "put"}
LOOKING_BACK = {"snapshot", "outcome", "settle", "compact"}


@dataclass(slots=True)
class Model:
    """All versions of all keys, oldest first."""

    versions: Mapping[bytes, list[tuple[int, bytes | None]]]

    def at(self, key: bytes, version: int) -> Versioned:
        """(version, value) of the key as of a version."""
        found = self.versions.get(key, [])
        position = bisect_right(found, version, key=lambda entry: entry[0])
        return found[position - 1] if position else (0, None)

    def range(self, start: bytes, end: bytes | None, version: int) -> dict[bytes, Versioned]:
        """The keys of a range that exist as of a version."""
        keys = [key for key in sorted(self.versions) if start <= key and (end is None or key < end)]
        return {key: entry for key in keys if (entry := self.at(key, version))[1] is not None}

    def commits(self) -> dict[int, dict[bytes, bytes | None]]:
        """What each version wrote, in order."""
        found: dict[int, dict[bytes, bytes | None]] = {}
        for key, versions in self.versions.items():
            for version, value in versions:
                found.setdefault(version, {})[key] = value
        return dict(sorted(found.items()))


def check_all(history: History, model: Model, settled: Mapping[TxnId, Outcome]) -> None:
    """Everything. `settled`: how the transactions ended of which nobody knew, as was asked after all was over."""
    check_known(history, model, settled)
    check_reads(history, model)
    check_serial(history, model)
    check_real_time(history, model)
    check_sessions(history)
    check_aborts(history, model)
    check_lists(history, model)
    check_bank(history, model)
    check_outcomes(history, settled)


def writers(history: History, *statuses: str) -> Iterable[Op]:
    """Transactions that ended so."""
    return (op for op in history.ops if op.what in WRITERS and op.writes and op.status in statuses)


def check_known(history: History, model: Model, settled: Mapping[TxnId, Outcome]) -> None:
    """Nothing lost: what committed is there, whole, at its version. Nothing doubled: once. Nothing of what failed, nor
    of what nobody wrote, and of what nobody knew just what the outcome says."""
    commits = model.commits()
    mine: dict[int, Op] = {}
    for op in writers(history, "ok"):
        if commits.get(op.version) != op.writes:
            raise Failure("nothing lost", f"{op} is not at its version: {commits.get(op.version)}")
        if op.version in mine:
            raise Failure("a version is one transaction's", f"{op} and {mine[op.version]}")
        mine[op.version] = op
    authors = {value: op for op in writers(history, "ok", "fail", "info", "open") for value in op.writes.values()}
    applied: dict[int, int] = {}
    for version, writes in commits.items():
        authors_here = {id(op): op for value in writes.values() if (op := authors.get(value or b"")) is not None}
        if len(authors_here) != 1:
            raise Failure("nothing from nowhere", f"{writes} at {version} is of {list(authors_here.values())}")
        ((number, op),) = authors_here.items()
        if op.status == "fail":
            raise Failure("what failed was never applied", f"{op} is at {version}")
        if writes != op.writes:
            raise Failure("all of a transaction or nothing", f"{op} has {writes} at {version}")
        if applied.setdefault(number, version) != version:
            raise Failure("nothing twice", f"{op} is at {applied[number]} and {version}")
        if op.txn in settled and settled[op.txn] != Outcome(Status.COMMITTED, version):
            raise Failure("an outcome is what the log says", f"{op} is at {version}: {settled[op.txn]}")
    for op in writers(history, "info"):
        if op.txn in settled and settled[op.txn].committed and id(op) not in applied:
            raise Failure("an outcome is what the log says", f"{op} is nowhere: {settled[op.txn]}")


def check_reads(history: History, model: Model) -> None:
    """What was read at a version is the database as of that version: one snapshot, whole."""
    for op in history.ops:
        if not (op.reads or op.scans) or op.status == "open":
            continue
        at = op.snapshot if op.what in WRITERS else op.version
        _compare(op, model, at, "a read is of one snapshot")


def check_serial(history: History, model: Model) -> None:
    """A transaction that committed saw everything before it: nothing it had read changed up to its version."""
    for op in writers(history, "ok"):
        _compare(op, model, op.version - 1, "a transaction sees all before it")
        for condition in op.conditions:
            version, value = model.at(condition.key, op.version - 1)
            if not holds(condition, version, value):
                raise Failure("a condition holds where it was tested", f"{op} found {version}: {value!r}")


def _compare(op: Op, model: Model, at: int, check: str) -> None:
    for key, found in op.reads.items():
        if model.at(key, at) != found:
            raise Failure(check, f"{op} found {found} under {key!r} at {at}, not {model.at(key, at)}")
    for (start, end), rows in op.scans.items():
        there = {key: value for key, (_, value) in model.range(start, end, at).items()}
        if there != rows:
            raise Failure(check, f"{op} found {rows} at {at}, not {there}")


def check_real_time(history: History, model: Model) -> None:
    """What had returned before an operation began comes before it, also before a commit that nobody heard of."""
    places = {value: version for version, writes in model.commits().items() for value in writes.values()}
    moments: list[tuple[int, bool, Op]] = []
    for op in history.ops:
        moments.append((op.invoked, True, op))
        if op.status in ("ok", "fail") and op.version and not _is_settled(op):
            moments.append((op.returned, False, op))
    newest = 0
    for _, begins, op in sorted(moments, key=lambda moment: moment[0]):
        if not begins:
            newest = max(newest, op.version)
        elif op.what in WRITERS and not _is_settled(op):
            version = op.version or next((places[value] for value in op.writes.values() if value in places), 0)
            if 0 < version <= newest:
                raise Failure("commits keep to real time", f"{op} is at {version}, and began after {newest}")
        elif op.is_linearizable and op.status == "ok" and op.version < newest:
            raise Failure("reads keep to real time", f"{op} was read at {op.version}, and began after {newest}")


def _is_settled(op: Op) -> bool:
    """Its version is that of the record by which somebody settled it, perhaps before it began."""
    return op.verdict is not None and op.verdict.reason is Reason.DANGLING


def check_sessions(history: History) -> None:
    """A client never sees less than it has seen."""
    for op in history.ops:
        if op.status == "ok" and op.version < op.session and op.what not in LOOKING_BACK:
            raise Failure("a session does not go back", f"{op} after {op.session}")


def check_aborts(history: History, model: Model) -> None:
    """What a transaction is told of why it aborted is so."""
    labels = {op.version: op.label for op in writers(history, "ok")}
    for op in writers(history, "fail"):
        verdict = op.verdict
        if verdict is None:
            continue
        if verdict.reason is Reason.CONDITION:
            before = op.version - 1
            failed = [
                position
                for position, condition in enumerate(op.conditions)
                if not holds(condition, *model.at(condition.key, before))
            ]
            if list(verdict.failed) != failed:
                raise Failure("the conditions that failed did", f"{op}: {failed}")
        elif verdict.reason is Reason.CONFLICT:
            has_read = verdict.key in op.reads or any(
                start <= verdict.key and (end is None or verdict.key < end) for start, end in op.scans
            )
            version, _ = model.at(verdict.key, op.version - 1)
            if not (has_read and version == verdict.version > op.snapshot):
                raise Failure("a conflict is one", f"{op}: {verdict.key!r} had version {version}")
            if op.winner != labels.get(version, op.winner):
                raise Failure("the winner is who won", f"{op}: {labels[version]}")
        elif verdict.reason not in (Reason.DANGLING, Reason.TOO_OLD):
            raise Failure("a verdict that this history cannot have", f"{op}")


def check_lists(history: History, model: Model) -> None:
    """A list only grows; what was appended is there once."""
    for key in LISTS:
        before: list[bytes] = []
        for version, value in model.versions.get(key, []):
            elements = elements_of(value)
            if elements[: len(before)] != before or len(set(elements)) != len(elements):
                raise Failure("a list only grows", f"{key!r} at {version}: {elements} after {before}")
            before = elements
        for op in writers(history, "ok"):
            if key in op.writes and elements_of(op.writes[key])[-1] not in before:
                raise Failure("nothing lost", f"{op} is not in {key!r}")


def check_bank(history: History, model: Model) -> None:
    """Money is neither made nor lost, at any version nor in any read."""
    total = BALANCE * len(ACCOUNTS)
    for version, writes in model.commits().items():
        if any(account in writes for account in ACCOUNTS):
            sum_ = sum([balance_of(model.at(account, version)[1]) for account in ACCOUNTS])
            if sum_ != total:
                raise Failure("the bank's total", f"{sum_} at version {version}")
    for op in history.ops:
        if all(account in op.reads for account in ACCOUNTS):
            sum_ = sum([balance_of(op.reads[account][1]) for account in ACCOUNTS])
            if sum_ != total:
                raise Failure("the bank's total", f"{sum_} in {op}")


def check_outcomes(history: History, settled: Mapping[TxnId, Outcome]) -> None:
    """Whoever asks how a transaction ended is told the same, and of one that had returned is told how."""
    ends = {op.txn: op for op in history.ops if op.what in WRITERS and op.txn is not None}
    told: dict[TxnId, Outcome] = dict(settled)
    for op in history.ops:
        if op.result is None or op.status != "ok":
            continue
        txn, outcome = op.result
        end = ends.get(txn)
        if end is not None and 0 < end.returned < op.invoked and end.version:
            status = Status.COMMITTED if end.status == "ok" else Status.ABORTED
            if outcome not in (Outcome(status, end.version), Outcome(Status.FORGOTTEN, 0)):
                raise Failure("an outcome is as of now", f"{op}: {end}")
        if outcome.status in (Status.NOT_FOUND, Status.FORGOTTEN):
            continue
        if told.setdefault(txn, outcome) != outcome:
            raise Failure("a transaction has one end", f"{op}: {told[txn]}")
        if end is not None and end.version and outcome.version != end.version:
            raise Failure("a transaction has one end", f"{op}: {end}")
