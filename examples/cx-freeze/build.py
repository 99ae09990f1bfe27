"""Pack Photo Lab into a folder by cx_Freeze: `python build.py FOLDER`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipe import APP, pack, read_folder, run

if __name__ == "__main__":
    folder = read_folder("Photo Lab in a folder, by cx_Freeze.")
    target = folder / "photo-lab"
    run(
        *(sys.executable, "-m", "cx_Freeze", "--script", APP, "--target-name", "photo-lab", "build_exe"),
        *("--build-exe", target),
        folder=folder,
    )
    print(pack(target))  # noqa: T201 - what to publish
