"""Corfu: a sequencer, write-once storage units, and clients that write chains (`PROTOCOL.md`)."""
