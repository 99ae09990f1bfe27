"""HTTP: what clients, vendors and customers request."""
