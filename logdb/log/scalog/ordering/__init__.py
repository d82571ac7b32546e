"""The ordering layer: replicas that agree on cuts and on the configuration."""
