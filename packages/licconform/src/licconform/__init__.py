"""Conformance tests for servers and clients of the license verification and update-check protocol."""

__version__ = "0.1.0"
