"""The database on a shared log: mapping servers and the transaction client, as cores (PROTOCOL.md)."""
