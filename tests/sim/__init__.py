"""A whole cluster of cores in one process under one seed: virtual time, network, disks and faults (see README.md)."""
