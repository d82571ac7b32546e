"""The shell of the cluster: what its processes say to each other, and how they run."""
