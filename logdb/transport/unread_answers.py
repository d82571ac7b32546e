"""The answers that clients have not taken yet: how many bytes of them a server keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

STREAM_BYTES: Final = 8 << 20
"""A stream whose client has not taken so much gets no further answer: its next request waits."""
ALL_BYTES: Final = 256 << 20
"""The same for all streams together; one whose client has taken everything may have an answer up to twice this."""
USER_STREAMS: Final = 8
"""All streams of one user may have as much as so many streams: bytes, requests that wait, snapshots, turns as one."""
TURN_S: Final = 0.002
"""Other users have their turn when the requests of one have taken so long."""
STALLED_S: Final = 5.0
"""While others wait for room, a stream whose client takes nothing for this long is ended."""


class DurabilityNotifier:
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


class UserQuota:
    """What the streams of one user have together: `bytes` that wait to be taken, `waiting` requests, `leases`."""

    def __init__(self) -> None:
        self.bytes = self.waiting = self.leases = self.streams = 0
        self._spent_s = 0.0
        self._line = asyncio.Lock()

    @property
    def left_s(self) -> float:
        """How much of its turn is left."""
        return TURN_S - self._spent_s

    def spend(self, seconds: float) -> None:
        """One of its streams has worked for so long."""
        self._spent_s += seconds

    async def let_others(self) -> None:
        """If the turn has been spent, give others theirs. The streams of a user stand in line for the next one."""
        async with self._line:
            if self._spent_s >= TURN_S:
                await asyncio.sleep(0)
                self._spent_s = 0.0


class UnreadAnswers:
    """Of all streams of a server. `bytes`: what waits to be taken."""

    def __init__(self) -> None:
        self.bytes = 0
        self._freed = DurabilityNotifier()
        self._shares: set[StreamAnswers] = set()
        self._users: dict[str, UserQuota] = {}

    def share(self, end: Callable[[], None], user: str) -> StreamAnswers:
        """The part of one stream, which is this user's. `end` ends it."""
        share = StreamAnswers(self, end, user, self.enter(user))
        self._shares.add(share)
        return share

    def enter(self, user: str) -> UserQuota:
        """One more stream is this user's."""
        entered = self._users.setdefault(user, UserQuota())
        entered.streams += 1
        return entered

    def leave(self, user: str) -> None:
        """One less."""
        left = self._users[user]
        left.streams -= 1
        if not left.streams:
            del self._users[user]

    @property
    def users(self) -> int:
        """How many have a stream."""
        return len(self._users)

    @property
    def streams(self) -> int:
        """How many there are."""
        return len(self._shares)

    def change(self, size: int) -> None:
        """So many bytes more wait, or less."""
        self.bytes += size
        if size < 0:
            self._freed.tell()

    def end(self, share: StreamAnswers) -> None:
        """A stream has ended."""
        self._shares.discard(share)

    async def wait(self) -> None:
        """Return when a client has taken answers, or when it is time to look for clients that take none."""
        done, _ = await asyncio.wait((self._freed.future(),), timeout=STALLED_S)
        if not done:
            too_late = asyncio.get_running_loop().time() - STALLED_S
            for share in list(self._shares):
                full = self.bytes > ALL_BYTES or share.user.bytes > USER_STREAMS * STREAM_BYTES
                if full and share.bytes and share.moved_at <= too_late:
                    share.end()


class StreamAnswers:
    """The answers of one stream. `moved_at`: when its client last took one, or had none to take."""

    def __init__(self, answers: UnreadAnswers, end: Callable[[], None], name: str, user: UserQuota) -> None:
        self._answers, self.end, self._name, self.user = answers, end, name, user
        self._time = asyncio.get_running_loop().time
        self.bytes = 0
        self._has_ended = False
        self.moved_at = self._time()

    def move(self, name: str) -> None:
        """The stream is this user's from now on."""
        entered = self._answers.enter(name)
        self.user.bytes -= self.bytes
        entered.bytes += self.bytes
        self._answers.leave(self._name)
        self._name, self.user = name, entered

    def add(self, size: int) -> None:
        """An answer waits to be taken."""
        if self._has_ended:
            return
        if not self.bytes:
            self.moved_at = self._time()
        self.bytes += size
        self.user.bytes += size
        self._answers.bytes += size

    def remove(self, size: int) -> None:
        """The client has taken it."""
        if self._has_ended:
            return
        self.bytes -= size
        self.user.bytes -= size
        self._answers.change(-size)
        self.moved_at = self._time()

    def give_up(self) -> None:
        """The stream has ended: its answers are dropped, also those that are made later."""
        self._has_ended = True
        self.user.bytes -= self.bytes
        self._answers.change(-self.bytes)
        self.bytes = 0
        self._answers.end(self)
        self._answers.leave(self._name)

    @property
    def has_company(self) -> bool:
        """Whether there are other streams."""
        return self._answers.streams > 1

    def has_room(self) -> bool:
        """Whether one more answer may be made."""
        most, user, total = STREAM_BYTES, self.user.bytes, self._answers.bytes
        if self.bytes:
            return self.bytes < most and user < USER_STREAMS * most and total < ALL_BYTES
        return user < 2 * USER_STREAMS * most and total < 2 * ALL_BYTES

    async def until_room(self) -> None:
        """Wait until one more answer may be made."""
        while not self.has_room():
            await self._answers.wait()
