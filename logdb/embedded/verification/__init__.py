"""The verification of a directory: checks of every byte, and a repetition of every decision."""
