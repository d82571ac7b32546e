"""LogDB's transactions: read and write sets, the rule that decides, the coordinator that applies the log in order."""
