"""The client of a Scalog log: appends, reads and subscriptions as one core."""
