"""A sample of the contract with TLS, tokens and certificates for all connections. The whole contract:
`python -m pytest tests/conformance --tls`."""

from __future__ import annotations

from tests.conformance.databases import SECURE_WORLDS
from tests.conformance.test_database_reading import test_scans_longer_than_a_batch
from tests.conformance.test_database_writing import test_outcomes

WORLDS = {name: world for name, world in SECURE_WORLDS.items() if "many" not in name}

__all__ = ["WORLDS", "test_outcomes", "test_scans_longer_than_a_batch"]
