"""What cores are built from, whatever engine or database part they belong to: the context of a client core."""
