"""Access to the operating system: processes, directories, the disk, addresses, signals."""
