"""Lets ``python -m licserver`` be the command line."""

from licserver.cli import main

if __name__ == "__main__":  # a process that the server starts imports this module, too
    main()
