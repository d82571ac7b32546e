"""The engine's messages on the wire: who may send which, how records go with them, and what is done to large ones."""

from __future__ import annotations

from typing import Final

from logdb.log.engine import Batch, Right, Wire
from logdb.log.ziplog import messages as m
from logdb.log.ziplog.records import HEADER_BYTES, gsn_of

MAX_PULL_BYTES: Final = 16 << 20
"""Maximum size of a requested answer; a client that asks for more is refused."""


def _inserted(message: m.Inserted) -> list[m.Inserted]:
    half = len(message.places) // 2
    return [message._replace(placed=m.placed_runs(part)) for part in (message.places[:half], message.places[half:])]


def _pulled(message: m.Pulled) -> list[m.Pulled]:
    records = [one for one in message.records if message.first <= gsn_of(one.payload) < message.end]
    if len(records) == len(message.records):
        half = len(records) // 2
        message, records = message._replace(end=gsn_of(records[half].payload)), records[:half]
    return [message._replace(records=records)]


def _replicate(message: m.Replicate) -> list[m.Replicate]:
    half = len(message.records) // 2
    middle = min(max(gsn_of(message.records[half].payload) - 1, message.after), message.end)
    first, rest = message.records[:half], message.records[half:]
    return [message._replace(end=middle, records=first), message._replace(after=middle, records=rest)]


def _checked_pull(max_bytes: int) -> int:
    if max_bytes > MAX_PULL_BYTES:
        raise ValueError(f"a Pull of {max_bytes:,} bytes, the limit is {MAX_PULL_BYTES:,}")
    return max_bytes


def _checked_client(client: int) -> int:
    if not client:
        raise ValueError("an Insert of the client 0, whose records would be marks in the journal of a backup")
    return client


WIRE: Final = Wire(
    messages=m,
    schema="logdb.log.ziplog.ziplog_pb2",
    prefix="ziplog_",
    header_bytes=HEADER_BYTES,
    batches={
        m.Insert: Batch.RECORDS,
        m.ReadResponse: Batch.STORED,
        m.Pulled: Batch.NUMBERED,
        m.Replicate: Batch.NUMBERED,
    },
    field_converters={
        (m.Pull, "max_bytes"): (_checked_pull, _checked_pull),
        (m.Insert, "client"): (_checked_client, _checked_client),
    },
    splits={
        m.Inserted: ("places", _inserted),
        m.Pulled: ("records", _pulled),
        m.Replicate: ("records", _replicate),
    },
    sliced_fields={m.StatusRequest: "sequences"},
    client_accepts=frozenset(
        {
            m.Inserted,
            m.Refused,
            m.Stale,
            m.FrontierResponse,
            m.Status,
            m.ReadResponse,
            m.ReadFailed,
            m.Pulled,
            m.TailResponse,
            m.ViewResponse,
            m.ChangeResponse,
            m.NotLeader,
        }
    ),
    client_sends=frozenset(
        {
            m.Insert,
            m.FrontierRequest,
            m.StatusRequest,
            m.ReadRequest,
            m.Pull,
            m.TailRequest,
            m.ViewRequest,
            m.ChangeRequest,
        }
    ),
    rights={
        m.TailRequest: Right.READ,
        m.ViewRequest: Right.READ,
        m.FrontierRequest: Right.READ,
        m.Pull: Right.READ,
        m.ReadRequest: Right.READ,
        m.Insert: Right.WRITE,
        m.StatusRequest: Right.WRITE,
        m.ChangeRequest: Right.ADMIN,
    },
    appends=frozenset({m.Insert}),
    operator_requests={m.ChangeRequest: lambda request: request.kind != "Trim"},
)
