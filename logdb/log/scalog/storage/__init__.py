"""The storage server: a member of a shard, as one core."""
