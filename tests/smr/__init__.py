"""Replicated state machines: the core without I/O, a simulation with seeds, and replicas on real logs."""
