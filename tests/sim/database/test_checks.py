"""Every check of the database's histories can fail: a good history passes, and each bad one made by hand does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import logdb
from logdb.cluster.compaction.records import CompactionBeginning, encode_beginning
from logdb.errors import OutcomeUnknown
from logdb.log.contract import Batch, LogRecord
from logdb.store.records import BEGINNING, COMMIT, DECISION, Commit, Decision, TxnId, encode_commit, encode_decision
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import COMMITTED, Reason, Verdict
from tests.sim.checks import Truth
from tests.sim.database.checks import Model, check_all
from tests.sim.database.floors import Floors
from tests.sim.database.history import History, Op
from tests.sim.database.run import Replayed, check_decisions, check_used_ids, check_verdicts
from tests.sim.world import Failure

LIST, CELL, ONE, OTHER = b"list 0", b"cell 0", b"account 0", b"account 1"
SECOND = b"list 1"
LOST = TxnId(9, 9)


class Story:
    """A correct history with every kind of operation, and its model; each test corrupts it in one way."""

    def __init__(self) -> None:
        self.history = History()
        self.first = self.op("append", txn=TxnId(1, 1), version=2, writes={LIST: b"a"}, reads={LIST: (0, None)})
        self.second = self.op(
            "append", txn=TxnId(1, 2), snapshot=2, version=3, writes={LIST: b"a,b"}, reads={LIST: (2, b"a")}
        )
        self.second.scans[(b"list ", b"list:")] = {LIST: b"a"}
        self.loser = self.op("append", "fail", txn=TxnId(2, 1), snapshot=1, version=5, writes={LIST: b"c"})
        self.loser.reads[LIST] = (0, None)
        self.loser.verdict = Verdict(Reason.CONFLICT, LIST, 3)
        self.transfer = self.op("transfer", txn=TxnId(2, 2), version=6, writes={ONE: b"90 x", OTHER: b"110 x"})
        self.cas = self.op("compare and set", txn=TxnId(2, 3), version=7, writes={CELL: b"v"})
        self.cas.conditions = (logdb.absent(CELL),)
        self.tested = self.op("compare and set", "fail", txn=TxnId(2, 4), version=8, writes={CELL: b"w"})
        self.tested.conditions = (logdb.absent(CELL),)
        self.tested.verdict = Verdict(Reason.CONDITION, failed=(0,))
        self.lost = self.op("put", "info", txn=LOST, writes={CELL: b"lost"})
        self.read = self.op("read", version=9, reads={CELL: (9, b"lost")}, is_linearizable=True, session=8)
        self.past = self.op("history", version=9, histories={CELL: [(9, b"lost"), (7, b"v")]}, floor=6)
        followed = 6, 10, {7: Commit(0, 7, {CELL: b"v"}), 9: Commit(0, 9, {CELL: b"lost"})}
        self.follower = self.op("follow the tier", followed=followed)
        self.begun = self.op("put", txn=TxnId(3, 1), version=10, writes={SECOND: b"p"})
        self.program = self.op(
            "run", txn=TxnId(3, 2), version=11, writes={SECOND: b"p,q"}, seen={SECOND: b"p"}, is_speculative=True
        )
        self.program.conditions = (logdb.equals(SECOND, b"p"),)
        self.looker = self.op("run", snapshot=11, version=11, seen={SECOND: b"p,q"}, is_linearizable=True)
        self.deletion = self.op("delete", txn=TxnId(3, 3), version=12, writes={SECOND: None})
        self.recreated = self.op("put", txn=TxnId(3, 4), version=13, writes={SECOND: b"r"})
        self.outdated = self.op("append", "fail", txn=TxnId(3, 5), snapshot=4, version=14, writes={LIST: b"late"})
        self.outdated.verdict = Verdict(Reason.TOO_OLD)
        self.outcome = self.op("outcome", result=(TxnId(1, 2), Outcome(Status.COMMITTED, 3)))
        self.refused = self.op("put", "fail", txn=TxnId(1, 9), writes={CELL: b"refused"})
        self.versions: dict[bytes, list[tuple[int, bytes | None]]] = {
            LIST: [(2, b"a"), (3, b"a,b")],
            ONE: [(6, b"90 x")],
            OTHER: [(6, b"110 x")],
            CELL: [(7, b"v"), (9, b"lost")],
            SECOND: [(10, b"p"), (11, b"p,q"), (12, None), (13, b"r")],
        }
        self.authors = {12: self.deletion}
        self.settled: Mapping[TxnId, Outcome] = {LOST: Outcome(Status.COMMITTED, 9)}
        self.floors = Floors()
        self.floors.fold(Batch(14, 15, [LogRecord(14, 0, BEGINNING, encode_beginning(CompactionBeginning(1, 6)))]))

    def op(self, what: str, status: str = "ok", **fields: Any) -> Op:
        op = self.history.invoke(what, "client", 0)
        for name, value in fields.items():
            setattr(op, name, value)
        self.history.complete(op, status, 0)
        return op

    def check(self) -> None:
        """Run all checks; the author of a version is the operation that wrote its values."""
        names = {value: op for op in self.history.ops for value in op.writes.values() if value is not None}
        versions = [(version, value) for key in self.versions for version, value in self.versions[key]]
        authors = self.authors | {version: names[value] for version, value in versions if value in names}
        check_all(self.history, Model(self.versions, authors, self.floors), self.settled)


def lose_a_commit(story: Story) -> None:
    del story.versions[CELL][0]
    story.read.reads = {}
    story.tested.verdict = None


def write_twice(story: Story) -> None:
    story.versions[CELL].append((20, b"lost"))


def write_without_an_author(story: Story) -> None:
    story.versions[CELL].append((20, b"unknown"))


def apply_a_failed_transaction(story: Story) -> None:
    story.versions[CELL].append((20, b"refused"))


def apply_part_of_a_transaction(story: Story) -> None:
    story.transfer.status, story.transfer.version = "info", 0
    del story.versions[ONE]


def report_a_committed_write_as_aborted(story: Story) -> None:
    story.settled = {LOST: Outcome(Status.ABORTED, 9)}


def report_a_missing_write_as_committed(story: Story) -> None:
    del story.versions[CELL][1]
    story.read.reads = {}


def read_part_of_a_transaction(story: Story) -> None:
    story.read.reads[ONE] = (0, None)


def omit_a_scanned_key(story: Story) -> None:
    story.read.scans[(b"account ", None)] = {ONE: b"90 x"}


def lose_an_update(story: Story) -> None:
    story.second.snapshot, story.second.reads = 0, {LIST: (0, None)}
    story.second.scans.clear()


def allow_a_phantom(story: Story) -> None:
    story.second.snapshot, story.second.reads = 0, {}
    story.second.scans = {(b"list ", b"list:"): {}}


def commit_with_a_false_condition(story: Story) -> None:
    story.cas.conditions = (logdb.exists(CELL),)


def read_a_stale_version(story: Story) -> None:
    story.read.version, story.read.session, story.read.reads = 6, 0, {CELL: (0, None)}


def commit_in_the_past(story: Story) -> None:
    story.first.invoked = story.second.returned + 1000
    story.first.returned = story.first.invoked + 1


def commit_in_the_past_without_a_reply(story: Story) -> None:
    story.history.ops.append(story.history.ops.pop(story.history.ops.index(story.first)))
    story.first.status, story.first.version, story.first.invoked, story.first.returned = "info", 0, 1000, 1001
    story.settled = {**story.settled, TxnId(1, 1): Outcome(Status.COMMITTED, 2)}


def read_before_the_session_version(story: Story) -> None:
    story.read.is_linearizable = False
    story.read.session = 10


def report_a_conflict_on_an_unread_key(story: Story) -> None:
    story.loser.verdict = Verdict(Reason.CONFLICT, CELL, 3)


def report_a_conflict_with_a_version_in_the_snapshot(story: Story) -> None:
    story.loser.snapshot, story.loser.reads = 3, {LIST: (3, b"a,b")}


def report_the_wrong_winner(story: Story) -> None:
    story.loser.verdict, story.loser.version = Verdict(Reason.CONFLICT, LIST, 3), 5
    story.loser.winner = "another label"


def report_a_true_condition_as_failed(story: Story) -> None:
    story.tested.conditions = (logdb.exists(CELL),)


def shorten_a_list(story: Story) -> None:
    story.second.writes = {LIST: b"b"}
    story.versions[LIST][1] = (3, b"b")


def change_the_total(story: Story) -> None:
    story.transfer.writes = {ONE: b"91 x", OTHER: b"110 x"}
    story.versions[ONE] = [(6, b"91 x")]


def report_a_committed_transaction_as_not_found(story: Story) -> None:
    story.outcome.result = TxnId(1, 2), Outcome(Status.NOT_FOUND, 0)


def report_two_outcomes(story: Story) -> None:
    story.op("outcome", result=(TxnId(7, 7), Outcome(Status.COMMITTED, 4)))
    story.op("outcome", result=(TxnId(7, 7), Outcome(Status.ABORTED, 4)))


def delete_without_an_author(story: Story) -> None:
    story.versions[ONE].append((20, None))


def read_a_deleted_value(story: Story) -> None:
    story.op("read", version=12, reads={SECOND: (11, b"p,q")})


def report_a_recent_deletion_as_absent(story: Story) -> None:
    story.op("read", version=12, reads={SECOND: (0, None)}, floor=11)


def keep_elements_across_a_deletion(story: Story) -> None:
    story.recreated.writes = {SECOND: b"r,r"}
    story.versions[SECOND][3] = (13, b"r,r")


def return_a_wrong_speculated_value(story: Story) -> None:
    story.looker.seen, story.looker.snapshot = {SECOND: b"never"}, 0


def raise_on_a_wrong_speculated_value(story: Story) -> None:
    story.op("run", "fail", seen={SECOND: b"never"}, is_speculative=True)


def commit_with_a_wrong_speculated_value(story: Story) -> None:
    story.program.seen, story.program.conditions = {SECOND: b"never"}, ()


def drop_the_end_of_a_key_history(story: Story) -> None:
    story.past.histories[CELL].pop()


def follow_without_a_version(story: Story) -> None:
    assert story.follower.followed is not None
    del story.follower.followed[2][7]


def report_a_valid_snapshot_as_too_old(story: Story) -> None:
    story.outdated.snapshot = 6


BAD: dict[Callable[[Story], None], str] = {
    lose_a_commit: "no acknowledged write is lost",
    write_twice: "a transaction is applied once",
    write_without_an_author: "every write has an author",
    apply_a_failed_transaction: "a failed transaction is not applied",
    apply_part_of_a_transaction: "a transaction is atomic",
    report_a_committed_write_as_aborted: "an outcome matches the log",
    report_a_missing_write_as_committed: "an outcome matches the log",
    read_part_of_a_transaction: "a read returns one snapshot",
    omit_a_scanned_key: "a read returns one snapshot",
    lose_an_update: "a transaction reads the state before its version",
    allow_a_phantom: "a transaction reads the state before its version",
    commit_with_a_false_condition: "a condition holds at the commit version",
    read_a_stale_version: "reads keep to real time",
    commit_in_the_past: "commits keep to real time",
    commit_in_the_past_without_a_reply: "commits keep to real time",
    read_before_the_session_version: "a session never reads an older version",
    report_a_conflict_on_an_unread_key: "a reported conflict exists",
    report_a_conflict_with_a_version_in_the_snapshot: "a reported conflict exists",
    report_the_wrong_winner: "the reported winner wrote the conflicting version",
    report_a_true_condition_as_failed: "the reported failed conditions do not hold",
    shorten_a_list: "a list only grows",
    change_the_total: "the bank's total",
    report_a_committed_transaction_as_not_found: "an outcome includes commits that have returned",
    report_two_outcomes: "a transaction has one outcome",
    delete_without_an_author: "every write has an author",
    read_a_deleted_value: "a read returns one snapshot",
    report_a_recent_deletion_as_absent: "a read returns one snapshot",
    keep_elements_across_a_deletion: "a list only grows",
    return_a_wrong_speculated_value: "a read returns one snapshot",
    raise_on_a_wrong_speculated_value: "a read returns one snapshot",
    commit_with_a_wrong_speculated_value: "a transaction reads the state before its version",
    drop_the_end_of_a_key_history: "a key's history matches its writes",
    follow_without_a_version: "a follower of the cold tier gets every version",
    report_a_valid_snapshot_as_too_old: "only compacted snapshots are too old",
}


def test_a_good_history_passes() -> None:
    Story().check()


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_a_bad_history_fails(spoil: Callable[[Story], None]) -> None:
    story = Story()
    spoil(story)
    with pytest.raises(Failure) as failure:
        story.check()
    assert failure.value.check == BAD[spoil]


# ---- comparison with the log


def log_of(*records: tuple[int, bytes]) -> tuple[Truth, Replayed]:
    truth = Truth(1, len(records), {gsn: (gsn, *record) for gsn, record in enumerate(records, 1)})
    return truth, Replayed(truth, {})


def a_commit(sequence: int, *, conditions: Any = ()) -> tuple[int, bytes]:
    return COMMIT, encode_commit(Commit(1, sequence, {CELL: b"%d" % sequence}, conditions=conditions))


FAILING = a_commit(2, conditions=(logdb.absent(CELL),))


def test_decision_records_with_a_gap_are_reported() -> None:
    record = DECISION, encode_decision(Decision(0, 2, [2]))
    truth, fresh = log_of(a_commit(1), FAILING, record)
    check_decisions(truth, fresh.replica)
    truth.records[3] = (3, DECISION, encode_decision(Decision(1, 2, [2])))
    with pytest.raises(Failure, match="leave no gap"):
        check_decisions(truth, fresh.replica)
    truth.records[3] = (3, DECISION, encode_decision(Decision(0, 2, [])))
    with pytest.raises(Failure, match="match the decisions"):
        check_decisions(truth, fresh.replica)


def test_verdicts_that_contradict_the_log_are_reported() -> None:
    truth, fresh = log_of(a_commit(1), FAILING, a_commit(1))
    history = History()
    op = history.invoke("put", "client", 0)
    op.txn, op.version, op.verdict = TxnId(1, 1), 1, COMMITTED
    history.complete(op, "ok", 0)
    check_verdicts(history, truth, fresh)
    op.version = 3
    with pytest.raises(Failure, match="that of the first record"):
        check_verdicts(history, truth, fresh)
    op.txn, op.version = TxnId(1, 2), 2
    with pytest.raises(Failure, match="matches the log"):
        check_verdicts(history, truth, fresh)
    op.txn, op.version, op.verdict, op.status = TxnId(1, 1), 0, None, "fail"
    with pytest.raises(Failure, match="is not applied"):
        check_verdicts(history, truth, fresh)


def test_an_id_that_is_refused_at_its_first_record_is_reported() -> None:
    """Sequence number 1 comes after a compaction that has dropped number 3."""
    floor = BEGINNING, encode_beginning(CompactionBeginning(1, 2))
    truth, fresh = log_of(a_commit(3), a_commit(4), floor, a_commit(1))
    history = History()
    check_used_ids(history, truth, fresh)
    del fresh.decided[TxnId(1, 1)]
    with pytest.raises(Failure, match="a first record is decided"):
        check_used_ids(history, truth, fresh)


@pytest.mark.parametrize("sequence", [2, 4], ids=["never used", "after the floor"])
def test_an_id_that_is_forgotten_too_early_is_reported(sequence: int) -> None:
    floor = BEGINNING, encode_beginning(CompactionBeginning(1, 2))
    truth, fresh = log_of(a_commit(3), a_commit(4), floor)
    history = History()
    outcome, put = history.invoke("outcome", "client", 0), history.invoke("put", "client", 0)
    outcome.result, outcome.status = (TxnId(1, 3), Outcome(Status.FORGOTTEN, 0)), "ok"
    put.txn, put.error = TxnId(1, 3), OutcomeUnknown("1-3", "compacted away")
    check_used_ids(history, truth, fresh)
    put.txn = TxnId(1, sequence)
    with pytest.raises(Failure, match="only compacted transactions"):
        check_used_ids(history, truth, fresh)
    put.has_deadline = True
    outcome.result = TxnId(1, sequence), Outcome(Status.FORGOTTEN, 0)
    with pytest.raises(Failure, match="only compacted transactions"):
        check_used_ids(history, truth, fresh)
