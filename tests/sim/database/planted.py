"""Bugs of the database layer that are planted on purpose, one at a time, to see the simulator find them.

Each is a plausible mistake, planted as a patch of one method and named after its function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from logdb import aio
from logdb.clients.lazy_snapshot import LazySnapshotReader
from logdb.clients.pages import RangePages
from logdb.cluster import messages
from logdb.cluster.client import commit_client
from logdb.cluster.client import requests as calls
from logdb.cluster.client.commit_client import CommitClient, PendingCommit
from logdb.cluster.client.leases import Leases
from logdb.cluster.client.read_client import ReadClient
from logdb.cluster.cold_reads import ColdReader
from logdb.cluster.compaction.archiver import Archiver
from logdb.cluster.compaction.client_leases import ClientLeases
from logdb.cluster.compaction.compactor import Compactor, Phase
from logdb.cluster.compaction.records import encode_ending
from logdb.cluster.mapping_server import decision_writer, query_executor, replica, summarizer
from logdb.cluster.mapping_server.bootstrap import Bootstrap
from logdb.cluster.mapping_server.cold_queue import ColdQueue, ParkedRead
from logdb.cluster.mapping_server.log_follower import LogFollower
from logdb.cluster.mapping_server.read_queue import ReadQueue
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cluster.mapping_server.summarizer import Summarizer
from logdb.cluster.mapping_server.sweeper import RetentionSweeper
from logdb.cluster.mapping_server.verdict_subscriptions import VerdictSubscriptions
from logdb.cluster.messages import Consistency, Decided, FutureVersionReply, LedgerRows, MapRows, Section
from logdb.cores.effects import Recall
from logdb.errors import Unavailable
from logdb.log import requests as log
from logdb.log.contract import Batch
from logdb.node.checkpoints import Checkpoints
from logdb.retention import sweep
from logdb.store import merging
from logdb.store.checkpoint import TOMBSTONE, Checkpoint, Row, Snapshot
from logdb.store.files import MapFiles
from logdb.store.key_map import LAST_VERSION, KeyMap
from logdb.store.manifest import Manifest
from logdb.store.overlay import Overlay
from logdb.store.range_deletions import NOTHING, RangeDeletions, RangeIndex
from logdb.store.records import COMMIT, ENDING, Commit, Decision, Place, TxnId, decode_commit
from logdb.store.runs import Group, GroupReader, RunReader
from logdb.txn import coordinator
from logdb.txn.coordinator import Coordinator
from logdb.txn.ledger import Ledger, Stretches
from logdb.txn.speculation import Misspeculated, SpeculatedWrites
from logdb.txn.validation import COMMITTED, Reason, Verdict
from tests.harness import planting
from tests.sim.database.keys import APPENDED
from tests.sim.database.run import simulate
from tests.sim.engines import ENGINES
from tests.sim.run import Outcome

PLANTED: planting.Plants = {}
CAUGHT_BY: dict[str, int] = {}


def planted(owner: Any, method: str, seed: int = 1) -> Callable[[planting.Wrong], planting.Wrong]:
    """As `planting.planted`. `seed`: the seed that last caught the bug."""

    def plant(wrong: planting.Wrong) -> planting.Wrong:
        CAUGHT_BY[planting.name_of(wrong)] = seed
        return planting.planted(owner, method, PLANTED)(wrong)

    return plant


def catch(name: str, engine: str = ENGINES[0], *, nodes: bool = False) -> tuple[str, Outcome | None, int]:
    """As `planting.catch`, for a bug of the database on this engine."""
    return planting.catch(name, PLANTED, CAUGHT_BY[name], partial(simulate, engine=engine, nodes=nodes))


# ---- deciding


@planted(CommitClient, "_append_record", seed=7)
def evaluate_conditions_on_arrival(
    right: Any, commits: CommitClient, one: PendingCommit, request: Any, writes: Any
) -> None:
    """Conditions are tested when the client sends the commit, not at the record's position in the log."""
    right(commits, one, request._replace(conditions=()), writes)


@planted(LogFollower, "_on_batch")
def decide_by_the_clock(right: Any, follower: LogFollower, result: Any) -> None:
    """Transactions that a server reads late by its own clock are not applied."""
    now = follower._context.now
    if isinstance(result, Batch) and any(now - record.time > 50_000_000 for record in result.records):
        result = result._replace(records=[record for record in result.records if now - record.time <= 50_000_000])
    right(follower, result)


@planted(Ledger, "is_new", seed=14)
def apply_a_transaction_twice(right: Any, ledger: Ledger, *where: int) -> bool:
    right(ledger, *where)
    return True


@planted(replica, "decode_commit")
def ignore_read_ranges(right: Any, payload: bytes, gsn: int) -> Commit:
    """Allows phantoms: scanned ranges are not validated."""
    commit: Commit = right(payload, gsn)
    return commit._replace(ranges=())


@planted(Coordinator, "deliver", seed=3)
def skip_validation_of_written_keys(right: Any, coordinator: Coordinator, gsn: int, commit: Commit) -> Any:
    """Allows lost updates: keys that were read and written are not validated."""
    reads = [key for key in commit.reads if key not in commit.writes]
    return right(coordinator, gsn, commit._replace(reads=reads))


@planted(Commit, "ordered_at", seed=13)
def make_keys_with_the_snapshot(right: Any, commit: Commit, gsn: int) -> Commit:
    """Appends are ordered by the snapshot of their transaction."""
    ordered: Commit = right(commit, commit.snapshot + 1 if commit.snapshot else gsn)
    return ordered


@planted(replica, "decode_commit", seed=14)
def leave_the_reads_of_appends_unvalidated(right: Any, payload: bytes, gsn: int) -> Commit:
    """Writers of a prefix do not conflict, and so neither do their reads of it."""
    commit: Commit = right(payload, gsn)
    return commit._replace(ranges=[one for one in commit.ranges if one != APPENDED])


@planted(coordinator, "folded_commit", seed=2)
def fold_without_the_value_before(right: Any, commit: Commit, before: Any) -> Commit:
    """As if the client had computed the value, and had not seen the key."""
    folded: Commit = right(commit, lambda key: None)
    return folded


@planted(summarizer, "values_of_folds", seed=16)
def summarize_without_values_of_folds(right: Any, *of: Any) -> list[Any]:
    return []


@planted(KeyMap, "newer", seed=3)
def validate_reads_of_single_keys_without_range_deletes(
    right: Any, key_map: KeyMap, key: bytes, since: int, at: int
) -> int:
    found = key_map.written_version(key, at)
    return found if found > since else 0


@planted(Coordinator, "_deletion_rows", seed=6)
def leave_range_deletes_out_of_checkpoints(right: Any, coordinator: Coordinator, *between: int) -> list[Any]:
    return []


@planted(RangeDeletions, "newest", seed=3)
def read_the_newest_range_delete_at_every_version(right: Any, deletions: RangeDeletions, key: bytes, at: int) -> int:
    found: int = right(deletions, key, 1 << 62)
    return found


@planted(KeyMap, "deleted_to", seed=29)
def compact_without_range_deletes(right: Any, key_map: KeyMap, version: int) -> RangeIndex:
    """Compactions and merges keep what range deletes have deleted, and the range deletes are dropped."""
    return NOTHING


@planted(Summarizer, "_take", seed=6)
def summarize_without_range_deletes(right: Any, summarizer: Summarizer, *taken: Any) -> None:
    right(summarizer, *taken)
    summarizer._deletes.clear()


@planted(KeyMap, "changed", seed=150)
def ignore_deletions_in_range_validation(right: Any, key_map: KeyMap, start: Any, end: Any, *span: int) -> Any:
    """A transaction that scanned a range does not conflict with deletions in it."""
    changed = right(key_map, start, end, *span)
    while changed is not None:
        entry = key_map.entry(changed.key, changed.version)
        if entry is not None and entry[1] is not None:
            return changed
        changed = right(key_map, changed.key + b"\0", end, *span)
    return None


@planted(KeyMap, "changed", seed=830)
def validate_scans_without_range_deletes(right: Any, key_map: KeyMap, start: Any, end: Any, *span: int) -> Any:
    """A transaction that scanned a range does not conflict with a range delete in it."""
    return key_map._written_between(start, end, *span)


# ---- speculation


@planted(SpeculatedWrites, "conditions", seed=25)
def commit_without_testing_speculated_values(right: Any, speculated: SpeculatedWrites, keys: Any) -> Any:
    """A commit carries no conditions for the speculated values that it read."""
    right(speculated, keys)
    return []


@planted(aio.TransactionScope, "__aexit__", seed=25)
async def return_results_of_misspeculated_reads(right: Any, commit_client: Any, kind: Any, *rest: Any) -> None:
    """Results and exceptions that depend on wrong speculated values reach the caller."""
    try:
        await right(commit_client, kind, *rest)
    except Misspeculated:
        if kind is None and commit_client._txn.writes:
            raise


@planted(LazySnapshotReader, "_verify", seed=25)
async def take_a_snapshot_without_verifying_speculation(
    right: Any, reader: LazySnapshotReader, speculated: SpeculatedWrites
) -> None:
    """The reader takes a snapshot without comparing it with the speculated values read before."""
    await reader._backend.begin(reader._work, None)
    reader._work.speculated = None


# ---- reading


@planted(ReadQueue, "on_reads", seed=25)
def read_without_requesting_the_tail(right: Any, queue: ReadQueue, message: Any, client: str) -> None:
    """A linearizable read is answered from the applied state."""
    reads = [
        read._replace(consistency=Consistency.SESSION) if read.consistency == Consistency.LINEARIZABLE else read
        for read in message.reads
    ]
    right(queue, messages.Reads(tuple(reads)), client)


@planted(ReadQueue, "_request_tail", seed=3)
def reuse_a_recent_tail(right: Any, queue: ReadQueue) -> None:
    """Reads within 30 ms of the last tail request are answered from the state applied at that request."""
    memory: Any = vars(queue)
    now = queue._context.now
    if queue._needing_tail and not queue._requesting_tail:
        if now - memory.get("requested_at", 0) < 30_000_000:
            waiting, queue._needing_tail = queue._needing_tail, []
            for parked in waiting:
                queue._park(memory["applied_then"], parked)
            return
        memory["requested_at"], memory["applied_then"] = now, queue._replica.applied
    right(queue)


@planted(ReadQueue, "_on_tail", seed=25)
def answer_reads_before_applying_up_to_the_tail(right: Any, queue: ReadQueue, tail: int) -> None:
    """The server does not wait until it has applied the log up to the tail."""
    right(queue, min(tail, queue._replica.applied))


@planted(ReadQueue, "on_reads", seed=3)
def answer_a_snapshot_read_before_its_version_is_applied(
    right: Any, queue: ReadQueue, message: Any, client: str
) -> None:
    for read in message.reads:
        if read.consistency == Consistency.SNAPSHOT and read.version > queue._replica.applied:
            queue._answers.answer(ParkedRead(client, read, queue._context.now))
        else:
            right(queue, messages.Reads((read,)), client)


@planted(ReadQueue, "on_reads", seed=121)
def answer_outcomes_before_applying_up_to_the_tail(right: Any, queue: ReadQueue, message: Any, client: str) -> None:
    for read in message.reads:
        if type(read.question) is messages.Outcome and not queue._answers.is_suspended:
            queue._answers.answer(ParkedRead(client, read, queue._context.now))
        else:
            right(queue, messages.Reads((read,)), client)


@planted(ReadClient, "_get", seed=3)
def read_the_parts_of_a_snapshot_at_different_versions(
    right: Any, readings: ReadClient, one: Any, request: Any
) -> None:
    """A large read is split into parts, each read at the newest version."""
    ask = readings._ask

    def newest(reading: Any, question: Any, consistency: Any, version: int, on_reply: Any) -> None:
        if consistency == Consistency.SNAPSHOT and request.consistency != Consistency.SNAPSHOT:
            consistency = Consistency.LINEARIZABLE
        ask(reading, question, consistency, version, on_reply)

    readings._ask = newest  # type: ignore[method-assign]
    try:
        right(readings, one, request)
    finally:
        readings._ask = newest  # type: ignore[method-assign]


@planted(ReadQueue, "on_reads", seed=3)
def reject_unapplied_versions_as_future(right: Any, queue: ReadQueue, message: Any, client: str) -> None:
    """A version that this server has not applied yet is rejected as a future one."""
    applied = queue._replica.applied
    for read in message.reads:
        is_ahead = read.consistency == Consistency.SNAPSHOT and read.version > applied
        if is_ahead and not queue._answers.is_suspended:
            queue._answers.put(ParkedRead(client, read, queue._context.now), 0, FutureVersionReply(applied))
        else:
            right(queue, messages.Reads((read,)), client)


# ---- verdicts


@planted(VerdictSubscriptions, "on_await", seed=24)
def push_the_verdict_of_another_transaction(
    right: Any, subscriptions: VerdictSubscriptions, message: Any, sender: str
) -> None:
    """Pushes the verdict of the client's newest transaction for every awaited one."""
    right(subscriptions, message, sender)
    for client, verdicts in subscriptions._verdicts.items():
        newest = verdicts[-1]
        subscriptions._verdicts[client] = [
            newest._replace(client=decided.client, sequence=decided.sequence) for decided in verdicts
        ]


@planted(Replica, "decided", seed=3)
def decide_by_the_last_copy_of_a_commit_record(right: Any, one: Replica, txn: TxnId) -> Decided | None:
    """A transaction that is in the log twice is reported as a conflict, although its first record committed."""
    decided: Decided | None = right(one, txn)
    session = one.coordinator.ledger.sessions.get(txn.client)
    if decided is not None and session is not None and one.coordinator.ledger.aborted:
        last = one.coordinator.ledger.aborted[-1]
        if last == one.applied and decided.verdict is COMMITTED:
            return decided._replace(version=last, verdict=Verdict(Reason.CONFLICT))
    return decided


@planted(CommitClient, "_appended", seed=3)
def report_an_append_as_committed(right: Any, commits: CommitClient, one: PendingCommit, result: Any) -> None:
    """A commit record is reported as committed as soon as it is appended."""
    if isinstance(result, log.AppendResult) and not one.is_ended:
        commits._end(one, one.to_result(Decided(*one.txn, result.gsns[0], COMMITTED, "")))
    else:
        right(commits, one, result)


@planted(CommitClient, "_expired", seed=3)
def report_unknown_outcomes_as_unavailable(right: Any, commits: CommitClient, one: PendingCommit) -> None:
    commits._end(one, Unavailable("the deadline passed"))


@planted(CommitClient, "_append_copy", seed=14)
def retry_with_a_new_transaction_id(right: Any, commits: CommitClient, one: PendingCommit) -> None:
    """A retried commit record gets a new id, so it may be applied twice."""
    if one.under_way or one.unknown:
        commit = decode_commit(one.record[1], 0)
        fresh = commits.new_id()
        one.record = COMMIT, commit_client.encode_commit(commit._replace(sequence=fresh.sequence))
    right(commits, one)


# ---- checkpoints and decision records


@planted(MappingServer, "start", seed=23)
def answer_reads_from_the_restored_checkpoint(right: Any, server: MappingServer, now: int) -> Any:
    """A restarted server answers from its checkpoint before it has read the log that earlier incarnations applied."""
    on_reads = server._handlers[messages.Reads]

    def answer_at_once(message: Any, client: str) -> None:
        if server.follower.records or not server.replica.applied or server.bootstrap.is_active:
            on_reads(message, client)
            return
        for read in message.reads:
            server.answers.answer(ParkedRead(client, read, server._context.now))

    server._handlers[messages.Reads] = answer_at_once
    return right(server, now)


@planted(Replica, "unsaved", seed=6)
def write_a_checkpoint_without_the_ledger(right: Any, one: Replica) -> Any:
    """The checkpoint on disk lacks the ledger."""
    return [row for row in right(one) if row[0][:1] > b"f" or row[0][:1] < b"a"]


@planted(KeyMap, "thaw", seed=2)
def drop_writes_applied_during_a_checkpoint(right: Any, key_map: KeyMap) -> None:
    """Writes applied while a checkpoint was written are lost from the map."""
    right(key_map)
    key_map.active = Overlay()


@planted(Bootstrap, "_take", seed=2)
def install_a_checkpoint_without_its_last_map_page(right: Any, bootstrap: Bootstrap, part: Any, cursor: Any) -> None:
    """The last page of map rows is empty."""
    if isinstance(part.part, MapRows) and part.next is not None and part.next.section != Section.MAP:
        part = part._replace(part=MapRows(()))
    right(bootstrap, part, cursor)


@planted(Replica, "slice", seed=7)
def send_the_newest_state_as_the_checkpoint_version(right: Any, one: Replica, version: int, *rest: Any) -> Any:
    """A checkpoint changes while another server copies it."""
    return right(one, one.applied, *rest)


@planted(Replica, "install", seed=2)
def install_a_checkpoint_without_the_ledger(right: Any, one: Replica, version: int, parts: Any) -> None:
    """A new server has no record of decided transactions."""
    right(one, version, [part for part in parts if not isinstance(part, LedgerRows)])


@planted(decision_writer, "encode_decision", seed=9)
def extend_a_decision_record_past_its_last_version(right: Any, decision: Decision) -> Any:
    """A decision record covers one more version than its writer had decided."""
    return right(decision._replace(through=decision.through + 1))


@planted(Checkpoints, "look", seed=4)
async def prune_before_the_checkpoint_covers_the_floor(right: Any, one: Checkpoints, replica: Replica) -> None:
    """Versions before the floor are pruned from the files before the checkpoint on disk covers that floor."""
    if one._checkpoint.pruned < replica.cleaned and one._under_way is None:
        one._cleaned = replica.cleaned
        await one._background(partial(one._prune, one._cleaned, one.map.deleted_to(one._cleaned)))
    await right(one, replica)


# ---- the files of a checkpoint


@planted(MapFiles, "sync", seed=2)
def name_a_run_before_it_is_synced(right: Any, files: MapFiles, number: int) -> None:
    """The manifest is durable, but a run that it lists is not."""


@planted(MapFiles, "replace_manifest", seed=15)
def rename_a_manifest_before_it_is_synced(right: Any, files: MapFiles, content: bytes) -> None:
    """The renamed manifest is not durable."""
    with mock.patch.object(files._disk, "sync"):
        right(files, content)


@planted(Checkpoint, "_commit", seed=128)
def remove_runs_that_the_manifest_names(right: Any, one: Checkpoint, manifest: Manifest, runs: Any) -> None:
    """Runs are removed while the current manifest still lists them."""
    for run in [run for run in one._snapshot.runs if run not in runs]:
        one._files.remove(run.info.number)
    right(one, manifest, runs)


def merged_wrongly(kept: Callable[[list[Row]], list[Row]]) -> Any:
    """A merge that applies `kept` to the versions of each key that a correct merge keeps."""
    right = merging._kept

    def wrong(*merge: Any) -> Any:
        return iter(kept(list(right(*merge))))

    return mock.patch.multiple(merging, put_again=lambda *_, **__: False, COPIED=frozenset(), _kept=wrong)


@planted(merging, "_merge_part", seed=6)
def drop_tombstones_that_hide_older_values(right: Any, *merge: Any) -> None:
    """A merge of some of the runs drops a tombstone that hides a value of an older run."""

    def kept(rows: list[Row]) -> list[Row]:
        while rows and rows[-1].kind == TOMBSTONE:
            rows.pop()
        return rows

    with merged_wrongly(kept):
        right(*merge)


@planted(merging, "_merge_part", seed=4)
def drop_versions_above_the_floor(right: Any, *merge: Any) -> None:
    """A merge keeps only the newest version of each key."""
    with merged_wrongly(lambda rows: rows[:1]):
        right(*merge)


@planted(merging, "kept_state", seed=6)
def drop_state_rows_of_older_runs_in_a_merge(right: Any, readers: Any, *, is_oldest: bool) -> Any:
    """Only the state rows of the newest run remain."""
    return right(readers[:1], is_oldest=is_oldest)


@planted(Snapshot, "reader", seed=4)
def read_runs_in_the_wrong_order(right: Any, snapshot: Snapshot) -> Any:
    """Runs are read oldest first."""
    return right(snapshot)[::-1]


@planted(GroupReader, "run_of", seed=2)
def look_up_keys_in_the_preceding_run(right: Any, group: GroupReader, key: bytes) -> RunReader:
    """The run that has the key is not searched."""
    found: RunReader = right(group, key)
    return group._in_order[group._in_order.index(found) - 1]


@planted(GroupReader, "_walk", seed=2)
def scan_one_run_of_a_group(right: Any, group: GroupReader, read: Any, *within: Any) -> Any:
    """A scan reads only the run in which the range begins."""
    looked_into: list[RunReader] = []

    def once(run: RunReader, *rest: Any) -> Any:
        looked_into.append(run)
        return read(run, *rest) if len(looked_into) == 1 else []

    return right(group, once, *within)


@planted(Group, "add", seed=4)
def put_overlapping_runs_into_one_group(right: Any, group: Group, run: Any) -> bool:
    """Only the first keys of runs are compared."""
    last, run.last = run.last, run.first
    try:
        return bool(right(group, run))
    finally:
        run.last = last


@planted(Checkpoint, "merge", seed=2)
def merge_with_a_floor_that_is_not_covered(right: Any, one: Checkpoint) -> Any:
    """A merge drops versions before a floor that the checkpoint does not cover yet (MAP-4)."""
    pruned, one.pruned = one.pruned, one.ceiling
    steps = list(right(one))
    one.pruned = pruned
    return iter(steps)


# ---- compaction


@planted(Replica, "_apply_compaction", seed=90)
def accept_the_ending_of_another_compaction(right: Any, one: Replica, gsn: int, tag: int, payload: bytes) -> None:
    """An ENDING ends the current compaction, even if it names another one."""
    right(one, gsn, tag, encode_ending(one.begun) if tag == ENDING and one.begun else payload)


@planted(Coordinator, "oldest_needed", seed=11)
def ignore_pins_in_compaction(right: Any, coordinator: Coordinator, floor: int) -> int:
    """Pinned versions are compacted."""
    return floor


@planted(ClientLeases, "versions", seed=4)
def ignore_client_leases_in_compaction(right: Any, leases: ClientLeases) -> list[int]:
    """Versions under a client's lease are compacted."""
    return []


@planted(Leases, "set", seed=4)
def do_not_send_leases_to_servers(right: Any, holds: Leases, holder: Any, version: int) -> None:
    """Clients keep their leases to themselves."""


@planted(Compactor, "look", seed=14)
def trim_after_being_overtaken(right: Any, compactor: Compactor) -> None:
    """A server whose compaction was overtaken trims as if its own had ended."""
    overtaken = compactor.phase is Phase.COPYING and compactor._replica.begun != compactor._began
    if overtaken and compactor._replica.ended != compactor._began:
        compactor._log.call(log.Trim(compactor._replica.coordinator.floor), lambda _: None)
    right(compactor)


@planted(Compactor, "_copy", seed=218)
def trim_before_the_parts_are_appended(right: Any, compactor: Compactor, began: int) -> None:
    """The log is trimmed before the compaction's parts are in it."""
    right(compactor, began)
    compactor._log.call(log.Trim(compactor._replica.coordinator.floor), lambda _: None)


@planted(Ledger, "used_before", seed=16)
def forget_every_id_below_the_highest(right: Any, ledger: Ledger, gsn: int) -> dict[int, Stretches]:
    """A compaction keeps the highest sequence number of each client, instead of stretches of used ones."""
    return {client: (0, used[-1]) for client, used in right(ledger, gsn).items()}


@planted(Compactor, "_part", seed=12)
def compact_without_the_ledger(right: Any, compactor: Compactor, part: Any, *shard: Any) -> Any:
    """A compaction writes no ledger rows."""
    return right(compactor, LedgerRows(()) if isinstance(part, LedgerRows) else part, *shard)


@planted(Replica, "_begin", seed=12)
def accept_commits_that_refer_to_dropped_values(right: Any, one: Replica, gsn: int, by: int, before: int) -> None:
    """Commit records may refer to values before the floor."""
    right(one, gsn, by, before)
    one.coordinator.reach = 0


@planted(Compactor, "_needed", seed=22)
def omit_moved_values_when_restating(
    right: Any, compactor: Compactor, keys: list[bytes], began: int, floor: int, *deleted: Any
) -> Any:
    """A value is restated only if it is before the floor; values that an earlier compaction moved are not."""
    for row in right(compactor, keys, began, floor, *deleted):
        if row.version < floor or not isinstance(row.value, Place) or row.value.gsn < floor:
            yield row


@planted(Compactor, "_map_parts", seed=12)
def compact_without_the_map(right: Any, compactor: Compactor, began: int, floor: int) -> Any:
    """A compaction writes no map rows, so keys that exist at the floor are lost."""
    return iter(())


@planted(Summarizer, "_append_with_rows", seed=11)
def summarize_without_rows_of_other_shards(right: Any, summarizer: Summarizer, summary: Any) -> Any:
    """A shard's summary lacks the transactions whose records are on other shards."""
    summarizer._rows.pop(summary.shard, None)
    return right(summarizer, summary)


@planted(Summarizer, "_append_with_rows", seed=11)
def summarize_without_aborted_records(right: Any, summarizer: Summarizer, summary: Any) -> Any:
    """A shard's summary lists no aborted records."""
    return right(summarizer, summary._replace(aborted=()))


# ---- the cold tier


@planted(Archiver, "_write", seed=13)
def trim_before_the_copy_is_verified(right: Any, archiver: Archiver, *segment: Any) -> Any:
    """A segment is stated in the log while it is being written."""
    steps = right(archiver, *segment)
    archiver._context.out.append(next(steps))
    yield from steps


@planted(Replica, "compactable", seed=143)
def compact_what_the_cold_tier_lacks(right: Any, one: Replica, before: int) -> int:
    """The floor of a compaction may pass what the tier has."""
    return one.coordinator.oldest_needed(before)


@planted(Ledger, "is_aborted")
def copy_commits_that_were_refused(right: Any, ledger: Ledger, gsn: int) -> bool:
    """The tier has commits that were not applied, too."""
    return False


@planted(ColdReader, "_segment_of", seed=67)
def read_one_segment_too_few(right: Any, reader: ColdReader, version: int, recall: Recall) -> int:
    """An old version is read before the segment that has it is folded."""
    return max(right(reader, version, recall) - 1, 1)


@planted(ColdReader, "_from_view", seed=13)
def read_old_versions_at_the_end_of_the_tier(
    right: Any, reader: ColdReader, question: Any, version: int, oldest: int, recall: Recall
) -> Any:
    """The tier is read at its newest version."""
    return right(reader, question, recall.through, oldest, recall)


@planted(ColdReader, "_from_view", seed=13)
def end_histories_at_a_window(
    right: Any, reader: ColdReader, question: Any, version: int, oldest: int, recall: Recall
) -> Any:
    """A history has no versions before the window of the view that answers."""
    return reader._from_window(question, version, oldest, recall)[0]


@planted(ColdReader, "_commits", seed=485)
def skip_the_rest_of_a_page_of_commits(right: Any, reader: ColdReader, after: int, recall: Recall) -> Any:
    """A page of commits that was cut ends where its segment ends."""
    page = right(reader, after, recall)
    if not page.commits:
        return page
    return page._replace(end=reader._segments.head(reader._segment_of(after + 1, recall)).version + 1)


@planted(ColdQueue, "of", seed=43)
def end_histories_at_the_floor(right: Any, queue: ColdQueue, parked: ParkedRead, version: int, result: Any) -> Any:
    """A history has no versions before the floor."""
    return result if isinstance(result, messages.Versions) else right(queue, parked, version, result)


@planted(ColdQueue, "of", seed=269)
def refuse_versions_of_the_tier(right: Any, queue: ColdQueue, parked: ParkedRead, version: int, result: Any) -> Any:
    """A version before the floor is refused."""
    return result if isinstance(parked.read.question, messages.Get) else right(queue, parked, version, result)


# ---- several ranges in one request


@planted(query_executor, "_multi_rows", seed=3)
def read_later_ranges_at_the_newest_version(
    right: Any, key_map: KeyMap, request: messages.MultiScan, at: int, budget: query_executor.Budget
) -> Any:
    """Only the first range is read at the requested version."""
    again = query_executor.Budget(budget.max_bytes)
    found, now = right(key_map, request, at, budget), right(key_map, request, LAST_VERSION, again)
    return messages.MultiRows((*found.ranges[:1], *now.ranges[1:]))


@planted(ReadClient, "_multi_scan", seed=13)
def read_each_page_at_the_newest_version(
    right: Any, readings: ReadClient, reading: Any, request: calls.MultiScan
) -> None:
    """Each page is read at the session's newest version."""
    right(readings, reading, request._replace(consistency=Consistency.SESSION, version=0))


@planted(RangePages, "take", seed=3)
def drop_the_rest_of_a_truncated_range(right: Any, pages: RangePages, found: Any) -> None:
    """A range that did not fit in a page is treated as complete."""
    right(pages, [(rows, None) for rows, _ in found])


# ---- retention


@planted(RetentionSweeper, "_write", seed=2)
def delete_keys_that_were_written_again(right: Any, sweeper: RetentionSweeper, request: Any) -> None:
    """The commits of a sweep have no conditions."""
    right(sweeper, request._replace(conditions=()))


@planted(sweep, "expired")
def delete_up_to_the_last_mark(right: Any, marks: Any, limits: Any, now_ns: int) -> int:
    """Rows expire when they are marked."""
    return len(marks)


@planted(sweep, "expired", seed=5)
def truncate_one_mark_too_far(right: Any, marks: Any, limits: Any, now_ns: int) -> int:
    """A log is truncated at the first mark that is kept."""
    count: int = right(marks, limits, now_ns)
    return min(count + (limits.size_bytes is not None), len(marks))


@planted(RetentionSweeper, "look", seed=12)
def end_sweeps_with_the_first_commit(right: Any, sweeper: RetentionSweeper) -> None:
    """A server stops to sweep when a commit of a sweep was applied."""
    awaited = sweeper._awaited
    right(sweeper)
    if awaited is not None and sweeper._awaited is None:
        sweeper._number += 1
        sweeper._timer.at = None
