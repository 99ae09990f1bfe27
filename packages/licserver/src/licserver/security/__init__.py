"""Secrets, encryption at rest, passwords and redaction."""
