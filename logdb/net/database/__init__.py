"""The database of a cluster, for programs: an AsyncHost over the core of a database client."""
