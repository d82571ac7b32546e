"""The sequencer of Corfu."""
