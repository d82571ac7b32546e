"""Limits of what a server keeps for its clients: answers that they have not read yet, and requests that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

STREAM_BYTES: Final = 8 << 20
"""Maximum size of the unread answers of one stream; above it, the stream's next request waits."""
ALL_BYTES: Final = 256 << 20
"""The same for all streams together; a stream without unread answers may get one up to twice this size."""
ALL_WAITING_BYTES: Final = 512 << 20
"""Maximum size of what waiting requests of all streams keep; at most twice that, since each user may have its part."""
WAITING_BYTES: Final = 4 << 10
"""Size of a waiting request beside what it keeps, for this limit."""
USER_STREAMS: Final = 8
"""The streams of one user together have the limits of this many streams, and one turn."""
TURN_S: Final = 0.002
"""Time of a turn: after it, requests of other users come first."""
STALLED_S: Final = 5.0
"""While other streams wait for space, a stream whose client reads nothing for this long is ended."""


class DurabilityNotifier:
    """Wakes tasks that wait for a change."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    def future(self) -> asyncio.Future[None]:
        """Done at the next `notify`. Wait for it with `asyncio.wait`: a task that is cancelled while it awaits a future
        cancels it, and others wait for this one."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future

    def notify(self) -> None:
        """Wake the tasks that wait."""
        if self._future is not None:
            self._future.set_result(None)
            self._future = None


class UserQuota:
    """The usage of all streams of one user: `bytes` of unread answers, `waiting` requests and the `waiting_bytes` that
    these keep, `leases`, and `turns` that transactions wait for."""

    def __init__(self) -> None:
        self.bytes = self.waiting = self.waiting_bytes = self.leases = self.turns = self.streams = 0
        self._spent_s = 0.0
        self._line = asyncio.Lock()

    @property
    def left_s(self) -> float:
        """The rest of the current turn."""
        return TURN_S - self._spent_s

    def spend(self, seconds: float) -> None:
        """Count time that a stream has used."""
        self._spent_s += seconds

    async def let_others(self) -> None:
        """Yield to other users if the turn is used up. The streams of a user wait in line for the next turn."""
        async with self._line:
            if self._spent_s >= TURN_S:
                await asyncio.sleep(0)
                self._spent_s = 0.0


class UnreadAnswers:
    """The unread answers of all streams of a server, `bytes` in total, and the `waiting_bytes` of requests that have no
    answer yet."""

    def __init__(self) -> None:
        self.bytes = self.waiting_bytes = 0
        self._freed = DurabilityNotifier()
        self._shares: set[StreamAnswers] = set()
        self._users: dict[str, UserQuota] = {}

    def share(self, end: Callable[[], None], user: str) -> StreamAnswers:
        """The account of one stream of this user. `end` ends the stream."""
        share = StreamAnswers(self, end, user, self.enter(user))
        self._shares.add(share)
        return share

    def enter(self, user: str) -> UserQuota:
        """Count a stream of this user."""
        entered = self._users.setdefault(user, UserQuota())
        entered.streams += 1
        return entered

    def leave(self, user: str) -> None:
        """Count a stream less."""
        left = self._users[user]
        left.streams -= 1
        if not left.streams:
            del self._users[user]

    @property
    def users(self) -> int:
        """Number of users with a stream."""
        return len(self._users)

    @property
    def streams(self) -> int:
        """Number of streams."""
        return len(self._shares)

    def change(self, size: int) -> None:
        """Add to the total, or subtract from it."""
        self.bytes += size
        if size < 0:
            self._freed.notify()

    def end(self, share: StreamAnswers) -> None:
        """A stream has ended."""
        self._shares.discard(share)

    async def wait(self) -> None:
        """Return when a client has read answers. After a timeout, end streams whose clients read none."""
        done, _ = await asyncio.wait((self._freed.future(),), timeout=STALLED_S)
        if not done:
            too_late = asyncio.get_running_loop().time() - STALLED_S
            for share in list(self._shares):
                full = self.bytes > ALL_BYTES or share.user.bytes > USER_STREAMS * STREAM_BYTES
                if full and share.bytes and share.moved_at <= too_late:
                    share.end()


class StreamAnswers:
    """The unread answers of one stream. `moved_at`: when its client last read one, or had read all."""

    def __init__(self, answers: UnreadAnswers, end: Callable[[], None], name: str, user: UserQuota) -> None:
        self._answers, self.end, self._name, self.user = answers, end, name, user
        self._time = asyncio.get_running_loop().time
        self.bytes = 0
        self._has_ended = False
        self.moved_at = self._time()

    def move(self, name: str) -> None:
        """Assign the stream to this user."""
        entered = self._answers.enter(name)
        self.user.bytes -= self.bytes
        entered.bytes += self.bytes
        self._answers.leave(self._name)
        self._name, self.user = name, entered

    def add(self, size: int) -> None:
        """Count an answer."""
        if self._has_ended:
            return
        if not self.bytes:
            self.moved_at = self._time()
        self.bytes += size
        self.user.bytes += size
        self._answers.bytes += size

    def remove(self, size: int) -> None:
        """The client has read an answer."""
        if self._has_ended:
            return
        self.bytes -= size
        self.user.bytes -= size
        self._answers.change(-size)
        self.moved_at = self._time()

    def give_up(self) -> None:
        """The stream has ended. Its answers are dropped, including later ones."""
        self._has_ended = True
        self.user.bytes -= self.bytes
        self._answers.change(-self.bytes)
        self.bytes = 0
        self._answers.end(self)
        self._answers.leave(self._name)

    @property
    def has_company(self) -> bool:
        """Whether the server has other streams."""
        return self._answers.streams > 1

    def has_room(self) -> bool:
        """Whether the stream may get another answer."""
        most, user, total = STREAM_BYTES, self.user.bytes, self._answers.bytes
        if self.bytes:
            return self.bytes < most and user < USER_STREAMS * most and total < ALL_BYTES
        return user < 2 * USER_STREAMS * most and total < 2 * ALL_BYTES

    def may_wait(self, kept: int) -> bool:
        """Whether the server has room for a waiting request that keeps this number of bytes, or its user has less than
        an equal part of all."""
        user = self.user.waiting * WAITING_BYTES + self.user.waiting_bytes
        size, part = WAITING_BYTES + kept, ALL_WAITING_BYTES // max(1, self._answers.users)
        return self._answers.waiting_bytes + size <= ALL_WAITING_BYTES or user + size <= part

    def count_waiting(self, user: UserQuota, requests: int, kept: int) -> None:
        """Count requests of this user that wait, with what they keep, or no longer wait."""
        user.waiting += requests
        user.waiting_bytes += kept
        self._answers.waiting_bytes += requests * WAITING_BYTES + kept

    async def until_room(self) -> None:
        """Wait until the stream may get another answer."""
        while not self.has_room():
            await self._answers.wait()
