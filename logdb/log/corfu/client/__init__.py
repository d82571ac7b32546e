"""The client of a Corfu log."""
