"""The example of a cluster on three machines, run as it stands there: each machine is a network namespace."""
