"""Faults on real processes: `python -m tests.nemesis --help`."""
