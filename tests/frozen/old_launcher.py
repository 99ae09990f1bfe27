"""A launcher that knows the pointer alone, as docs/app/updates.md allows: older than the probation."""

import os
import subprocess
import sys
from pathlib import Path

folder = Path(sys.executable).parent
name = (folder / "current.txt").read_text(encoding="ascii").splitlines()[0]
program = folder / "versions" / name / "photo-lab"
command = [str(program), str(folder), *sys.argv[1:]]
if os.name == "nt":
    sys.exit(subprocess.run(command, check=False).returncode)
os.execv(program, command)  # noqa: S606 - ours, and no shell
