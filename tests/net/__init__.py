"""Tests of the shell of the cluster: the wire, and what runs on it."""
