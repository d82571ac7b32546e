"""LogDB against its peers, each through its own Python binding: `python -m benchmarks`, from the checkout."""
