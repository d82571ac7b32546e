"""Messages between processes: the schema, the codecs, the limits."""

import logdb.system.grpc_fork  # noqa: F401 - before gRPC is loaded
