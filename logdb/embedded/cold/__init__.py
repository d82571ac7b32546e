"""The cold tier of a directory: sealed segments of its log in another place, and what reads them there."""
