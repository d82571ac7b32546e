"""Frontiers: behind which GSN a record must be placed to be after everything that had returned (ZIP-6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address
from logdb.log.ziplog.client.mms_client import MmsClient
from logdb.log.ziplog.messages import FrontierRequest, FrontierResponse, View


class Floor(NamedTuple):
    """Everything that had returned is at or below `gsn`, and so is `last`, the end of the log. `version`: only
    members that have entered no later one may rely on it; 0: all may."""

    gsn: int
    last: int
    version: int


Then = Callable[[Floor], None]


class FrontierClient:
    """Asks all members of all shards of the set, once for all calls that came before it asks. The answers count only if
    one of the shards is open: until then clients of an earlier set still insert records, and those get smaller GSNs."""

    def __init__(self, context: ClientContext, requests: PendingRequests, mms: MmsClient) -> None:
        self._context, self._requests, self._mms = context, requests, mms
        self._next: list[tuple[int | None, Then]] = []
        self._current: list[tuple[int | None, Then]] = []
        self._open: dict[int, FrontierResponse | None] = {}
        self._version = self._view_request = 0
        self._attempts = 0
        self._timer = Timer(self._restart)

    def for_insert(self, then: Then, call: int | None = None) -> None:
        """The floor of a record that is inserted after everything that has returned. `call`: see `ask`."""
        view = self._mms.view
        if view.set_version and len(self._mms.in_set()) == 1:
            then(Floor(view.base - 1, 0, view.set_version))
        else:
            self.ask(then, call)

    def ask(self, then: Then, call: int | None = None) -> None:
        """A floor, and the newest record, by asking all members. `call`: the question ends with this call."""
        self._next.append((call, then))
        if not self._current:
            self._begin()

    def _begin(self) -> None:
        self._current, self._next = self._next, []
        self._attempts = 0
        self._send()

    def _send(self) -> None:
        self._cancel()
        shards, view = self._mms.in_set(), self._mms.view
        self._version = view.set_version
        self._context.set_timer(self._timer, self._context.now + self._context.config.answer_timeout_ns)
        if not shards:
            self._view_request = self._mms.request_view(self._without_shards)
            return
        for config in shards:
            for member in config.members:
                number = self._context.next_number()
                self._open[number] = None
                request = FrontierRequest(number, config.shard, config.view)
                self._requests.send(number, request, self._at(member.address), self._answered)

    def _cancel(self) -> None:
        """Answers to earlier requests must not count: records may have been inserted since."""
        for number in (*self._open, self._view_request):
            self._requests.cancel(number)
        self._open.clear()

    def _without_shards(self, view: View) -> None:
        """Finish without asking servers if the set is empty in `view`, which was requested after the call began. Shards
        that have left it are drained first: until then a client of the earlier set finds an earlier tail."""
        if self._current and not self._open:
            if any(config.is_in_set for config in view.shards):
                self._send()
            elif any(config.has_records and not config.is_drained for config in view.shards):
                self._again()
            else:
                self._finish(Floor(view.base - 1, view.left, 0))

    def _at(self, address: Address) -> Callable[[int], Address]:
        return lambda attempt: address

    def _answered(self, answer: FrontierResponse, sender: Address) -> int | None:
        if answer.request not in self._open:
            return None
        if answer.version != self._version:
            self._again()
            return None
        self._open[answer.request] = answer
        answers = [one for one in self._open.values() if one is not None]
        if len(answers) == len(self._open):
            view = self._mms.view
            if view.set_version != self._version or not any(one.is_open for one in answers):
                self._again()
                return None
            frontier = max([view.base - 1, *(one.frontier for one in answers)])
            self._finish(Floor(frontier, max([view.left, *self._last_of(answers)]), 0))
        return None

    def _last_of(self, answers: list[FrontierResponse]) -> Iterable[int]:
        """The last record of each shard that all of its members have: a backup alone may have one whose GSN the primary
        gives to a later one. Behind it, the order may pass empty slots; what a subscriber may have passed counts too,
        so no version that was shown is later than the tail."""
        for shard in {one.shard for one in answers}:
            yield min([one.last for one in answers if one.shard == shard])
        yield from [one.stable for one in answers]

    def _finish(self, floor: Floor) -> None:
        self._timer.at = None
        done, self._current = self._current, []
        self._cancel()
        if self._next:
            self._begin()
        for _, then in done:
            then(floor)

    def _again(self) -> None:
        """The set has changed, or a member has not entered it yet: begin again with the newest configuration."""
        self._attempts += 1
        self._mms.refresh()
        self._context.set_timer(self._timer, self._context.now + self._context.backoff(min(self._attempts, 3)))

    def _restart(self) -> None:
        """Members were silent, or of another version. The calls that ended meanwhile need no answer any more."""
        for questions in (self._current, self._next):
            questions[:] = [one for one in questions if one[0] is None or self._context.is_open(one[0])]
        if self._current:
            self._mms.refresh()
            self._send()
        elif self._next:
            self._begin()
        else:
            self._cancel()
