"""Who may speak to whom: TLS and certificates, tokens and their rights, and what to say when that fails."""
