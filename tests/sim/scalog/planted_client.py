"""The planted bugs of the client: plausible mistakes, each a patch of one method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from logdb.cores.context import ClientContext
from logdb.log import requests as calls
from logdb.log.contract import Batch, NotOfThisShard
from logdb.log.scalog.client.appends import AppendClient, OutcomeSearch, PendingAppend, ShardPortion
from logdb.log.scalog.client.batches import EXCLUDED, Chunk, SequenceNumbers
from logdb.log.scalog.client.batches import Batch as Sent
from logdb.log.scalog.client.directory import Directory
from logdb.log.scalog.client.log_client import LogClient
from logdb.log.scalog.client.read_client import ReadClient
from logdb.log.scalog.client.segment_appender import SegmentAppender
from logdb.log.scalog.client.subscription import LogSubscription
from logdb.log.scalog.messages import Rejected, RejectReason, TailResponse, View
from tests.harness import planting

PLANTED: planting.Plants = {}
planted = partial(planting.planted, among=PLANTED, kind="client: ")


def reroute(appender: SegmentAppender) -> None:
    """Treat all records in flight as excluded from this segment, so that the client may append them to another one."""
    for batch in list(appender.flight.values()):
        for first, count in batch.open_runs():
            appender._decide(first, first + count, EXCLUDED)


@planted(AppendClient, "_finish")
def report_pending_records_as_never_appended(
    right: Callable[..., None], appends: AppendClient, append: PendingAppend
) -> None:
    for call, _ in append.outcome_calls:
        appends._context.answer(call, [gsn if gsn > 0 else None for gsn in append.gsns])
    append.outcome_calls = ()


@planted(OutcomeSearch, "take")
def assume_contiguous_gsns_of_an_append(
    right: Callable[..., None], search: OutcomeSearch, first: int, count: int, gsn: int
) -> None:
    """The GSNs of missing records are computed from one that was found."""
    right(search, first, count, gsn)
    if search.found:
        one = next(iter(search.found.items()))
        search.found |= {number: one[1] + number - one[0] for number in search.missing}
        search.missing.clear()


@planted(SegmentAppender, "_retransmit")
def reroute_after_a_timeout(right: Callable[..., Any], appender: SegmentAppender) -> None:
    now, timeout = appender._context.now, appender._context.config.answer_timeout_ns
    if not appender.sealed and any(now - batch.sent_at >= timeout for batch in appender.flight.values()):
        reroute(appender)
    right(appender)


@planted(SegmentAppender, "on_rejected")
def treat_busy_as_never(right: Callable[..., Any], appender: SegmentAppender, answer: Rejected, sender: str) -> None:
    """One Busy reply excludes all records in flight to the segment."""
    right(appender, answer, sender)
    if answer.why is RejectReason.BUSY:
        reroute(appender)


@planted(SegmentAppender, "seal")
def treat_sealed_as_never(right: Callable[..., Any], appender: SegmentAppender) -> None:
    if not appender.sealed:
        right(appender)
        reroute(appender)


@planted(SegmentAppender, "_send")
def resend_under_new_numbers(right: Callable[..., Any], appender: SegmentAppender, batch: Sent) -> None:
    if batch.attempts:
        del appender.flight[batch.sequence]
        number = batch.sequence = appender._numbers.take(batch.count)
        for chunk in batch.chunks:
            chunk.sequence = number
            number += len(chunk.records)
        appender.flight[batch.sequence] = batch
    right(appender, batch)


@planted(SequenceNumbers, "settled")
def settle_numbers_that_were_sent(right: Callable[..., int], numbers: SequenceNumbers) -> int:
    return numbers.next


@planted(AppendClient, "_assign_next")
def assign_all_chunks_at_once(right: Callable[..., Any], appends: AppendClient, portion: ShardPortion) -> None:
    while portion.pending:
        right(appends, portion)


@planted(AppendClient, "on_ordered")
def acknowledge_the_start_of_a_chunk_for_any_part(
    right: Callable[..., Any], appends: AppendClient, chunk: Chunk, start: int, gsns: Sequence[int], shard: int
) -> None:
    right(appends, chunk, 0, gsns, shard)


@planted(AppendClient, "_expired")
def report_sent_appends_as_unavailable(right: Callable[..., Any], appends: AppendClient, append: Any) -> None:
    append.sent = False
    right(appends, append)


@planted(LogSubscription, "_explain")
def order_without_waiting_for_silent_shards(right: Callable[..., Any], following: LogSubscription) -> Any:
    """The next record received from any shard is delivered as the next one of the log."""
    if following._ready:
        following.position = following._ready[0][0]
        return following._next_batch()
    return right(following)


@planted(LogSubscription, "_next_batch")
def skip_trimmed_records(right: Callable[..., Any], following: LogSubscription) -> Batch | Exception | None:
    following.position = max(following.position, following._directory.oldest)
    result: Batch | Exception | None = right(following)
    return result


@planted(ReadClient, "_retry")
def trust_one_replica_that_lacks_a_record(
    right: Callable[..., Any], reads: ReadClient, call: int, request: calls.Read, damaged: dict[str, str]
) -> None:
    reads._context.answer(call, NotOfThisShard(request.gsn, request.shard))


@planted(LogClient, "_tail")
def reuse_an_earlier_tail(right: Callable[..., None], client: LogClient, call: int, request: calls.Tail) -> None:
    """A client answers later tail calls from its first one."""
    first_answers: list[TailResponse] = vars(client).setdefault("first_answers", [])
    if first_answers:
        client._context.open(call, None, lambda: None)
        client._context.answer(call, first_answers[0].last)
        return
    ordering_client = client._ordering_client

    def keep(tail: TailResponse) -> None:
        first_answers.append(tail)
        client._context.answer(call, tail.last)

    client._request(call, request.deadline, lambda: ordering_client.tail(keep), TimeoutError())


@planted(Directory, "adopt")
def adopt_an_older_view(right: Callable[..., bool], directory: Directory, view: View) -> bool:
    directory.view = None
    return right(directory, view)


@planted(ClientContext, "__init__")
def reuse_numbers_after_a_restart(right: Callable[..., None], context: ClientContext, config: Any, rng: Any) -> None:
    """A restarted client has the number of its predecessor, so servers and client confuse their appends."""
    right(context, config, rng)
    context._serial = 0
    context.client = 1 + sum(config.address.encode())


@planted(SequenceNumbers, "retain")
def settle_numbers_of_unknown_appends(right: Callable[..., None], numbers: SequenceNumbers, first: int) -> None:
    """The numbers of appends with unknown outcome are settled, so servers drop their positions."""
