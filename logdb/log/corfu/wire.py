"""The engine's messages on the wire: their senders and receivers, their records, and the split of large ones."""

from __future__ import annotations

from typing import Any, Final

from logdb.log.corfu import messages as m
from logdb.log.corfu.projection import MAX_TOKENS, position_of
from logdb.log.engine import Batch, Right, Wire
from logdb.log.requests import MAX_STREAMS

MAX_PULL_BYTES: Final = 16 << 20
"""Maximum size of a requested answer; larger requests are rejected."""


def _first_half(message: Any) -> Any:
    """Only the first half of the entries of a response: the receiver pulls the others again."""
    entries = message.entries[: max(1, len(message.entries) // 2)]
    last = entries[-1].position
    deleted = tuple([gsn for gsn in message.deleted if position_of(gsn) <= last])
    records = [one for one in message.records if position_of(one.gsn) <= last]
    return message._replace(entries=entries, deleted=deleted, records=records)


def _pulled(message: m.Pulled) -> list[m.Pulled]:
    return [_first_half(message)]


def _stream_pulled(message: m.StreamPulled) -> list[m.StreamPulled]:
    half = _first_half(message)
    return [half._replace(end=half.entries[-1].position + 1)]


def _checked_pull(max_bytes: int) -> int:
    if max_bytes > MAX_PULL_BYTES:
        raise ValueError(f"a Pull of {max_bytes:,} bytes, the limit is {MAX_PULL_BYTES:,}")
    return max_bytes


def _checked_streams(streams: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if len(streams) > MAX_STREAMS:
        raise ValueError(f"a WriteRequest for {len(streams):,} streams, the limit is {MAX_STREAMS:,}")
    if len({stream for stream, _ in streams}) < len(streams):
        raise ValueError("a WriteRequest that names a stream twice")
    return streams


def _checked_entry_streams(streams: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if len(streams) > MAX_TOKENS * MAX_STREAMS:
        raise ValueError(f"a TokenRequest for {len(streams):,} streams, the limit is {MAX_TOKENS * MAX_STREAMS:,}")
    return streams


def _checked_places(places: tuple[int, ...]) -> tuple[int, ...]:
    if len(places) > MAX_TOKENS:
        raise ValueError(f"a TokenRequest for {len(places):,} positions, the limit is {MAX_TOKENS:,}")
    return places


def _checked_step(step: int) -> int:
    if not step:
        raise ValueError("a Pull of every 0th position")
    return step


CLIENT_ACCEPTS: Final = frozenset(
    {
        m.ViewResponse,
        m.TailResponse,
        m.ChangeResponse,
        m.NotLeader,
        m.TokenResponse,
        m.TokenRefused,
        m.Written,
        m.Deleted,
        m.Committed,
        m.OpenPositions,
        m.StreamPulled,
        m.StreamTailResponse,
        m.Rejected,
        m.HighestResponse,
        m.TimeResponse,
        m.Status,
        m.ReadResponse,
        m.Pulled,
    }
)

WIRE: Final = Wire(
    messages=m,
    schema="logdb.log.corfu.corfu_pb2",
    prefix="corfu_",
    header_bytes=0,
    batches={
        m.WriteRequest: Batch.RECORDS,
        m.ReadResponse: Batch.STORED,
        m.Pulled: Batch.NUMBERED,
        m.StreamPulled: Batch.NUMBERED,
    },
    field_converters={
        (m.Pull, "max_bytes"): (_checked_pull, _checked_pull),
        (m.Pull, "step"): (_checked_step, _checked_step),
        (m.StreamPull, "max_bytes"): (_checked_pull, _checked_pull),
        (m.WriteRequest, "streams"): (_checked_streams, _checked_streams),
        (m.TokenRequest, "places"): (_checked_places, _checked_places),
        (m.TokenRequest, "streams"): (_checked_entry_streams, _checked_entry_streams),
    },
    splits={m.Pulled: ("entries", _pulled), m.StreamPulled: ("entries", _stream_pulled)},
    sliced_fields={m.StatusRequest: "sequences"},
    client_accepts=CLIENT_ACCEPTS,
    client_sends=frozenset(
        {
            m.ViewRequest,
            m.TailRequest,
            m.ChangeRequest,
            m.TokenRequest,
            m.WriteRequest,
            m.HighestRequest,
            m.TimeRequest,
            m.StatusRequest,
            m.ReadRequest,
            m.Pull,
            m.FillRequest,
            m.DeleteRequest,
            m.CommitRequest,
            m.OpenRequest,
            m.StreamPull,
            m.StreamTailRequest,
        }
    ),
    rights={
        m.ViewRequest: Right.READ,
        m.TailRequest: Right.READ,
        m.HighestRequest: Right.READ,
        m.TimeRequest: Right.READ,
        m.ReadRequest: Right.READ,
        m.Pull: Right.READ,
        m.FillRequest: Right.READ,
        m.CommitRequest: Right.READ,
        m.OpenRequest: Right.READ,
        m.StreamPull: Right.READ,
        m.StreamTailRequest: Right.READ,
        m.TokenRequest: Right.WRITE,
        m.WriteRequest: Right.WRITE,
        m.StatusRequest: Right.WRITE,
        m.ChangeRequest: Right.ADMIN,
        m.DeleteRequest: Right.ADMIN,
    },
    appends=frozenset({m.WriteRequest}),
    operator_requests={m.ChangeRequest: lambda request: request.kind != "Trim"},
)
