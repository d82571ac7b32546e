"""Running a cluster: `server_query` (one question to one server), `status` (the answers of all of them), `layout` (the
cluster file), `processes` (start and stop the servers of this machine), `changes` (of shards and servers)."""
