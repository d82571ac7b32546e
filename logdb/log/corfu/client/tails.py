"""The tail of the log, from the last units of all live chains.

All units of one live chain must confirm the epoch: every later epoch has sealed one of them before it was decided
(COR-9), so the projection is the newest one, and no append has returned that these chains do not have.
"""

from __future__ import annotations

from collections.abc import Callable

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.messages import HighestRequest, HighestResponse, Rejected, TimeRequest, TimeResponse
from logdb.log.corfu.projection import View

Then = Callable[[int], None]


class TailClient:
    """Asks the units once for all calls that came before it asks."""

    def __init__(self, context: ClientContext, requests: PendingRequests, auxiliary: AuxiliaryClient) -> None:
        self._context, self._requests, self._auxiliary = context, requests, auxiliary
        self._next: list[Then] = []
        self._current: list[Then] = []
        self._open: dict[int, int | None] = {}
        self._lasts: set[int] = set()
        self._view_request = 0
        self._attempts = 0
        self._again = Timer(self._ask)

    def tail(self, then: Then) -> None:
        """A GSN not less than that of any append that had returned."""
        self._next.append(then)
        if not self._current:
            self._begin()

    def _begin(self) -> None:
        self._current, self._next = self._next, []
        self._attempts = 0
        self._ask()

    def _ask(self) -> None:
        """Request it from the units of the newest known projection. Answers to earlier requests do not count."""
        self._cancel()
        view = self._auxiliary.view
        live = view.live()
        if not live:
            self._view_request = self._auxiliary.request_view(self._without_shards)
            return
        if self._attempts:
            self._auxiliary.refresh()
        self._attempts += 1
        self._context.set_timer(self._again, self._context.now + self._context.config.answer_timeout_ns)
        for index, config in enumerate(live):
            tail = config.units[-1]
            for unit in config.units if not index else (tail,):
                number = self._context.next_number()
                self._open[number] = None
                if unit is tail:
                    self._lasts.add(number)
                self._requests.send(number, HighestRequest(number, view.epoch), _at(unit.address), self._answered)

    def _cancel(self) -> None:
        for number in (*self._open, self._view_request):
            self._requests.cancel(number)
        self._open.clear()
        self._lasts.clear()

    def _without_shards(self, view: View) -> None:
        """Finish without asking units if `view`, which was requested after the call began, has no live shard."""
        if self._current and not self._open:
            if view.live():
                self._ask()
            else:
                self._finish(view.last)

    def _answered(self, answer: HighestResponse | Rejected, sender: Address) -> int | None:
        if answer.request not in self._open:
            return None
        if isinstance(answer, Rejected):
            self._auxiliary.rejected(answer)
            for number in self._open:
                self._requests.cancel(number)
            self._open.clear()
            self._context.set_timer(self._again, self._context.now + self._context.backoff(min(self._attempts, 3)))
            return None
        self._open[answer.request] = answer.last
        answers = [one for one in self._open.values() if one is not None]
        if len(answers) == len(self._open):
            self._finish(max([self._auxiliary.view.last, *(self._open[number] or 0 for number in self._lasts)]))
        return None

    def _finish(self, last: int) -> None:
        self._again.at = None
        done, self._current = self._current, []
        self._cancel()
        if self._next:
            self._begin()
        for then in done:
            then(max(last, self._auxiliary.oldest - 1))

    # ---- times

    def at_time(self, time: int, then: Then, give_up: Callable[[], bool]) -> None:
        """The newest GSN with this time or an earlier one: the largest of the answers of all chains, of a projection
        that was confirmed after the call began. Every append that had returned then is on the last units of its chains.
        """

        def ask(view: View) -> None:
            found: dict[int, int | None] = {}
            shards = [config for config in view.shards if not config.holds_streams]
            if not shards:
                then(0)

            def answered(answer: TimeResponse | Rejected, sender: Address) -> int | None:
                if answer.request not in found:
                    return None
                if isinstance(answer, Rejected):
                    again()
                    return None
                found[answer.request] = answer.last
                self._requests.cancel(answer.request)
                lasts = [one for one in found.values() if one is not None]
                if len(lasts) == len(found):
                    timer.at = None
                    then(max(lasts))
                return None

            def again() -> None:
                """The projection is not the newest one, or a unit is silent."""
                timer.at = None
                for number in found:
                    self._requests.cancel(number)
                found.clear()
                pause.at = None
                self._context.set_timer(pause, self._context.now + self._context.backoff(3))

            def restart() -> None:
                if not give_up():
                    self._auxiliary.request_view(ask)

            pause = Timer(restart)
            timer = Timer(again)
            self._context.set_timer(timer, self._context.now + 2 * self._context.config.answer_timeout_ns)
            for config in shards:
                for unit, _, end in config.lasts():
                    number = self._context.next_number()
                    found[number] = None
                    request = TimeRequest(number, view.epoch, time, end)
                    self._requests.send(number, request, _at(unit.address), answered)

        self._auxiliary.request_view(ask)


def _at(address: Address) -> Callable[[int], Address]:
    return lambda attempt: address
