"""Ziplog beside the other engines: the measurements of section 4.4 of the dissertation, and its statements."""
