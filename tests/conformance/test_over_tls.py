"""A sample of the contract with TLS, tokens and certificates between everybody. All of it:
`python -m pytest tests/conformance --tls`."""

from __future__ import annotations

from tests.conformance.test_database_reading import test_scans_longer_than_a_batch
from tests.conformance.test_database_writing import test_outcomes
from tests.harness.worlds import OnSecureCluster, OnSecureServer

WORLDS = {"cluster by TLS": OnSecureCluster, "served by TLS": OnSecureServer}

__all__ = ["WORLDS", "test_outcomes", "test_scans_longer_than_a_batch"]
