"""Reads of single records, and the choice of a member for requests to a shard."""

from __future__ import annotations

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import NotOfThisShard, Trimmed
from logdb.log.requests import transfer_ns
from logdb.log.ziplog.client.frontiers import Floor, FrontierClient
from logdb.log.ziplog.client.mms_client import MmsClient
from logdb.log.ziplog.messages import ReadError, ReadFailed, ReadRequest, ReadResponse
from logdb.log.ziplog.records import gsn_of, unwrap


class MemberSource:
    """Which member of a shard a request goes to: the primary, and others in turn when it does not answer, or cannot."""

    def __init__(self, context: ClientContext, mms: MmsClient, shard: int) -> None:
        self._context, self._mms, self.shard = context, mms, shard
        self._turn = 0
        self._view = 0
        self._asked = False
        self.damaged: dict[Address, str] = {}

    def choose(self, attempt: int) -> Address | None:
        """The member for an attempt; one that was asked before and is asked again did not answer."""
        config = self._mms.shard(self.shard)
        if config is None:
            self._mms.refresh()
            return None
        if config.view != self._view:
            self._view, self._turn = config.view, 0
        elif self._asked:
            self._turn += 1
            self._mms.refresh()
        self._asked = True
        return config.members[self._turn % len(config.members)].address

    def ask_again(self) -> None:
        """The same member can be asked again: it is not silent."""
        self._asked = False

    def answered(self) -> None:
        """The member has sent records."""
        self._asked = False
        self.damaged.clear()

    def failed(self, answer: ReadFailed, sender: Address) -> int | Exception:
        """The read failed: returns the pause before the next member is asked, or the error if no member can have it."""
        self._asked = False
        self._turn += 1
        config = self._mms.shard(self.shard)
        if answer.why is ReadError.UNREADABLE and config is not None:
            self.damaged[sender] = answer.explanation
            if self.damaged.keys() >= {member.address for member in config.members}:
                return Corruption("the log", None, "; ".join(sorted(set(self.damaged.values()))))
        if answer.why is ReadError.BEHIND:
            self._mms.refresh()
            return self._context.backoff(3)
        return self._context.backoff(0)


class ReadClient:
    """All reads of a client."""

    def __init__(
        self, context: ClientContext, mms: MmsClient, frontiers: FrontierClient, requests: PendingRequests
    ) -> None:
        self._context, self._mms, self._frontiers, self._requests = context, mms, frontiers, requests

    def read(self, call: int, request: calls.Read) -> None:
        """The application wants a record."""
        context, number, gsn = self._context, self._context.next_number(), request.gsn

        def expired() -> None:
            self._requests.cancel(number)
            context.answer(call, TimeoutError(f"record {gsn} did not come before the deadline"))

        context.open(call, request.deadline, expired)
        if gsn < 1:
            context.answer(call, NotOfThisShard(gsn, request.shard))
        elif gsn < self._mms.oldest:
            context.answer(call, Trimmed(gsn, self._mms.oldest))
        elif self._mms.shard(request.shard) is None:
            self._mms.request_view(lambda view: self._begin(call, number, request))
        else:
            self._begin(call, number, request)

    def _begin(self, call: int, number: int, request: calls.Read) -> None:
        """The configuration is new enough to know the shard, if there is one."""
        context, gsn = self._context, request.gsn
        config = self._mms.shard(request.shard)
        if not context.is_open(call):
            return
        if gsn < self._mms.oldest:
            context.answer(call, Trimmed(gsn, self._mms.oldest))
            return
        if config is None or (config.is_drained and gsn >= config.bound):
            context.answer(call, NotOfThisShard(gsn, request.shard))
            return
        source, extra_ns = MemberSource(context, self._mms, request.shard), transfer_ns(request.size)
        timeout_ns = context.config.answer_timeout_ns

        def answered(answer: ReadResponse | ReadFailed, sender: Address) -> int | None:
            result: int | object
            if isinstance(answer, ReadResponse):
                found = [record for record in answer.records if gsn_of(record[1]) == gsn]
                result = unwrap(found[0], self._mms.view.origin) if found else NotOfThisShard(gsn, request.shard)
            else:
                self._mms.trimmed(answer.oldest)
                config = self._mms.shard(request.shard)
                if answer.why is ReadError.TRIMMED:
                    result = Trimmed(gsn, answer.oldest)
                elif config is not None and config.is_drained and gsn >= config.bound:
                    result = NotOfThisShard(gsn, request.shard)
                else:
                    result = source.failed(answer, sender)
            if isinstance(result, int):
                return result
            self._requests.cancel(number)
            context.answer(call, result)
            return None

        def look() -> None:
            if self._requests.is_open(number):
                self._frontiers.ask(reached, call)

        def reached(floor: Floor) -> None:
            """If the log has passed the GSN, the shard need not wait until it gets there by itself."""
            if not self._requests.is_open(number):
                return
            if self._mms.is_removed(request.shard):
                self._requests.cancel(number)
                is_trimmed = gsn < self._mms.oldest
                error = Trimmed(gsn, self._mms.oldest) if is_trimmed else NotOfThisShard(gsn, request.shard)
                context.answer(call, error)
                return
            if floor.last >= gsn:
                self._requests.cancel(number)
                source.ask_again()
                send(is_reached=True)
            context.set_timer(timer, context.now + timeout_ns + extra_ns)

        def send(*, is_reached: bool) -> None:
            message = ReadRequest(number, request.shard, gsn, is_reached)
            self._requests.send(number, message, source.choose, answered, extra_ns)

        timer = Timer(look)
        context.set_timer(timer, context.now + timeout_ns // 4 + extra_ns)
        send(is_reached=False)
