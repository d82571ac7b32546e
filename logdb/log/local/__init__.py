"""The engines of a log in this process: on disk, and in memory."""
