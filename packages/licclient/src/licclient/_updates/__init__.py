"""Check for an update, and download it."""
