"""The auxiliary: the founders, which decide projections."""
