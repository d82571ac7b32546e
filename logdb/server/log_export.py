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


def layout(host: EmbeddedBackend, version: int, since: int | None) -> pb.Response:
    """The files of a snapshot, and of the changes after `since`. Raises Unavailable, VersionTrimmed."""
    _log(host)
    first, end = snapshot_plan.span(host, version, since)
    files = snapshot_plan.files(host, first, end)
    firsts, sizes = [file.first for file in files], [file.size for file in files]
    return pb.Response(
        laid=pb.Laid(firsts=firsts, sizes=sizes, end=end, sample=snapshot_plan.sampled(host, first, end))
    )


def frames(host: EmbeddedBackend, first: int, end: int) -> pb.Response:
    """A page. Raises VersionTrimmed, Unavailable, WireError."""
    log = _log(host)
    if not 0 < first < end <= log.durable + 1:
        raise WireError(f"records {first} to before {end} of a log with {log.durable}")
    try:
        if host.cold is None:
            data, following = log.store.frames(first, end, PAGE_BYTES)
        else:
            data, following = host.cold.log.frames(first, end, PAGE_BYTES)
    except Trimmed as error:
        raise VersionTrimmed(first, error.oldest) from error
    return pb.Response(page=pb.Page(frames=data, next=following))


def aborted(host: EmbeddedBackend, first: int, end: int) -> pb.Response:
    """The aborted commits. Raises VersionTrimmed, Unavailable."""
    _log(host)
    try:
        return pb.Response(not_applied=pb.NotApplied(gsns=snapshot_plan.aborted(host, first, end)))
    except Trimmed as error:
        raise VersionTrimmed(first, error.oldest) from error


def _log(host: EmbeddedBackend) -> LocalLog:
    if not isinstance(host.log, LocalLog):
        raise Unavailable("the database is in memory, and has no log to read")
    return host.log
