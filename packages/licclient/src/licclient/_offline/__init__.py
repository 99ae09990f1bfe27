"""License files, for computers that never reach the server."""
