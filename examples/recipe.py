"""What the recipes share: where the app is, and running the tools."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
APP = HERE / "photo_lab" / "photo_lab.py"
VERSION = "1.0.0"


def read_folder(description: str) -> Path:
    """Return the folder that the command line names, made if it is missing."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="where to build")
    folder: Path = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(*command: object, folder: Path) -> None:
    """Run a tool in a folder; end with its status if it fails."""
    done = subprocess.run([str(word) for word in command], cwd=folder, check=False)  # noqa: S603 - tools that a developer names
    if done.returncode:
        sys.exit(done.returncode)


def freeze(folder: Path, *options: str) -> None:
    """Run PyInstaller on the app."""
    run(
        *(sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", "--name", "photo-lab"),
        *("--distpath", folder, "--workpath", folder / "build", "--specpath", folder / "build"),
        *("--exclude-module", "PySide6", *options, APP),
        folder=folder,
    )


def pack(folder: Path) -> Path:
    """Zip a folder, with its programs at the top, as `licserver release publish` takes it."""
    return Path(shutil.make_archive(f"{folder}-{VERSION}", "zip", folder))
