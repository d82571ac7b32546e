"""Named logs and their consumers, below the interface of a database."""
