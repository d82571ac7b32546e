"""The planted bugs of the client: mistakes that somebody could make, each a patch of one method."""

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
from logdb.log.scalog.client.subscriber import ActiveSubscription
from logdb.log.scalog.messages import Rejected, RejectReason, TailResponse, View
from tests.harness import planting

PLANTED: planting.Plants = {}
planted = partial(planting.planted, among=PLANTED, kind="client: ")


def elsewhere(appender: SegmentAppender) -> None:
    """Have everything that is under way go to another segment, perhaps."""
    for batch in list(appender.flight.values()):
        for first, count in batch.open_runs():
            appender._decide(first, first + count, EXCLUDED)


@planted(AppendClient, "_finish")
def call_never_what_is_not_known_yet(right: Callable[..., None], appends: AppendClient, append: PendingAppend) -> None:
    for call, _ in append.outcome_calls:
        appends._context.answer(call, [gsn if gsn > 0 else None for gsn in append.gsns])
    append.outcome_calls = ()


@planted(OutcomeSearch, "take")
def believe_that_gsns_follow_numbers(
    right: Callable[..., None], search: OutcomeSearch, first: int, count: int, gsn: int
) -> None:
    """What is found of an append is taken for all of it."""
    right(search, first, count, gsn)
    if search.found:
        known = next(iter(search.found.items()))
        search.found |= {number: known[1] + number - known[0] for number in search.missing}
        search.missing.clear()


@planted(SegmentAppender, "_retransmit")
def send_elsewhere_after_a_timeout(right: Callable[..., Any], appender: SegmentAppender) -> None:
    now, patience = appender._context.now, appender._context.config.answer_timeout_ns
    if not appender.sealed and any(now - batch.sent_at >= patience for batch in appender.flight.values()):
        elsewhere(appender)
    right(appender)


@planted(SegmentAppender, "on_rejected")
def take_busy_for_never(right: Callable[..., Any], appender: SegmentAppender, answer: Rejected, sender: str) -> None:
    """Of the whole segment."""
    right(appender, answer, sender)
    if answer.why is RejectReason.BUSY:
        elsewhere(appender)


@planted(SegmentAppender, "seal")
def take_sealed_for_never(right: Callable[..., Any], appender: SegmentAppender) -> None:
    if not appender.sealed:
        right(appender)
        elsewhere(appender)


@planted(SegmentAppender, "_send")
def number_anew_what_is_sent_again(right: Callable[..., Any], appender: SegmentAppender, batch: Sent) -> None:
    if batch.attempts:
        del appender.flight[batch.sequence]
        number = batch.sequence = appender._numbers.take(batch.count)
        for chunk in batch.chunks:
            chunk.sequence = number
            number += len(chunk.records)
        appender.flight[batch.sequence] = batch
    right(appender, batch)


@planted(SequenceNumbers, "settled")
def call_settled_what_was_sent(right: Callable[..., int], numbers: SequenceNumbers) -> int:
    return numbers.next


@planted(AppendClient, "_assign_next")
def place_all_parts_at_once(right: Callable[..., Any], appends: AppendClient, portion: ShardPortion) -> None:
    while portion.pending:
        right(appends, portion)


@planted(AppendClient, "on_ordered")
def credit_a_part_to_the_beginning(
    right: Callable[..., Any], appends: AppendClient, chunk: Chunk, start: int, gsns: Sequence[int], shard: int
) -> None:
    right(appends, chunk, 0, gsns, shard)


@planted(AppendClient, "_expired")
def call_unavailable_what_was_sent(right: Callable[..., Any], appends: AppendClient, append: Any) -> None:
    append.sent = False
    right(appends, append)


@planted(ActiveSubscription, "_explain")
def conclude_from_silence(right: Callable[..., Any], following: ActiveSubscription) -> Any:
    """The next record of any shard is taken for the next one of the log."""
    if following._ready:
        following.position = following._ready[0][0]
        return following._merged()
    return right(following)


@planted(ActiveSubscription, "_merged")
def skip_what_was_trimmed(right: Callable[..., Any], following: ActiveSubscription) -> Batch | Exception | None:
    following.position = max(following.position, following._directory.oldest)
    result: Batch | Exception | None = right(following)
    return result


@planted(ReadClient, "_retry")
def take_one_replica_for_all(
    right: Callable[..., Any], reads: ReadClient, call: int, request: calls.Read, damaged: dict[str, str]
) -> None:
    reads._context.answer(call, NotOfThisShard(request.gsn, request.shard))


@planted(LogClient, "_tail")
def remember_the_tail(right: Callable[..., None], client: LogClient, call: int, request: calls.Tail) -> None:
    """Who has asked for the tail once is told the same again, as long as nothing else was learned."""
    known: list[TailResponse] = vars(client).setdefault("known", [])
    if known:
        client._context.open(call, None, lambda: None)
        client._context.answer(call, known[0].last)
        return
    ordering_client = client._ordering_client

    def learn(tail: TailResponse) -> None:
        known.append(tail)
        client._context.answer(call, tail.last)

    client._request(call, request.deadline, lambda: ordering_client.tail(learn), TimeoutError())


@planted(Directory, "adopt")
def go_back_to_an_older_view(right: Callable[..., bool], directory: Directory, view: View) -> bool:
    directory.view = None
    return right(directory, view)


@planted(ClientContext, "__init__")
def begin_again_with_the_same_numbers(
    right: Callable[..., None], context: ClientContext, config: Any, rng: Any
) -> None:
    """A client that restarts takes answers to its earlier life for its own, and is taken for it."""
    right(context, config, rng)
    context._serial = 0
    context.client = 1 + sum(config.address.encode())


@planted(SequenceNumbers, "retain")
def have_servers_forget_what_was_unknown(right: Callable[..., None], numbers: SequenceNumbers, first: int) -> None:
    """This client has learned where it is."""
