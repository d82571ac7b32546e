"""Corfu beside the other engines: the statements of its paper, and of those on Scalog and vCorfu."""
