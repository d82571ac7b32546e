"""The classic replicated log as an engine: records are commands of Multi-Paxos. Specification: `PROTOCOL.md`."""
