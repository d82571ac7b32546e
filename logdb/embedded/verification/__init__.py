"""Checking a directory without trusting it: every byte, and every decision made again."""
