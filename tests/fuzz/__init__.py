"""Messages that no client or server of ours would send, many of them: `python -m tests.fuzz --help`."""
