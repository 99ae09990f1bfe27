"""Code that all features share; it imports none of them."""

__version__ = "0.1.0"
"""The version of the package: here, where all of it can read it, and below what exports it."""
