"""The computers that use a license: list them, and move the license here."""
