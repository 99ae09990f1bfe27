"""A server process: its sockets, connections, worker processes and end."""
