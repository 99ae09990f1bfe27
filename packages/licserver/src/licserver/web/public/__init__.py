"""Verify, update check and download."""
