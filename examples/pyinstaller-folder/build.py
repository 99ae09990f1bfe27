"""Pack Photo Lab, and lay the first version down beside its launcher: `python build.py FOLDER`."""

import sys
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipe import VERSION, freeze, pack, read_folder, run

LAUNCHER = Path(__file__).parent / "launcher.py"

if __name__ == "__main__":
    folder = read_folder("Photo Lab in a folder, by PyInstaller.")
    freeze(folder)
    file = pack(folder / "photo-lab")
    print(file)  # noqa: T201 - what to publish
    run(
        *(sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", "--onefile"),
        *("--name", "photo-lab", "--distpath", folder / "Photo Lab"),
        *("--workpath", folder / "build-launcher", "--specpath", folder / "build-launcher", LAUNCHER),
        folder=folder,
    )
    digest = sha256(file.read_bytes()).hexdigest()
    run(
        *(sys.executable, "-m", "licclient", "apply", file, "--version", VERSION),
        *("--sha256", digest, "--to", folder / "Photo Lab"),
        folder=folder,
    )
