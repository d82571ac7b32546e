"""Running clusters."""
