"""Server mode: send requests to a server, and compare its responses with the specification."""
