"""Compaction of a shared log: its records and the mapping server's part in it."""
