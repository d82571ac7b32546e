"""Bugs of the database layer that are planted on purpose, one at a time, to see the simulator find them.

Each is a mistake that somebody could make, a patch of one method; its name is its function's.
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
from logdb.cluster.client.query_client import QueryClient
from logdb.cluster.client.read_client import ReadClient
from logdb.cluster.compaction.client_leases import ClientLeases
from logdb.cluster.compaction.compactor import Compactor, Phase
from logdb.cluster.compaction.records import encode_ending
from logdb.cluster.mapping_server import decision_writer, query_executor, replica
from logdb.cluster.mapping_server.answer_queue import ParkedRead
from logdb.cluster.mapping_server.bootstrap import Bootstrap
from logdb.cluster.mapping_server.log_follower import LogFollower
from logdb.cluster.mapping_server.read_queue import ReadQueue
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cluster.mapping_server.summarizer import Summarizer
from logdb.cluster.mapping_server.verdict_subscriptions import VerdictSubscriptions
from logdb.cluster.messages import Consistency, Decided, FutureVersionReply, LedgerRows, MapRows, Section
from logdb.errors import Unavailable
from logdb.log import requests as log
from logdb.log.contract import Batch
from logdb.node.checkpoints import Checkpoints
from logdb.store import merging
from logdb.store.checkpoint import TOMBSTONE, Checkpoint, Row, Snapshot
from logdb.store.files import MapFiles
from logdb.store.key_map import KeyMap
from logdb.store.manifest import Manifest
from logdb.store.overlay import Overlay
from logdb.store.records import COMMIT, ENDING, Commit, Decision, Place, TxnId, decode_commit
from logdb.store.runs import Group, GroupReader, RunReader
from logdb.txn.coordinator import Coordinator
from logdb.txn.ledger import Ledger
from logdb.txn.speculation import Misspeculated, SpeculatedWrites
from logdb.txn.validation import COMMITTED, Reason, Verdict
from tests.harness import planting
from tests.sim.database.run import simulate
from tests.sim.engines import ENGINES
from tests.sim.run import Outcome

PLANTED: planting.Plants = {}
CAUGHT_BY: dict[str, int] = {}


def planted(owner: Any, method: str, seed: int = 1) -> Callable[[planting.Wrong], planting.Wrong]:
    """As `planting.planted`. `seed` has caught it before."""

    def plant(wrong: planting.Wrong) -> planting.Wrong:
        CAUGHT_BY[planting.name_of(wrong)] = seed
        return planting.planted(owner, method, PLANTED)(wrong)

    return plant


def catch(name: str, engine: str = ENGINES[0]) -> tuple[str, Outcome | None, int]:
    """As `planting.catch`, for a bug of the database on this engine."""
    return planting.catch(name, PLANTED, CAUGHT_BY[name], partial(simulate, engine=engine))


# ---- deciding


@planted(CommitClient, "_append_record", seed=9)
def evaluate_conditions_on_arrival(
    right: Any, commits: CommitClient, one: PendingCommit, request: Any, writes: Any
) -> None:
    """The client has looked, so the condition held: it is not tested again where the record stands."""
    right(commits, one, request._replace(conditions=()), writes)


@planted(LogFollower, "_on_batch")
def decide_by_the_clock(right: Any, follower: LogFollower, result: Any) -> None:
    """Transactions that come late are not applied."""
    now = follower._context.now
    if isinstance(result, Batch) and any(now - record.time > 50_000_000 for record in result.records):
        result = result._replace(records=[record for record in result.records if now - record.time <= 50_000_000])
    right(follower, result)


@planted(Ledger, "is_new", seed=14)
def apply_a_transaction_twice(right: Any, ledger: Ledger, *where: int) -> bool:
    right(ledger, *where)
    return True


@planted(replica, "decode_commit", seed=7)
def forget_the_ranges_read(right: Any, payload: bytes) -> Commit:
    """Phantoms."""
    commit: Commit = right(payload)
    return commit._replace(ranges=())


@planted(Coordinator, "deliver", seed=3)
def do_not_validate_what_is_written(right: Any, coordinator: Coordinator, gsn: int, commit: Commit) -> Any:
    """Lost updates."""
    reads = [key for key in commit.reads if key not in commit.writes]
    return right(coordinator, gsn, commit._replace(reads=reads))


@planted(KeyMap, "changed", seed=16)
def take_a_deletion_for_no_change_of_a_range(right: Any, key_map: KeyMap, start: Any, end: Any, *span: int) -> Any:
    """Who scanned it does not notice that a key has gone."""
    changed = right(key_map, start, end, *span)
    while changed is not None:
        entry = key_map.entry(changed.key, changed.version)
        if entry is not None and entry[1] is not None:
            return changed
        changed = right(key_map, changed.key + b"\0", end, *span)
    return None


# ---- believing


@planted(SpeculatedWrites, "conditions", seed=25)
def commit_upon_a_belief_without_testing_it(right: Any, speculated: SpeculatedWrites, keys: Any) -> Any:
    """What this process has written is what there is."""
    right(speculated, keys)
    return []


@planted(aio.Committing, "__aexit__", seed=25)
async def let_a_belief_have_consequences(right: Any, commit_client: Any, kind: Any, *rest: Any) -> None:
    """What was read in vain is returned, or raised, as if it had been there."""
    try:
        await right(commit_client, kind, *rest)
    except Misspeculated:
        if kind is None and commit_client._txn.writes:
            raise


@planted(LazySnapshotReader, "_verify", seed=25)
async def read_on_without_verifying_a_belief(
    right: Any, reader: LazySnapshotReader, speculated: SpeculatedWrites
) -> None:
    """A snapshot is taken, and what was believed need not be in it."""
    await reader._backend.begin(reader._work, None)
    reader._work.speculated = None


# ---- reading


@planted(ReadQueue, "on_reads", seed=25)
def read_before_the_tail(right: Any, queue: ReadQueue, message: Any, client: str) -> None:
    """A linearizable read is answered with what there is."""
    reads = [
        read._replace(consistency=Consistency.SESSION) if read.consistency == Consistency.LINEARIZABLE else read
        for read in message.reads
    ]
    right(queue, messages.Reads(tuple(reads)), client)


@planted(ReadQueue, "_request_tail", seed=3)
def remember_the_tail_for_a_while(right: Any, queue: ReadQueue) -> None:
    """Reads that come soon after others are answered with the state of now: the tail was requested just before."""
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
def answer_when_the_tail_is_known(right: Any, queue: ReadQueue, tail: int) -> None:
    """It does not wait until it has applied that far."""
    right(queue, min(tail, queue._replica.applied))


@planted(QueryClient, "saw", seed=23)
def forget_the_session(right: Any, asking: QueryClient, version: int) -> None:
    """Who goes to another server begins with nothing."""


@planted(ReadQueue, "on_reads", seed=3)
def read_a_snapshot_before_it_is_whole(right: Any, queue: ReadQueue, message: Any, client: str) -> None:
    for read in message.reads:
        if read.consistency == Consistency.SNAPSHOT and read.version > queue._replica.applied:
            queue._answers.answer(ParkedRead(client, read, queue._context.now))
        else:
            right(queue, messages.Reads((read,)), client)


@planted(ReadQueue, "on_reads", seed=13)
def answer_an_outcome_before_the_tail(right: Any, queue: ReadQueue, message: Any, client: str) -> None:
    for read in message.reads:
        if type(read.question) is messages.Outcome and not queue._answers.is_suspended:
            queue._answers.answer(ParkedRead(client, read, queue._context.now))
        else:
            right(queue, messages.Reads((read,)), client)


@planted(ReadClient, "_get", seed=3)
def read_the_parts_of_a_snapshot_at_different_versions(
    right: Any, readings: ReadClient, one: Any, request: Any
) -> None:
    """Many keys are read in parts, each at the newest version."""
    ask = readings._ask

    def newest(reading: Any, question: Any, consistency: Any, version: int, told: Any) -> None:
        if consistency == Consistency.SNAPSHOT and request.consistency != Consistency.SNAPSHOT:
            consistency = Consistency.LINEARIZABLE
        ask(reading, question, consistency, version, told)

    readings._ask = newest  # type: ignore[method-assign]
    try:
        right(readings, one, request)
    finally:
        readings._ask = newest  # type: ignore[method-assign]


@planted(ReadQueue, "on_reads", seed=14)
def refuse_a_read_ahead_too_early(right: Any, queue: ReadQueue, message: Any, client: str) -> None:
    """A version that this server has not applied is called a future one."""
    applied = queue._replica.applied
    for read in message.reads:
        is_ahead = read.consistency == Consistency.SNAPSHOT and read.version > applied
        if is_ahead and not queue._answers.is_suspended:
            queue._answers.put(ParkedRead(client, read, queue._context.now), 0, FutureVersionReply(applied))
        else:
            right(queue, messages.Reads((read,)), client)


# ---- verdicts


@planted(VerdictSubscriptions, "on_await", seed=23)
def push_the_verdict_of_another_transaction(
    right: Any, subscriptions: VerdictSubscriptions, message: Any, sender: str
) -> None:
    """Of the client's newest, whichever it waits for."""
    right(subscriptions, message, sender)
    for client, verdicts in subscriptions._verdicts.items():
        newest = verdicts[-1]
        subscriptions._verdicts[client] = [
            newest._replace(client=decided.client, sequence=decided.sequence) for decided in verdicts
        ]


@planted(Replica, "decided", seed=3)
def give_the_last_copy_for_the_first(right: Any, one: Replica, txn: TxnId) -> Decided | None:
    """A transaction that stands in the log twice is said to be a duplicate, so not committed."""
    decided: Decided | None = right(one, txn)
    session = one.coordinator.ledger.sessions.get(txn.client)
    if decided is not None and session is not None and one.coordinator.ledger.aborted:
        last = one.coordinator.ledger.aborted[-1]
        if last == one.applied and decided.verdict is COMMITTED:
            return decided._replace(version=last, verdict=Verdict(Reason.CONFLICT))
    return decided


@planted(CommitClient, "_appended", seed=3)
def take_an_append_for_a_commit(right: Any, commits: CommitClient, one: PendingCommit, result: Any) -> None:
    """What is in the log has committed."""
    if isinstance(result, log.AppendResult) and not one.is_ended:
        commits._end(one, one.to_result(Decided(*one.txn, result.gsns[0], COMMITTED, "")))
    else:
        right(commits, one, result)


@planted(CommitClient, "_expired", seed=3)
def call_unavailable_what_nobody_knows(right: Any, commits: CommitClient, one: PendingCommit) -> None:
    commits._end(one, Unavailable("the deadline passed"))


@planted(CommitClient, "_append_copy", seed=14)
def send_again_as_a_new_transaction(right: Any, commits: CommitClient, one: PendingCommit) -> None:
    """A copy gets an id of its own."""
    if one.under_way or one.unknown:
        commit = decode_commit(one.record[1])
        fresh = commits.new_id()
        one.record = COMMIT, commit_client.encode_commit(commit._replace(sequence=fresh.sequence))
    right(commits, one)


# ---- checkpoints and decision records


@planted(MappingServer, "start", seed=27)
def answer_for_another_incarnation(right: Any, server: MappingServer, now: int) -> Any:
    """A server that has restarted takes its checkpoint for all there is, whatever an earlier incarnation has shown."""
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
def keep_a_checkpoint_without_the_ledger(right: Any, one: Replica) -> Any:
    """On disk."""
    return [row for row in right(one) if row[0][:1] > b"f" or row[0][:1] < b"a"]


@planted(KeyMap, "thaw", seed=2)
def forget_what_is_on_its_way_to_the_disk(right: Any, key_map: KeyMap) -> None:
    """What was applied while a checkpoint was written."""
    right(key_map)
    key_map.active = Overlay()


@planted(Bootstrap, "_take", seed=2)
def take_a_checkpoint_without_its_last_page(right: Any, bootstrap: Bootstrap, part: Any, cursor: Any) -> None:
    """Of the map."""
    if isinstance(part.part, MapRows) and part.next is not None and part.next.section != Section.MAP:
        part = part._replace(part=MapRows(()))
    right(bootstrap, part, cursor)


@planted(Replica, "slice", seed=7)
def stream_the_newest_state_as_that_of_a_version(right: Any, one: Replica, version: int, *rest: Any) -> Any:
    """A checkpoint that moves while it is copied."""
    return right(one, one.applied, *rest)


@planted(Replica, "install", seed=2)
def copy_the_map_and_not_the_ledger(right: Any, one: Replica, version: int, parts: Any) -> None:
    """A new server does not know which transactions it has seen."""
    right(one, version, [part for part in parts if not isinstance(part, LedgerRows)])


@planted(decision_writer, "encode_decision", seed=9)
def believe_a_decision_record_beyond_its_reach(right: Any, decision: Decision) -> Any:
    """It is taken to reach further than its writer had got."""
    return right(decision._replace(through=decision.through + 1))


@planted(Checkpoints, "look", seed=4)
async def prune_before_covering(right: Any, one: Checkpoints, replica: Replica) -> None:
    """The tables lose what only reads before the floor see, and do not know of that floor yet."""
    if one._checkpoint.pruned < replica.cleaned and one._under_way is None:
        one._cleaned = replica.cleaned
        await one._background(one._prune)
    await right(one, replica)


# ---- the files of a checkpoint


@planted(MapFiles, "sync")
def name_a_run_before_it_is_synced(right: Any, files: MapFiles, number: int) -> None:
    """The manifest is durable, what it names is not."""


@planted(MapFiles, "replace_manifest", seed=15)
def rename_a_manifest_before_it_is_synced(right: Any, files: MapFiles, content: bytes) -> None:
    """What has the name is not durable."""
    with mock.patch.object(files._disk, "sync"):
        right(files, content)


@planted(Checkpoint, "_commit", seed=41)
def remove_runs_that_the_manifest_names(right: Any, one: Checkpoint, manifest: Manifest, runs: Any) -> None:
    """Until it is replaced."""
    for run in [run for run in one._snapshot.runs if run not in runs]:
        one._files.remove(run.info.number)
    right(one, manifest, runs)


def merged_wrongly(kept: Callable[[list[Row]], list[Row]]) -> Any:
    """A merge that keeps of each key what `kept` makes of the versions that it should keep."""
    right = merging._kept

    def wrong(rows: Any, floor: int, is_oldest: bool) -> Any:
        return iter(kept(list(right(rows, floor, is_oldest))))

    return mock.patch.multiple(merging, put_again=lambda *_, **__: False, COPIED=frozenset(), _kept=wrong)


@planted(merging, "_merge_part", seed=6)
def drop_deletions_whatever_is_below(right: Any, *merge: Any) -> None:
    """A merge of some of the runs leaves out a deletion that hides what an older run has."""

    def kept(rows: list[Row]) -> list[Row]:
        while rows and rows[-1].kind == TOMBSTONE:
            rows.pop()
        return rows

    with merged_wrongly(kept):
        right(*merge)


@planted(merging, "_merge_part", seed=4)
def drop_versions_above_the_floor(right: Any, *merge: Any) -> None:
    """The newest one is what people read."""
    with merged_wrongly(lambda rows: rows[:1]):
        right(*merge)


@planted(merging, "kept_state", seed=6)
def lose_rows_of_state_in_a_merge(right: Any, readers: Any, *, is_oldest: bool) -> Any:
    """Only those of the newest run are there."""
    return right(readers[:1], is_oldest=is_oldest)


@planted(Snapshot, "reader", seed=4)
def read_runs_in_the_wrong_order(right: Any, snapshot: Snapshot) -> Any:
    """The oldest first."""
    return right(snapshot)[::-1]


@planted(GroupReader, "run_of", seed=2)
def look_into_the_run_before_the_right_one(right: Any, group: GroupReader, key: bytes) -> RunReader:
    """A run is excluded that has the key."""
    found: RunReader = right(group, key)
    return group._in_order[group._in_order.index(found) - 1]


@planted(GroupReader, "_walk", seed=2)
def scan_one_run_of_a_group(right: Any, group: GroupReader, read: Any, *within: Any) -> Any:
    """The one where the range begins; its neighbours are forgotten."""
    looked_into: list[RunReader] = []

    def once(run: RunReader, *rest: Any) -> Any:
        looked_into.append(run)
        return read(run, *rest) if len(looked_into) == 1 else []

    return right(group, once, *within)


@planted(Group, "add", seed=4)
def group_runs_that_overlap(right: Any, group: Group, run: Any) -> bool:
    """Only where a run begins is compared."""
    last, run.last = run.last, run.first
    try:
        return bool(right(group, run))
    finally:
        run.last = last


@planted(Checkpoint, "merge", seed=4)
def merge_with_a_floor_that_is_not_covered(right: Any, one: Checkpoint) -> Any:
    """It leaves out what only reads before a later floor could not see (MAP-4)."""
    pruned, one.pruned = one.pruned, one.ceiling
    steps = list(right(one))
    one.pruned = pruned
    return iter(steps)


# ---- compaction


@planted(Replica, "_apply_compaction", seed=56)
def let_an_ending_end_another_compaction(right: Any, one: Replica, gsn: int, tag: int, payload: bytes) -> None:
    """Whatever is under way."""
    right(one, gsn, tag, encode_ending(one.begun) if tag == ENDING and one.begun else payload)


@planted(Coordinator, "oldest_needed", seed=11)
def compact_what_is_pinned(right: Any, coordinator: Coordinator, floor: int) -> int:
    """Pins hold nothing back."""
    return floor


@planted(ClientLeases, "versions", seed=4)
def compact_what_clients_hold(right: Any, leases: ClientLeases) -> list[int]:
    """Leases are ignored."""
    return []


@planted(Leases, "hold", seed=4)
def hold_and_tell_no_server(right: Any, holds: Leases, holder: Any, version: int) -> None:
    """The servers know by themselves."""


@planted(Compactor, "look", seed=14)
def trim_when_another_one_has_begun(right: Any, compactor: Compactor) -> None:
    """Who is overtaken trims, as if its own compaction had ended."""
    overtaken = compactor.phase is Phase.COPYING and compactor._replica.begun != compactor._began
    if overtaken and compactor._replica.ended != compactor._began:
        compactor._log.call(log.Trim(compactor._replica.coordinator.floor), lambda _: None)
    right(compactor)


@planted(Compactor, "_copy", seed=218)
def trim_before_the_copies_are_whole(right: Any, compactor: Compactor, began: int) -> None:
    """They will be there in a moment."""
    right(compactor, began)
    compactor._log.call(log.Trim(compactor._replica.coordinator.floor), lambda _: None)


@planted(Compactor, "_part", seed=12)
def compact_without_the_ledger(right: Any, compactor: Compactor, part: Any, *shard: Any) -> Any:
    """The map is what people read."""
    return right(compactor, LedgerRows(()) if isinstance(part, LedgerRows) else part, *shard)


@planted(Replica, "_begin", seed=12)
def let_commits_refer_to_what_was_dropped(right: Any, one: Replica, gsn: int, by: int, before: int) -> None:
    """Their values were there when they were appended."""
    right(one, gsn, by, before)
    one.coordinator.reach = 0


@planted(Compactor, "_needed", seed=64)
def restate_too_little(right: Any, compactor: Compactor, keys: list[bytes], began: int, floor: int) -> Any:
    """A value is restated only if it stands before the floor now, not where a compaction has moved it."""
    for row in right(compactor, keys, began, floor):
        if row.version < floor or not isinstance(row.value, Place) or row.value.gsn < floor:
            yield row


@planted(Compactor, "_map_parts", seed=12)
def compact_without_the_map(right: Any, compactor: Compactor, began: int, floor: int) -> Any:
    """What was live at the floor is forgotten."""
    return iter(())


@planted(Summarizer, "_append_with_rows", seed=11)
def tell_a_shard_without_the_rows_of_others(right: Any, summarizer: Summarizer, summary: Any) -> Any:
    """An object's transactions stand on its shard."""
    summarizer._rows.pop(summary.shard, None)
    return right(summarizer, summary)


@planted(Summarizer, "_append_with_rows", seed=11)
def tell_a_shard_that_all_was_applied(right: Any, summarizer: Summarizer, summary: Any) -> Any:
    """What was refused is rare."""
    return right(summarizer, summary._replace(aborted=()))


# ---- several ranges in one question


@planted(query_executor, "_multi_rows", seed=7)
def read_later_ranges_as_of_now(right: Any, one: Replica, asked: messages.MultiScan, at: int, most: int) -> Any:
    """Each is right by itself."""
    found, now = right(one, asked, at, most), right(one, asked, one.applied, most)
    return messages.MultiRows((*found.ranges[:1], *now.ranges[1:]))


@planted(ReadClient, "_multi_scan", seed=7)
def read_each_page_of_ranges_as_of_now(
    right: Any, readings: ReadClient, reading: Any, request: calls.MultiScan
) -> None:
    """A session is good enough."""
    right(readings, reading, request._replace(consistency=Consistency.SESSION, version=0))


@planted(RangePages, "take", seed=3)
def forget_what_a_page_left_over(right: Any, pages: RangePages, found: Any) -> None:
    """Ranges are short."""
    right(pages, [(rows, False) for rows, _ in found])
