"""Run the command line as `python -m licconform`."""

from licconform.cli import main

main()
