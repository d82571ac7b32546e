"""Clients: backends for a server and for a cluster, and the log of a cluster."""

import logging

import logdb.system.grpc_fork  # noqa: F401 - before gRPC is loaded

for name in ("logdb.clients", "logdb.transport"):  # a program that wants these records configures logging
    logging.getLogger(name).addHandler(logging.NullHandler())
