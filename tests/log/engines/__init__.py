"""Engines that only tests have: `run.py` adds this folder to the places of `logdb.log`."""
