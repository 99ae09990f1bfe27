"""The command line."""

from licserver.cli.main import main

__all__ = ["main"]
