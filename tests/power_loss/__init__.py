"""What a power failure leaves of an embedded database, at every point of a recorded workload."""
