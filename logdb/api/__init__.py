"""The API of a database: its verbs, the interface to backends, opening and inspecting a database."""
