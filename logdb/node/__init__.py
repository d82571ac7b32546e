"""A process of a cluster: an event loop that drives a core, its journals and disk, its life cycle and metrics."""

import logdb.system.grpc_fork  # noqa: F401 - before gRPC is loaded
