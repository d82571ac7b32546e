"""Tests of Ziplog's own parts."""
