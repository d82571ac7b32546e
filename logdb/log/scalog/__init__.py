"""Scalog: records are replicated first and ordered then, by cuts. `PROTOCOL.md` is the specification."""
