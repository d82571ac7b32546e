"""The database as a service: the server's side of one stream for each client, and the client that speaks it."""
