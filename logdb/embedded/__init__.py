"""The embedded host: the database of one process in one directory, without a server."""

from logdb.embedded.backend import EmbeddedBackend

__all__ = ["EmbeddedBackend"]
