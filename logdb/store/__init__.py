"""Scalog-Store: the records of the database, and the map from keys to their versions and places in the log."""
