"""The core of a replica, without I/O, clock or thread: records, sessions, the state, outgoing commands, snapshots."""
