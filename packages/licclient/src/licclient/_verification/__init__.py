"""Whether a license holds: from the cache, or by a call to the server."""
