"""`python -m licclient` is the command `licclient`."""

import sys

from licclient._cli import main

sys.exit(main())
