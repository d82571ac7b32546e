"""Checks of a history of the database. A check raises `Failure`.

Each operation that ended has a version (the GSN of its commit record, or the version that it read), and `Model` has all
versions of all keys, from a replay of the log. The checks show that the order of the
versions is a serial order of the transactions (each reads the state before its version), and that it follows
real time: strict serializability, and with it linearizability of each key. They do not depend on the implementation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from logdb.store.conditions import holds
from logdb.store.limits import INLINE_VALUE_BYTES
from logdb.store.records import Commit, Condition, DeletedRange, Fold, Place, TxnId, Value, digest
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import Reason
from tests.sim.database.floors import Floors
from tests.sim.database.history import History, Op, Versioned
from tests.sim.database.keys import ACCOUNTS, BALANCE, LISTS, balance_of, elements_of, is_within
from tests.sim.world import Failure

WRITERS = {"append", "transfer", "compare and set", "put", "delete", "run"}
LOOKING_BACK = {"snapshot", "outcome", "settle", "compact", "history", "read ahead", "pin", "expire", "follow the tier"}


@dataclass(slots=True)
class Model:
    """All versions of all keys, oldest first, deletions by range included; the author of each; the floors of
    compactions; the deleted ranges; and the folds of each version."""

    versions: Mapping[bytes, list[tuple[int, bytes | None]]]
    authors: Mapping[int, Op]
    floors: Floors = field(default_factory=Floors)
    deletes: Sequence[DeletedRange] = ()
    folds: Mapping[int, tuple[Fold, ...]] = field(default_factory=dict)

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
        """The writes of each version, without what folds have written, in order."""
        found: dict[int, dict[bytes, bytes | None]] = {}
        folds = {(version, fold.key) for version, folds in self.folds.items() for fold in folds}
        for key, versions in self.versions.items():
            for version, value in versions:
                if version and (version, key) not in folds:
                    found.setdefault(version, {})[key] = value
        return dict(sorted(found.items()))


def check_all(history: History, model: Model, settled: Mapping[TxnId, Outcome]) -> None:
    """Run all checks. `settled`: the outcomes of transactions whose clients did not get one, as the auditor settled
    them at the end."""
    check_outcomes_of_writes(history, model, settled)
    check_reads(history, model)
    check_followers(history, model)
    check_serial(history, model)
    check_real_time(history, model)
    check_sessions(history)
    check_aborts(history, model)
    check_lists(history, model)
    check_bank(history, model)
    check_outcomes(history, settled)


def writers(history: History, *statuses: str) -> Iterable[Op]:
    """Transactions with this status."""
    return (op for op in history.ops if op.what in WRITERS and op.writes and op.status in statuses)


def check_outcomes_of_writes(history: History, model: Model, settled: Mapping[TxnId, Outcome]) -> None:
    """Committed writes are present once and complete, at their version. Writes of failed transactions, or without an
    author, are absent; writes of unknown outcome follow the settled outcome."""
    commits = model.commits()
    committed: dict[int, Op] = {}
    for op in writers(history, "ok"):
        if commits.get(op.version) != op.writes:
            raise Failure("no acknowledged write is lost", f"{op} is not at its version: {commits.get(op.version)}")
        if model.folds.get(op.version, ()) != op.folds:
            raise Failure("no acknowledged fold is lost", f"{op} is not at its version: {model.folds.get(op.version)}")
        if op.version in committed:
            raise Failure("a version belongs to one transaction", f"{op} and {committed[op.version]}")
        committed[op.version] = op
    all_writers = list(writers(history, "ok", "fail", "info", "open"))
    named = {value: op for op in all_writers for value in op.writes.values() if value is not None}
    applied: dict[int, int] = {}
    for version, writes in commits.items():
        author = model.authors.get(version)
        if author is None or any(value is not None and named.get(value) is not author for value in writes.values()):
            raise Failure("every write has an author", f"{writes} at {version} is of {author}")
        op, number = author, id(author)
        if op.status == "fail":
            raise Failure("a failed transaction is not applied", f"{op} is at {version}")
        if writes != op.writes or model.folds.get(version, ()) != op.folds:
            raise Failure("a transaction is atomic", f"{op} has {writes} at {version}")
        if applied.setdefault(number, version) != version:
            raise Failure("a transaction is applied once", f"{op} is at {applied[number]} and {version}")
        if op.txn in settled and settled[op.txn] != Outcome(Status.COMMITTED, version):
            raise Failure("an outcome matches the log", f"{op} is at {version}: {settled[op.txn]}")
    for op in writers(history, "info"):
        if op.txn in settled and settled[op.txn].committed and id(op) not in applied:
            raise Failure("an outcome matches the log", f"{op} is not in the log: {settled[op.txn]}")


def check_reads(history: History, model: Model) -> None:
    """Reads at a version return the database as of that version: one whole snapshot."""
    for op in history.ops:
        if op.status == "open" or (op.is_speculative and op.status == "ok"):
            continue
        at = op.snapshot if op.what in WRITERS else op.version
        _compare(op, model, at, "a read returns one snapshot")
        for key, entries in op.histories.items():
            whole = [entry for entry in reversed(model.versions.get(key, ())) if entry[0] <= op.version]
            rest = whole[len(entries) :]
            is_cut = op.status == "ok" and rest and rest[0][0] > op.floor  # a killed client has the first pages only
            if entries != whole[: len(entries)] or is_cut:
                raise Failure("a key's history matches its writes", f"{op} found {entries}, not {whole}")


def check_followers(history: History, model: Model) -> None:
    """DBS-21: the cold tier gives its followers every version."""
    for op in history.ops:
        if op.followed is not None and op.status == "ok":
            after, end, commits = op.followed
            for key, versions in model.versions.items():
                found = [(at, one.writes.get(key)) for at, one in sorted(commits.items()) if _writes(one, key)]
                right = [entry for entry in versions if after < entry[0] < end]
                if found != right:
                    raise Failure(
                        "a follower of the cold tier gets every version", f"{op}: {key!r} is {found}, not {right}"
                    )


def _writes(commit: Commit, key: bytes) -> bool:
    return key in commit.writes or any(is_within(key, *deleted) for deleted in commit.deletes)


def check_serial(history: History, model: Model) -> None:
    """A committed transaction read the state before its version: no key that it read changed in between."""
    for op in writers(history, "ok"):
        _compare(op, model, op.version - 1, "a transaction reads the state before its version")
        for condition in op.conditions:
            if not _is_met(condition, model, op.version - 1):
                raise Failure("a condition holds at the commit version", f"{op}: {condition}")


def _stored(value: bytes | None) -> Value:
    """The value as stored in the map: a large value by its digest."""
    return value if value is None or len(value) <= INLINE_VALUE_BYTES else Place(0, 0, len(value), digest(value))


def _is_met(condition: Condition, model: Model, at: int) -> bool:
    version, value = model.at(condition.key, at)
    return holds(condition, version, _stored(value))


def _compare(op: Op, model: Model, at: int, check: str) -> None:
    for key, found in op.reads.items():
        right = model.at(key, at)
        # Before the floor, only that the key was deleted is known: its last deletions may be forgotten.
        forgotten = found[1] is None and right[1] is None and found[0] <= right[0] <= op.floor
        if right != found and not forgotten:
            raise Failure(check, f"{op} found {found} under {key!r} at {at}, not {right}")
    for key, value in op.seen.items():
        if model.at(key, at)[1] != value:
            raise Failure(check, f"{op} found {value!r} under {key!r} at {at}, not {model.at(key, at)}")
    for (start, end), rows in op.scans.items():
        expected = {key: value for key, (_, value) in model.range(start, end, at).items()}
        if expected != rows:
            raise Failure(check, f"{op} found {rows} at {at}, not {expected}")


def check_real_time(history: History, model: Model) -> None:
    """An operation that had returned before another one began precedes it, also if the later one is a commit without a
    reply."""
    places = {id(op): version for version, op in model.authors.items()}
    moments: list[tuple[int, bool, Op]] = []
    for op in history.ops:
        moments.append((op.invoked, True, op))
        if op.status in ("ok", "fail") and op.version and not _is_settled(op):
            moments.append((op.returned, False, op))
    newest = 0
    for _, begins, op in sorted(moments, key=lambda moment: moment[0]):
        if not begins:
            newest = max(newest, op.version)
        elif op.what in WRITERS and op.writes and not _is_settled(op):
            version = op.version or places.get(id(op), 0)
            if 0 < version <= newest:
                raise Failure("commits keep to real time", f"{op} is at {version}, and began after {newest}")
        elif op.is_linearizable and op.status == "ok" and op.version < newest:
            raise Failure("reads keep to real time", f"{op} was read at {op.version}, and began after {newest}")


def _is_settled(op: Op) -> bool:
    """Whether its version is that of the record by which a client settled it, perhaps before it began."""
    return op.verdict is not None and op.verdict.reason is Reason.DANGLING


def check_sessions(history: History) -> None:
    """A client never reads an older state than before."""
    for op in history.ops:
        if op.status == "ok" and op.version < op.session and op.what not in LOOKING_BACK:
            raise Failure("a session never reads an older version", f"{op} after {op.session}")


def check_aborts(history: History, model: Model) -> None:
    """The reported reason of an abort is true."""
    labels = {op.version: op.label for op in writers(history, "ok")}
    for op in writers(history, "fail"):
        verdict = op.verdict
        if verdict is None:
            continue
        if verdict.reason is Reason.CONDITION:
            before = op.version - 1
            failed = [
                position for position, condition in enumerate(op.conditions) if not _is_met(condition, model, before)
            ]
            if list(verdict.failed) != failed:
                raise Failure("the reported failed conditions do not hold", f"{op}: {failed}")
        elif verdict.reason is Reason.CONFLICT:
            has_read = (
                verdict.key in op.reads
                or verdict.key in op.seen
                or any(start <= verdict.key and (end is None or verdict.key < end) for start, end in op.scans)
            )
            version, _ = model.at(verdict.key, op.version - 1)
            for deleted in model.deletes:  # the first key of a deleted range need not be one of the workload
                if deleted.has(verdict.key) and deleted.version < op.version:
                    version = max(version, deleted.version)
            if not (has_read and version == verdict.version > op.snapshot):
                raise Failure("a reported conflict exists", f"{op}: {verdict.key!r} had version {version}")
            if op.winner != labels.get(version, op.winner):
                raise Failure("the reported winner wrote the conflicting version", f"{op}: {labels[version]}")
        elif verdict.reason is Reason.TOO_OLD:
            has_large = any(value is not None and len(value) > INLINE_VALUE_BYTES for value in op.writes.values())
            floor, _ = model.floors.at(op.version)
            if op.snapshot >= floor and not (has_large and floor):
                raise Failure("only compacted snapshots are too old", f"{op}: the floor was {floor}")
        elif verdict.reason is Reason.NOT_A_NUMBER:
            _, value = model.at(verdict.key, op.version - 1)
            if value is None or value.lstrip(b"-").isdigit() or verdict.key not in {fold.key for fold in op.folds}:
                raise Failure("a refused fold found no number", f"{op}: {verdict.key!r} held {value!r}")
        elif verdict.reason is not Reason.DANGLING:
            raise Failure("a verdict of a possible kind", f"{op}")


def check_lists(history: History, model: Model) -> None:
    """A list only grows, until it is deleted; each appended element is present once."""
    for key in LISTS:
        before: list[bytes] = []
        ever: set[bytes] = set()
        for version, value in model.versions.get(key, []):
            elements = elements_of(value)
            if value is not None and (elements[: len(before)] != before or len(set(elements)) != len(elements)):
                raise Failure("a list only grows", f"{key!r} at {version}: {elements} after {before}")
            before = elements
            ever.update(elements)
        for op in writers(history, "ok"):
            if op.writes.get(key) is not None and elements_of(op.writes[key])[-1] not in ever:
                raise Failure("no acknowledged write is lost", f"{op} is not in {key!r}")


def check_bank(history: History, model: Model) -> None:
    """The total of the bank is constant, at every version and in every read."""
    total = BALANCE * len(ACCOUNTS)
    for version, writes in model.commits().items():
        if any(account in writes for account in ACCOUNTS):
            sum_ = sum([balance_of(model.at(account, version)[1]) for account in ACCOUNTS])
            if sum_ != total:
                raise Failure("the bank's total", f"{sum_} at version {version}")
    for op in history.ops:
        found = op.seen | {key: value for key, (_, value) in op.reads.items()}
        if all(account in found for account in ACCOUNTS):
            sum_ = sum([balance_of(found[account]) for account in ACCOUNTS])
            if sum_ != total:
                raise Failure("the bank's total", f"{sum_} in {op}")


def check_outcomes(history: History, settled: Mapping[TxnId, Outcome]) -> None:
    """All answers for the outcome of a transaction are equal, and equal to the result that its client got."""
    ends = {op.txn: op for op in history.ops if op.what in WRITERS and op.txn is not None}
    outcomes: dict[TxnId, Outcome] = dict(settled)
    for op in history.ops:
        if op.result is None or op.status != "ok":
            continue
        txn, outcome = op.result
        end = ends.get(txn)
        if end is not None and 0 < end.returned < op.invoked and end.version:
            status = Status.COMMITTED if end.status == "ok" else Status.ABORTED
            if outcome not in (Outcome(status, end.version), Outcome(Status.FORGOTTEN, 0)):
                raise Failure("an outcome includes commits that have returned", f"{op}: {end}")
        if outcome.status in (Status.NOT_FOUND, Status.FORGOTTEN):
            continue
        if outcomes.setdefault(txn, outcome) != outcome:
            raise Failure("a transaction has one outcome", f"{op}: {outcomes[txn]}")
        if end is not None and end.version and outcome.version != end.version:
            raise Failure("a transaction has one outcome", f"{op}: {end}")
