"""The client of a Multi-Paxos log."""
