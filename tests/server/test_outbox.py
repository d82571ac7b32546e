"""The answers that a server sends to a client that has lost its right meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from logdb.errors import ConflictError, OutcomeUnknown
from logdb.log.engine import Right
from logdb.security.authenticator import Grant
from logdb.server.outbox import Outbox
from logdb.server.permissions import StreamRight
from logdb.transport.unread_answers import UnreadAnswers
from logdb.wire.proto import database_pb2 as pb


class Withdrawn(Grant):
    """A grant whose token was removed from the tokens file."""

    def __init__(self) -> None:
        super().__init__("ada", None)

    @property
    def right(self) -> Right:
        return Right.NONE


class Recorded:
    """A stream that a server writes."""

    def __init__(self) -> None:
        self.written = asyncio.Queue[bytes]()

    async def read(self) -> bytes:
        raise AssertionError("an outbox reads nothing")

    async def write(self, message: bytes) -> None:
        self.written.put_nowait(message)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutcomeUnknown("0000000000000001-1", "the disk failed"), "OutcomeUnknown"),
        (ConflictError(b"k", 5, "", 3, in_range=False), "AccessDenied"),
    ],
    ids=["unknown", "aborted"],
)
def test_a_write_whose_outcome_is_unknown_is_not_reported_as_denied(error: Exception, kind: str) -> None:
    """A client takes a write that was denied for one that was not done."""

    async def test() -> None:
        stream = Recorded()
        right = StreamRight(Withdrawn(), lambda error: None)
        outbox = Outbox(stream, lambda: 7, right, UnreadAnswers().share(lambda: None, "ada"))
        sending = asyncio.create_task(outbox.send())
        outbox.fail(1, error)
        (response,) = pb.Responses.FromString(await stream.written.get()).responses
        sending.cancel()
        assert response.failure.kind == kind

    asyncio.run(test())
