"""A sample of the contract with TLS, tokens and certificates between everybody. All of it:
`python -m pytest tests/conformance --tls`."""

from __future__ import annotations

from tests.conformance.test_database_writing import test_keys_and_values_at_the_limits, test_outcomes
from tests.net.security.secured import OnSecureCluster, OnSecureServer

WORLDS = {"cluster by TLS": OnSecureCluster, "served by TLS": OnSecureServer}

__all__ = ["WORLDS", "test_keys_and_values_at_the_limits", "test_outcomes"]
