"""Pack Photo Lab into a folder, and the launcher beside it: `python build.py FOLDER`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipe import freeze, pack, read_folder, run

LAUNCHER = Path(__file__).parent / "launcher.py"

if __name__ == "__main__":
    folder = read_folder("Photo Lab in a folder, by PyInstaller.")
    freeze(folder)
    print(pack(folder / "photo-lab"))  # noqa: T201 - what to publish
    run(
        *(sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", "--onefile"),
        *("--name", "photo-lab-launcher", "--distpath", folder),
        *("--workpath", folder / "build", "--specpath", folder / "build", LAUNCHER),
        folder=folder,
    )
