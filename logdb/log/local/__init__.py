"""The engines that live in this process: on disk, and in memory."""
