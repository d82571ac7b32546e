"""Every check of the database's histories can fail: a good history passes, and each bad one made by hand does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import logdb
from logdb.cluster.compaction.records import CompactionBeginning, encode_beginning
from logdb.log.contract import Batch, LogRecord
from logdb.store.records import BEGINNING, COMMIT, DECISION, Commit, Decision, TxnId, encode_commit, encode_decision
from logdb.txn.coordinator import Outcome, Status
from logdb.txn.validation import COMMITTED, Reason, Verdict
from tests.sim.checks import Truth
from tests.sim.database.checks import Model, check_all
from tests.sim.database.floors import Floors
from tests.sim.database.history import History, Op
from tests.sim.database.run import Replayed, check_decisions, check_verdicts
from tests.sim.world import Failure

LIST, CELL, ONE, OTHER = b"list 0", b"cell 0", b"account 0", b"account 1"
SECOND = b"list 1"
LOST = TxnId(9, 9)


class Story:
    """A history that is right, to be spoiled: every kind of operation, one after another; (model, settled) with it."""

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
        self.begun = self.op("put", txn=TxnId(3, 1), version=10, writes={SECOND: b"p"})
        self.program = self.op(
            "run", txn=TxnId(3, 2), version=11, writes={SECOND: b"p,q"}, seen={SECOND: b"p"}, believes=True
        )
        self.program.conditions = (logdb.equals(SECOND, b"p"),)
        self.looker = self.op("run", snapshot=11, version=11, seen={SECOND: b"p,q"}, is_linearizable=True)
        self.deletion = self.op("delete", txn=TxnId(3, 3), version=12, writes={SECOND: None})
        self.anew = self.op("put", txn=TxnId(3, 4), version=13, writes={SECOND: b"r"})
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
        """The author of a version is the one whose values it has."""
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


def write_from_nowhere(story: Story) -> None:
    story.versions[CELL].append((20, b"nobody's"))


def apply_what_failed(story: Story) -> None:
    story.versions[CELL].append((20, b"refused"))


def apply_half(story: Story) -> None:
    story.transfer.status, story.transfer.version = "info", 0
    del story.versions[ONE]


def deny_what_is_there(story: Story) -> None:
    story.settled = {LOST: Outcome(Status.ABORTED, 9)}


def claim_what_is_not_there(story: Story) -> None:
    del story.versions[CELL][1]
    story.read.reads = {}


def read_half(story: Story) -> None:
    story.read.reads[ONE] = (0, None)


def scan_less(story: Story) -> None:
    story.read.scans[(b"account ", None)] = {ONE: b"90 x"}


def lose_an_update(story: Story) -> None:
    story.second.snapshot, story.second.reads = 0, {LIST: (0, None)}
    story.second.scans.clear()


def see_no_phantom(story: Story) -> None:
    story.second.snapshot, story.second.reads = 0, {}
    story.second.scans = {(b"list ", b"list:"): {}}


def look_on_arrival(story: Story) -> None:
    story.cas.conditions = (logdb.exists(CELL),)


def read_the_past(story: Story) -> None:
    story.read.version, story.read.session, story.read.reads = 6, 0, {CELL: (0, None)}


def commit_in_the_past(story: Story) -> None:
    story.first.invoked = story.second.returned + 1000
    story.first.returned = story.first.invoked + 1


def commit_in_the_past_unheard_of(story: Story) -> None:
    story.history.ops.append(story.history.ops.pop(story.history.ops.index(story.first)))
    story.first.status, story.first.version, story.first.invoked, story.first.returned = "info", 0, 1000, 1001
    story.settled = {**story.settled, TxnId(1, 1): Outcome(Status.COMMITTED, 2)}


def go_back(story: Story) -> None:
    story.read.is_linearizable = False
    story.read.session = 10


def blame_the_innocent(story: Story) -> None:
    story.loser.verdict = Verdict(Reason.CONFLICT, CELL, 3)


def blame_what_came_later(story: Story) -> None:
    story.loser.snapshot, story.loser.reads = 3, {LIST: (3, b"a,b")}


def name_another_winner(story: Story) -> None:
    story.loser.verdict, story.loser.version = Verdict(Reason.CONFLICT, LIST, 3), 5
    story.loser.winner = "somebody else"


def fail_a_condition_that_held(story: Story) -> None:
    story.tested.conditions = (logdb.exists(CELL),)


def shorten_a_list(story: Story) -> None:
    story.second.writes = {LIST: b"b"}
    story.versions[LIST][1] = (3, b"b")


def make_money(story: Story) -> None:
    story.transfer.writes = {ONE: b"91 x", OTHER: b"110 x"}
    story.versions[ONE] = [(6, b"91 x")]


def forget_an_outcome(story: Story) -> None:
    story.outcome.result = TxnId(1, 2), Outcome(Status.NOT_FOUND, 0)


def tell_two_ends(story: Story) -> None:
    story.op("outcome", result=(TxnId(7, 7), Outcome(Status.COMMITTED, 4)))
    story.op("outcome", result=(TxnId(7, 7), Outcome(Status.ABORTED, 4)))


def delete_from_nowhere(story: Story) -> None:
    story.versions[ONE].append((20, None))


def read_what_was_deleted(story: Story) -> None:
    story.op("read", version=12, reads={SECOND: (11, b"p,q")})


def forget_a_deletion(story: Story) -> None:
    story.op("read", version=12, reads={SECOND: (0, None)}, floor=11)


def let_a_list_grow_over_its_deletion(story: Story) -> None:
    story.anew.writes = {SECOND: b"r,r"}
    story.versions[SECOND][3] = (13, b"r,r")


def return_what_was_believed(story: Story) -> None:
    story.looker.seen, story.looker.snapshot = {SECOND: b"never"}, 0


def raise_what_was_believed(story: Story) -> None:
    story.op("run", "fail", seen={SECOND: b"never"}, believes=True)


def commit_upon_a_wrong_belief(story: Story) -> None:
    story.program.seen, story.program.conditions = {SECOND: b"never"}, ()


def cut_a_history_short(story: Story) -> None:
    story.past.histories[CELL].pop()


def call_too_old_what_was_not(story: Story) -> None:
    story.outdated.snapshot = 6


BAD: dict[Callable[[Story], None], str] = {
    lose_a_commit: "nothing lost",
    write_twice: "nothing twice",
    write_from_nowhere: "nothing from nowhere",
    apply_what_failed: "what failed was never applied",
    apply_half: "all of a transaction or nothing",
    deny_what_is_there: "an outcome is what the log says",
    claim_what_is_not_there: "an outcome is what the log says",
    read_half: "a read is of one snapshot",
    scan_less: "a read is of one snapshot",
    lose_an_update: "a transaction sees all before it",
    see_no_phantom: "a transaction sees all before it",
    look_on_arrival: "a condition holds where it was tested",
    read_the_past: "reads keep to real time",
    commit_in_the_past: "commits keep to real time",
    commit_in_the_past_unheard_of: "commits keep to real time",
    go_back: "a session does not go back",
    blame_the_innocent: "a conflict is one",
    blame_what_came_later: "a conflict is one",
    name_another_winner: "the winner is who won",
    fail_a_condition_that_held: "the conditions that failed did",
    shorten_a_list: "a list only grows",
    make_money: "the bank's total",
    forget_an_outcome: "an outcome is as of now",
    tell_two_ends: "a transaction has one end",
    delete_from_nowhere: "nothing from nowhere",
    read_what_was_deleted: "a read is of one snapshot",
    forget_a_deletion: "a read is of one snapshot",
    let_a_list_grow_over_its_deletion: "a list only grows",
    return_what_was_believed: "a read is of one snapshot",
    raise_what_was_believed: "a read is of one snapshot",
    commit_upon_a_wrong_belief: "a transaction sees all before it",
    cut_a_history_short: "a history is what was written",
    call_too_old_what_was_not: "too old is what was compacted away",
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


# ---- against the log


def log_of(*records: tuple[int, bytes]) -> tuple[Truth, Replayed]:
    truth = Truth(1, len(records), {gsn: (gsn, *record) for gsn, record in enumerate(records, 1)})
    return truth, Replayed(truth, {})


def a_commit(sequence: int, *, conditions: Any = ()) -> tuple[int, bytes]:
    return COMMIT, encode_commit(Commit(1, sequence, {CELL: b"%d" % sequence}, conditions=conditions))


FAILING = a_commit(2, conditions=(logdb.absent(CELL),))


def test_decision_records_with_a_gap_are_seen() -> None:
    told = DECISION, encode_decision(Decision(0, 2, [2]))
    truth, fresh = log_of(a_commit(1), FAILING, told)
    check_decisions(truth, fresh.replica)
    truth.records[3] = (3, DECISION, encode_decision(Decision(1, 2, [2])))
    with pytest.raises(Failure, match="leave no gap"):
        check_decisions(truth, fresh.replica)
    truth.records[3] = (3, DECISION, encode_decision(Decision(0, 2, [])))
    with pytest.raises(Failure, match="say what was decided"):
        check_decisions(truth, fresh.replica)


def test_verdicts_that_the_log_does_not_bear_out_are_seen() -> None:
    truth, fresh = log_of(a_commit(1), FAILING, a_commit(1))
    history = History()
    op = history.invoke("put", "client", 0)
    op.txn, op.version, op.verdict = TxnId(1, 1), 1, COMMITTED
    history.complete(op, "ok", 0)
    check_verdicts(history, truth, fresh)
    op.version = 3
    with pytest.raises(Failure, match="of the first record"):
        check_verdicts(history, truth, fresh)
    op.txn, op.version = TxnId(1, 2), 2
    with pytest.raises(Failure, match="what the log says"):
        check_verdicts(history, truth, fresh)
    op.txn, op.version, op.verdict, op.status = TxnId(1, 1), 0, None, "fail"
    with pytest.raises(Failure, match="never applied"):
        check_verdicts(history, truth, fresh)
