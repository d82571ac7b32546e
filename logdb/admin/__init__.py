"""Running a cluster: `asking` (one server, one question), `status` (what all of them say), `layout` (the cluster file),
`processes` (servers of this machine), `up` (start and stop them), `changes` (shards and servers)."""
