"""The wire schema and the code that protoc makes of it. Its types never leave `logdb.net`."""
