"""The requests for records that a server parks until the log has reached them, the same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, Protocol, TypeVar

from logdb.cores.effects import Address


class Numbered(Protocol):
    """A request. `request`: its number, which its sender has chosen."""

    @property
    def request(self) -> int: ...


R = TypeVar("R", bound=Numbered)


class ParkedRequests(Generic[R]):
    """Requests in the order of the positions that they wait for. A sender that sends a number again replaces its
    request.

    `is_marked`: the requests to be counted in `marked`; None: none.

    The queue may have entries of requests that were replaced or removed, but no more of these than of parked ones. So
    the memory for a sender is bounded, whatever it sends.
    """

    def __init__(self, max_of_sender: int, is_marked: Callable[[R], bool] | None = None) -> None:
        self._max_of_sender, self._is_marked = max_of_sender, is_marked
        self._parked: dict[Address, dict[int, tuple[int, R]]] = {}
        self._queue: list[tuple[int, Address, int]] = []
        self._count = self.marked = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[R, Address]]:
        for sender, parked in self._parked.items():
            for _, request in parked.values():
                yield request, sender

    def _counts(self, request: R) -> bool:
        return self._is_marked is not None and self._is_marked(request)

    @property
    def first(self) -> int | None:
        """The least position in the queue, None if it is empty."""
        return self._queue[0][0] if self._queue else None

    def park(self, at: int, request: R, sender: Address) -> bool:
        """Park a request until position `at`. Returns False if the sender has too many."""
        parked, number = self._parked.get(sender, {}), request.request
        if number not in parked and len(parked) >= self._max_of_sender:
            return False
        before = self._removed(sender, number)
        self._parked.setdefault(sender, {})[number] = at, request
        self._count += 1
        self.marked += self._counts(request)
        if before is None or before[0] != at:
            heappush(self._queue, (at, sender, number))
            self._shorten()
        return True

    def take(self, reached: int) -> list[tuple[R, Address]]:
        """Remove and return the requests for positions up to `reached`, with their senders."""
        found: list[tuple[R, Address]] = []
        while self._queue and self._queue[0][0] <= reached:
            at, sender, number = heappop(self._queue)
            parked = self._parked.get(sender, {}).get(number)
            if parked is not None and parked[0] == at:
                self._removed(sender, number)
                found.append((parked[1], sender))
        self._shorten()
        return found

    def remove(self, sender: Address, number: int) -> R | None:
        """Remove and return a request, None if it is not parked."""
        parked = self._removed(sender, number)
        self._shorten()
        return None if parked is None else parked[1]

    def remove_all(self, sender: Address | None = None) -> list[tuple[R, Address]]:
        """Remove and return all requests, or those of one sender."""
        senders = list(self._parked) if sender is None else [sender]
        found = [(request, of) for of in senders for _, request in self._parked.get(of, {}).values()]
        for request, of in found:
            self._removed(of, request.request)
        self._shorten()
        return found

    def _removed(self, sender: Address, number: int) -> tuple[int, R] | None:
        parked = self._parked.get(sender, {})
        found = parked.pop(number, None)
        if found is not None:
            self._count -= 1
            self.marked -= self._counts(found[1])
            if not parked:
                del self._parked[sender]
        return found

    def _shorten(self) -> None:
        if len(self._queue) > 2 * self._count:
            self._queue = [
                (at, sender, number) for sender, parked in self._parked.items() for number, (at, _) in parked.items()
            ]
            heapify(self._queue)

    def check(self) -> None:
        """Raises AssertionError."""
        assert self._count == sum(map(len, self._parked.values()))
        assert self.marked == sum([self._counts(request) for request, _ in self])
        assert self._count <= len(self._queue) <= 2 * self._count, "the queue of parked requests is too long"
