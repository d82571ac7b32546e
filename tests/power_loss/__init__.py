"""Power failures at every point of a recorded workload of an embedded database."""
