"""Engines for tests only: `run.py` adds this folder to the search path of `logdb.log`."""
