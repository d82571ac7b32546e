"""Streams between processes: connections, handshakes, flow of answers, refusals."""

import logdb.system.grpc_fork  # noqa: F401 - before gRPC is loaded
