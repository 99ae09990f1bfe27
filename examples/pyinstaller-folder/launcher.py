"""The launcher of `docs/app/updates.md`: installed once, and never replaced."""

import sys
from pathlib import Path

from licclient.install import Installation

folder, arguments = Path(sys.executable).parent, sys.argv[1:]
app = Installation(folder)
if arguments == ["--previous-version"]:  # for a person whose new version does not start
    app.roll_back()
    arguments = []
sys.exit(app.start("photo-lab", [str(folder), *arguments]))
