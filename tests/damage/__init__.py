"""What becomes of a directory in which one file is damaged."""
