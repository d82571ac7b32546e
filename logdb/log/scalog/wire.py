"""Scalog's messages on the wire: the rights that they need, how records travel with them, how large ones are split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from logdb.log.engine import Batch, Right, Wire
from logdb.log.scalog import messages as m
from logdb.log.scalog.records import HEADER_BYTES

MAX_PULL_BYTES: Final = 16 << 20
"""Maximum size of the records in one answer to `Pull`, which the server reads at once; larger requests are rejected."""

Runs = Sequence[tuple[int, int, int, int, int]]


def _append(message: m.Append) -> list[m.Append]:
    half = len(message.records) // 2
    first, rest = message.records[:half], message.records[half:]
    return [message._replace(records=first), message._replace(sequence=message.sequence + half, records=rest)]


def _replicate(message: m.Replicate) -> list[m.Replicate]:
    half = len(message.records) // 2
    first, rest = message.records[:half], message.records[half:]
    return [message._replace(records=first), message._replace(first=message.first + half, records=rest)]


def _pulled(message: m.Pulled) -> list[m.Pulled]:
    records = message.records[: len(message.records) // 2]
    end = message.records[len(records)].gsn
    owned = tuple((gsn, min(count, end - gsn)) for gsn, count in message.owned if gsn < end)
    return [message._replace(end=end, owned=owned, final=False, records=records)]


def _placements(message: m.PlacementsResponse) -> list[m.PlacementsResponse]:
    return [message._replace(entries=message.entries[: len(message.entries) // 2], complete=False)]


def _updates(message: m.Updates) -> list[m.Updates]:
    half = len(message.updates) // 2
    return [message._replace(updates=message.updates[:half]), message._replace(updates=message.updates[half:])]


def _tally(message: m.Tally) -> list[m.Tally]:
    half = len(message.shards) // 2
    return [message._replace(shards=message.shards[:half]), message._replace(shards=message.shards[half:])]


def _encoded_runs(runs: Runs) -> list[tuple[int, int, int, int, int]]:
    return [(client, sequence, count, lsn, gsn + 1) for client, sequence, count, lsn, gsn in runs]


def _decoded_runs(runs: Runs) -> tuple[tuple[int, int, int, int, int], ...]:
    return tuple([(client, sequence, count, lsn, gsn - 1) for client, sequence, count, lsn, gsn in runs])


def _checked_pull(max_bytes: int) -> int:
    if max_bytes > MAX_PULL_BYTES:
        raise ValueError(f"a Pull of {max_bytes:,} bytes, the limit is {MAX_PULL_BYTES:,}")
    return max_bytes


def _needs_operator(change: Any) -> bool:
    """Whether the change needs an operator. Mapping servers may only trim the log, after a compaction."""
    return type(change.change) is not m.TrimLog


WIRE: Final = Wire(
    messages=m,
    schema="logdb.log.scalog.scalog_pb2",
    prefix="",
    header_bytes=HEADER_BYTES,
    batches={
        m.Append: Batch.RECORDS,
        m.Replicate: Batch.STORED,
        m.ReadResponse: Batch.STORED,
        m.Pulled: Batch.NUMBERED,
    },
    field_converters={
        (m.SessionsResponse, "runs"): (_encoded_runs, _decoded_runs),
        (m.Pull, "max_bytes"): (_checked_pull, _checked_pull),
    },
    splits={
        m.Append: ("records", _append),
        m.Replicate: ("records", _replicate),
        m.Pulled: ("records", _pulled),
        m.PlacementsResponse: ("entries", _placements),
        m.Updates: ("updates", _updates),
        m.Tally: ("shards", _tally),
    },
    sliced_fields={m.AppendStatusRequest: "sequences"},
    client_accepts=frozenset(
        {
            m.Appended,
            m.ChangeResponse,
            m.AppendStatus,
            m.ReadResponse,
            m.ReadFailed,
            m.NotLeader,
            m.Pulled,
            m.Rejected,
            m.TailResponse,
            m.TimeResponse,
            m.ViewResponse,
        }
    ),
    client_sends=frozenset(
        {m.Append, m.AppendStatusRequest, m.TimeRequest, m.ChangeRequest, m.Pull, m.ReadRequest, m.Unreachable}
    ),
    rights={
        m.TailRequest: Right.READ,
        m.TimeRequest: Right.READ,
        m.ViewRequest: Right.READ,
        m.Pull: Right.READ,
        m.ReadRequest: Right.READ,
        m.Append: Right.WRITE,
        m.AppendStatusRequest: Right.WRITE,
        m.Unreachable: Right.WRITE,
        m.ChangeRequest: Right.ADMIN,
    },
    appends=frozenset({m.Append}),
    operator_requests={m.ChangeRequest: _needs_operator},
)
