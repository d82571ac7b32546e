"""The database as a service: the server's side of one stream for each client."""

import logdb.system.grpc_fork  # noqa: F401 - before gRPC is loaded
