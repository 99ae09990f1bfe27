"""Pack Photo Lab into one file, which unpacks itself at each start: `python build.py FOLDER`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipe import freeze, read_folder

if __name__ == "__main__":
    freeze(read_folder("Photo Lab in one file, by PyInstaller."), "--onefile")
