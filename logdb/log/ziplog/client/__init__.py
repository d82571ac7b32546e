"""The client of a Ziplog log."""
