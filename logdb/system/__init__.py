"""What the operating system gives: processes, directories, the disk. The one seam to each."""
