"""Authentication and authorization: TLS, certificates, tokens and their rights, and the errors that they cause."""
