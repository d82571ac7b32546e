"""Deletes what gets old: keys that expire, and the entries of named logs with a retention."""
