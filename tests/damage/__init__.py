"""Directories in which one file is damaged."""
