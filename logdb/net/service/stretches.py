"""What the service tells who folds the log himself: where a snapshot stands, the frames as they are, what was aborted.

Frames leave as bytes of the file, a megabyte at a time, so they cost the server next to nothing; who gets them compares
their checksums. The client holds the version meanwhile, as for any long answer.
"""

from __future__ import annotations

from logdb.embedded import plan
from logdb.embedded.host import EmbeddedHost
from logdb.errors import Unavailable, VersionTrimmed
from logdb.log import LocalLog
from logdb.log.contract import Trimmed
from logdb.net.limits import WireError
from logdb.net.proto import database_pb2 as pb
from logdb.net.service.codec import PAGE_BYTES


def layout(host: EmbeddedHost, version: int) -> pb.Response:
    """The files of a snapshot. Raises Unavailable."""
    log = _log(host)
    first, end = plan.span(host, version)
    files = log.store.files(first, end)
    firsts, sizes = [first for _, first, _ in files], [path.stat().st_size for path, _, _ in files]
    return pb.Response(laid=pb.Laid(firsts=firsts, sizes=sizes, end=end, sample=plan.sampled(host, first, end)))


def frames(host: EmbeddedHost, first: int, end: int) -> pb.Response:
    """A page. Raises VersionTrimmed, Unavailable, WireError."""
    log = _log(host)
    if not 0 < first < end <= log.durable + 1:
        raise WireError(f"records {first} to before {end} of a log with {log.durable}")
    try:
        data, following = log.store.frames(first, end, PAGE_BYTES)
    except Trimmed as error:
        raise VersionTrimmed(first, error.oldest) from error
    return pb.Response(page=pb.Page(frames=data, next=following))


def aborted(host: EmbeddedHost, first: int, end: int) -> pb.Response:
    """The aborted commits. Raises VersionTrimmed, Unavailable."""
    _log(host)
    try:
        return pb.Response(not_applied=pb.NotApplied(gsns=plan.aborted_in(host, first, end)))
    except Trimmed as error:
        raise VersionTrimmed(first, error.oldest) from error


def _log(host: EmbeddedHost) -> LocalLog:
    if not isinstance(host.log, LocalLog):
        raise Unavailable("the database is in memory, and has no log that could be read")
    return host.log
