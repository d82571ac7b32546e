"""The storage units of Corfu."""
