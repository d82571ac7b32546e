"""The shell of the cluster: what its processes say to each other, and how they run."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC reads it when it is loaded; its notes are for its authors
