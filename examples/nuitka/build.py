"""Compile Photo Lab into a folder by Nuitka: `python build.py FOLDER`. Takes minutes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipe import APP, pack, read_folder, run

if __name__ == "__main__":
    folder = read_folder("Photo Lab in a folder, by Nuitka.")
    run(
        *(sys.executable, "-m", "nuitka", "--standalone", "--assume-yes-for-downloads"),
        *("--enable-plugin=tk-inter", "--output-filename=photo-lab", f"--output-dir={folder}", APP),
        folder=folder,
    )
    target = (folder / "photo_lab.dist").rename(folder / "photo-lab")
    print(pack(target))  # noqa: T201 - what to publish
