"""The launcher of `docs/app/updates.md`: installed once, and never replaced."""

import sys
from pathlib import Path

from licclient.install import Installation

folder, arguments = Path(sys.executable).parent, sys.argv[1:]
app = Installation(folder)
try:
    if arguments == ["--previous-version"]:  # for a person whose new version does not start
        app.roll_back()
        arguments = []
    status = app.start("photo-lab", [str(folder), *arguments])
except OSError as problem:
    if sys.stderr is None:  # without a console: PyInstaller shows the error in a window
        raise
    reason = problem.strerror or problem
    sys.exit(f"Photo Lab cannot start: {reason}. Add --previous-version, or install it again.")
sys.exit(status)
