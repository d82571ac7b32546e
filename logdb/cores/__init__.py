"""The building blocks of all cores: effects and events, and the context of client cores."""
