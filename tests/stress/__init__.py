"""Killing a busy database, many times: `python -m tests.stress --help`."""
