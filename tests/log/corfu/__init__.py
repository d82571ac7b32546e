"""Tests of the parts of Corfu."""
