"""Lets ``python -m licserver`` be the command line."""

from licserver.cli import main

main()
