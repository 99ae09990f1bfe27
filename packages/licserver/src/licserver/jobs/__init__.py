"""The background process: jobs of the queue, and periodic work."""
