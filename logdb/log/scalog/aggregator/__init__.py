"""The aggregator: merges reports on their way up and spreads updates on their way down."""
