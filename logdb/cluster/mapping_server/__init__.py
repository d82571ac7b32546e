"""The mapping server: a replica of the database that follows the log and answers."""
