"""The client of the database on a shared log: commits, reads, leases."""
