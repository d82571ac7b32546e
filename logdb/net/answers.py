"""The answers that clients have not taken yet: how many bytes of them a server keeps for one stream and for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

STREAM_BYTES: Final = 8 << 20
"""A stream whose client has not taken so much gets no further answer: its next request waits."""
ALL_BYTES: Final = 256 << 20
"""The same for all streams together; one whose client has taken everything may have an answer up to twice this."""
STALLED_S: Final = 5.0
"""While others wait for room, a stream whose client takes nothing for this long is ended."""


class Advanced:
    """Wakes tasks that wait for a change."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def future(self) -> asyncio.Future[None]:
        """Done at the next `tell`."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future

    def tell(self) -> None:
        """Something has changed: look again."""
        if self._future is not None:
            self._future.set_result(None)
            self._future = None


class Answers:
    """Of all streams of a server. `bytes`: what waits to be taken."""

    def __init__(self) -> None:
        self.bytes = 0
        self._freed = Advanced()
        self._shares: set[Share] = set()

    def share(self, end: Callable[[], None]) -> Share:
        """The part of one stream. `end` ends it."""
        share = Share(self, end)
        self._shares.add(share)
        return share

    def change(self, size: int) -> None:
        """So many bytes more wait, or less."""
        self.bytes += size
        if size < 0:
            self._freed.tell()

    def end(self, share: Share) -> None:
        """A stream has ended."""
        self._shares.discard(share)

    async def wait(self) -> None:
        """Return when a client has taken answers, or when it is time to look for clients that take none."""
        done, _ = await asyncio.wait((self._freed.future(),), timeout=STALLED_S)
        if not done and self.bytes > ALL_BYTES:
            too_late = asyncio.get_running_loop().time() - STALLED_S
            for share in list(self._shares):
                if share.bytes and share.moved_at <= too_late:
                    share.end()


class Share:
    """The answers of one stream. `moved_at`: when its client last took one, or had none to take."""

    def __init__(self, answers: Answers, end: Callable[[], None]) -> None:
        self._answers, self.end = answers, end
        self._time = asyncio.get_running_loop().time
        self.bytes = 0
        self.moved_at = self._time()

    def add(self, size: int) -> None:
        """An answer waits to be taken."""
        if not self.bytes:
            self.moved_at = self._time()
        self.bytes += size
        self._answers.bytes += size

    def remove(self, size: int) -> None:
        """The client has taken it."""
        self.bytes -= size
        self._answers.change(-size)
        self.moved_at = self._time()

    def give_up(self) -> None:
        """The stream has ended: its answers are dropped."""
        self._answers.change(-self.bytes)
        self.bytes = 0
        self._answers.end(self)

    def has_room(self) -> bool:
        """Whether one more answer may be made."""
        total = self._answers.bytes
        return (self.bytes < STREAM_BYTES and total < ALL_BYTES) or (not self.bytes and total < 2 * ALL_BYTES)

    async def until_room(self) -> None:
        """Wait until one more answer may be made."""
        while not self.has_room():
            await self._answers.wait()
