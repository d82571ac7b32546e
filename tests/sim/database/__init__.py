"""The database in the simulator: mapping servers and transaction clients on the simulated cluster."""
