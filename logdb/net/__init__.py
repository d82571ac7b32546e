"""The shell of the cluster: what its processes say to each other, and how they run."""

import logging
import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC reads it when it is loaded; its notes are for its authors
logging.getLogger("logdb").addHandler(logging.NullHandler())  # a program that wants to read it says so

# gRPC's own support of fork() cannot work beside grpc.aio, whose thread is always inside gRPC, and crashes the child.
# Read when gRPC starts. `forked.py` says what holds instead.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
