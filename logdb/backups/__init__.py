"""Backups: the log of a database, or what its clients can read of it, copied in ranges of versions that follow each
other, and its way back."""
