"""Faults of an installation on several hosts, under load: `nox -s failover`."""
