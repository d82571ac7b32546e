"""The embedded host: the database of one process in one directory, without a server."""

from logdb.embedded.host import EmbeddedHost

__all__ = ["EmbeddedHost"]
