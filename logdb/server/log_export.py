"""Answers for clients that fold the log themselves: the files of a snapshot, stored frames, aborted commits.

Frames are sent as bytes of the file, up to a megabyte at a time; the client compares their checksums. The client
leases the version meanwhile, as for any long answer.
"""

from __future__ import annotations

from logdb.embedded import snapshot_plan
from logdb.embedded.backend import EmbeddedBackend
from logdb.errors import Unavailable, VersionTrimmed
from logdb.log.contract import Trimmed
from logdb.log.local.local_log import LocalLog
from logdb.wire.database_codec import PAGE_BYTES
from logdb.wire.limits import WireError
from logdb.wire.proto import database_pb2 as pb


def layout(host: EmbeddedBackend, version: int) -> pb.Response:
    """The files of a snapshot. Raises Unavailable."""
    log = _log(host)
    first, end = snapshot_plan.span(host, version)
    files = log.store.files(first, end)
    firsts, sizes = [first for _, first, _ in files], [path.stat().st_size for path, _, _ in files]
    return pb.Response(
        laid=pb.Laid(firsts=firsts, sizes=sizes, end=end, sample=snapshot_plan.sampled(host, first, end))
    )


def frames(host: EmbeddedBackend, first: int, end: int) -> pb.Response:
    """A page. Raises VersionTrimmed, Unavailable, WireError."""
    log = _log(host)
    if not 0 < first < end <= log.durable + 1:
        raise WireError(f"records {first} to before {end} of a log with {log.durable}")
    try:
        data, following = log.store.frames(first, end, PAGE_BYTES)
    except Trimmed as error:
        raise VersionTrimmed(first, error.oldest) from error
    return pb.Response(page=pb.Page(frames=data, next=following))


def aborted(host: EmbeddedBackend, first: int, end: int) -> pb.Response:
    """The aborted commits. Raises VersionTrimmed, Unavailable."""
    _log(host)
    try:
        return pb.Response(not_applied=pb.NotApplied(gsns=snapshot_plan.aborted_in(host, first, end)))
    except Trimmed as error:
        raise VersionTrimmed(first, error.oldest) from error


def _log(host: EmbeddedBackend) -> LocalLog:
    if not isinstance(host.log, LocalLog):
        raise Unavailable("the database is in memory, and has no log to read")
    return host.log
