"""The engine's messages on the wire: their senders and receivers, their records, and the split of large ones."""

from __future__ import annotations

from typing import Final

from logdb.log.engine import Batch, Right, Wire
from logdb.log.multipaxos import messages as m
from logdb.log.multipaxos.records import HEADER_BYTES

MAX_PULL_BYTES: Final = 16 << 20
"""Maximum size of a requested answer; larger requests are rejected."""


def _pulled(message: m.Pulled) -> list[m.Pulled]:
    records = message.records[: len(message.records) // 2]
    return [message._replace(end=message.records[len(records)].lsn, records=records)]


def _checked_pull(max_bytes: int) -> int:
    if max_bytes > MAX_PULL_BYTES:
        raise ValueError(f"a Pull of {max_bytes:,} bytes, the limit is {MAX_PULL_BYTES:,}")
    return max_bytes


WIRE: Final = Wire(
    messages=m,
    schema="logdb.log.multipaxos.multipaxos_pb2",
    prefix="multipaxos_",
    header_bytes=HEADER_BYTES,
    batches={
        m.AppendRequest: Batch.RECORDS,
        m.ReadResponse: Batch.STORED,
        m.Pulled: Batch.NUMBERED,
    },
    field_converters={(m.Pull, "max_bytes"): (_checked_pull, _checked_pull)},
    splits={m.Pulled: ("records", _pulled)},
    sliced_fields={m.AppendStatusRequest: "sequences"},
    client_accepts=frozenset(
        {
            m.AppendResponse,
            m.AppendRefused,
            m.AppendStatus,
            m.ReadResponse,
            m.ReadFailed,
            m.Pulled,
            m.TimeResponse,
            m.TailResponse,
            m.NotLeader,
            m.TrimResponse,
            m.ViewResponse,
        }
    ),
    client_sends=frozenset(
        {
            m.AppendRequest,
            m.AppendStatusRequest,
            m.ReadRequest,
            m.Pull,
            m.TimeRequest,
            m.TailRequest,
            m.TrimRequest,
            m.ViewRequest,
        }
    ),
    rights={
        m.TailRequest: Right.READ,
        m.TimeRequest: Right.READ,
        m.ViewRequest: Right.READ,
        m.Pull: Right.READ,
        m.ReadRequest: Right.READ,
        m.AppendRequest: Right.WRITE,
        m.AppendStatusRequest: Right.WRITE,
        m.TrimRequest: Right.ADMIN,
    },
    appends=frozenset({m.AppendRequest}),
)
