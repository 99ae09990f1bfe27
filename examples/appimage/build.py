"""Pack Photo Lab into an AppImage: `python build.py FOLDER RUNTIME`.

RUNTIME is the file runtime-x86_64 of AppImage's project, which begins each AppImage.
"""

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipe import VERSION, freeze, run

DESKTOP = """[Desktop Entry]
Type=Application
Name=Photo Lab
Exec=photo-lab
Icon=photo-lab
Categories=Graphics;
"""
START = """#!/bin/sh
exec "$APPDIR/usr/bin/photo-lab" "$@"
"""
ICON = '<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"><circle cx="32" cy="32" r="28"/></svg>'


def main() -> None:
    """Freeze the app if it is not there yet, lay it out, and put the runtime before it."""
    parser = argparse.ArgumentParser(description="Photo Lab as an AppImage.")
    parser.add_argument("folder", type=Path, help="where to build")
    parser.add_argument("runtime", type=Path, help="AppImage's runtime")
    arguments = parser.parse_args()
    folder: Path = arguments.folder.resolve()
    runtime: Path = arguments.runtime.resolve()
    layout = folder / "AppDir"
    shutil.rmtree(layout, ignore_errors=True)
    (layout / "usr").mkdir(parents=True)
    if not (folder / "photo-lab").exists():
        freeze(folder)
    shutil.copytree(folder / "photo-lab", layout / "usr" / "bin", symlinks=True)
    (layout / "photo-lab.desktop").write_text(DESKTOP, "utf-8")
    (layout / "photo-lab.svg").write_text(ICON, "utf-8")
    (layout / "AppRun").write_text(START, "utf-8")
    (layout / "AppRun").chmod(0o755)
    run("mksquashfs", layout, folder / "app.squashfs", "-root-owned", "-noappend", "-quiet", folder=folder)
    image = folder / f"Photo_Lab-{VERSION}-x86_64.AppImage"
    image.write_bytes(runtime.read_bytes() + (folder / "app.squashfs").read_bytes())
    image.chmod(0o755)
    print(image)  # noqa: T201 - what to publish


if __name__ == "__main__":
    main()
