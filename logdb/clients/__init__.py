"""What programs connect with: backends for a server and for a cluster, and the log of a cluster."""

import logdb.system.grpc_fork  # noqa: F401 - before gRPC is loaded
