"""Tests of the roles of Scalog. Each core receives only the events of its test."""
