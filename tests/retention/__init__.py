"""Expiry of keys and retention of named logs: marks and sweeps."""
