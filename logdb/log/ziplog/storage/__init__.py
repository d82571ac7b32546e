"""A storage server: a member of a shard, or a spare."""
