"""The roles of Scalog, each driven by its events alone."""
