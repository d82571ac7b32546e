"""Ziplog: shards number their records themselves, and inserts take two message delays."""
