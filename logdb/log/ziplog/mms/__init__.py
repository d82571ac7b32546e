"""The membership management service: the founders, which decide shards, views and epochs."""
