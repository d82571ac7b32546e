"""Virtual time: one clock, one heap of planned actions, one seed, and the trace by which two runs are compared.

All random numbers come from `World.draw(name)`: a generator for each purpose, so that a change in one part of the
simulation (another workload, a core that draws once more) does not change the numbers of the others.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from logdb.cores.effects import SECOND, Received

EPOCH_NS = 1_700_000_000 * SECOND
"""The virtual time at which every simulation begins."""
ADDRESS = re.compile(" at 0x[0-9a-f]+")
"""The memory address in the `repr` of an object, which differs between two runs of a seed."""


class Failure(Exception):
    """A seed has failed: `check` names what was violated."""

    def __init__(self, check: str, detail: str) -> None:
        self.check, self.detail = check, detail
        super().__init__(f"{check}: {detail}")


class World:
    """The clock, the heap and the trace.

    An entry of the heap is (time, number, action, argument): numbers are unique, so neither actions nor arguments are
    ever compared, and actions of the same time happen in the order in which they were planned.

    The digest is a running hash over (time, process, kind of event): integers only, whose hash is the same in every
    Python process. With `exact` the whole contents of every event are hashed as well, at ten times the price.
    """

    def __init__(self, seed: int, *, exact: bool = False, show: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.now = EPOCH_NS
        self.heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self.number = 0
        self.events = 0
        self.counts: Counter[str] = Counter()
        self.recent: deque[tuple[int, str, Any]] = deque(maxlen=60)
        self.show = show
        self._digest = 0
        self._kinds: dict[type, int] = {}
        self._contents = hashlib.blake2b(digest_size=8) if exact else None

    def draw(self, name: str) -> random.Random:
        """The random numbers of one purpose."""
        return random.Random(f"{self.seed}/{name}")

    def at(self, time: int, action: Callable[[Any], None], argument: Any = None) -> int:
        """Do `action(argument)` at `time` (ns; at once if it has passed). Returns the number of the entry."""
        self.number += 1
        heappush(self.heap, (time if time > self.now else self.now, self.number, action, argument))
        return self.number

    def after(self, delay: int, action: Callable[[Any], None], argument: Any = None) -> int:
        """Do `action(argument)` in `delay` ns."""
        return self.at(self.now + delay, action, argument)

    def run(self, until: int, stopped: Callable[[], bool] | None = None) -> bool:
        """Let time pass up to `until`. Returns True as soon as `stopped()` holds, which is checked every 32 entries."""
        heap = self.heap
        countdown = 32
        while heap and heap[0][0] <= until:
            self.now, _, action, argument = heappop(heap)
            action(argument)
            countdown -= 1
            if not countdown:
                countdown = 32
                if stopped is not None and stopped():
                    return True
        self.now = max(self.now, until)
        return stopped is not None and stopped()

    def step(self) -> bool:
        """Do the next action; False if there is none."""
        if not self.heap:
            return False
        self.now, _, action, argument = heappop(self.heap)
        action(argument)
        return True

    def note(self, place: int, name: str, event: Any) -> None:
        """Add an event of the process `place`, called `name`, to the trace."""
        self.events += 1
        kind = type(event.message) if type(event) is Received else type(event)
        number = self._kinds.get(kind)
        if number is None:
            number = self._kinds[kind] = len(self._kinds)
        self._digest = hash((self._digest, self.now, place, number))
        self.recent.append((self.now, name, event))
        if self._contents is not None:
            self._contents.update(ADDRESS.sub("", repr((self.now, name, event))).encode())
        if self.show is not None:
            self.show(line(self.now, name, event))

    def annotate(self, text: str) -> None:
        """Add a line to the trace that is not an event of a core, for example a fault."""
        self.note(-1, "world", text)

    def digest(self) -> str:
        """The digest, which must be equal in two runs of a seed."""
        contents = self._contents.hexdigest() if self._contents is not None else ""
        return f"{self._digest & (1 << 64) - 1:016x}{contents}"

    def story(self) -> str:
        """The last events, for people."""
        return "\n".join(line(*what) for what in self.recent)


def line(now: int, name: str, event: Any) -> str:
    """One event as a line of text."""
    what = f"{event.message!r}  from {event.sender}" if type(event) is Received else str(event)
    return f"{(now - EPOCH_NS) / 1e6:12.4f} ms  {name:<14} {what[:400]}"
