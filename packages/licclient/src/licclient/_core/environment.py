"""The environment of other programs that we start: without what a freezer put into ours.

PyInstaller, Nuitka and AppImages point the loader and toolkits to the libraries of the bundle. A browser that
inherits this loads them in place of its own, and does not start.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from licclient._core.lazy import lazy

if TYPE_CHECKING:
    import logging
    import shlex
    import subprocess
    import webbrowser
else:
    logging = lazy("logging")
    shlex = lazy("shlex")
    subprocess = lazy("subprocess")
    webbrowser = lazy("webbrowser")

_LIBRARY_PATHS: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FRAMEWORK_PATH", "LIBPATH")
_OF_THE_BUNDLE: Final = re.compile(r"_PYI_.*|_MEIPASS2|NUITKA_ONEFILE_.*")
_OF_AN_APPIMAGE: Final = ("APPIMAGE", "APPDIR", "ARGV0", "OWD")
_BROWSERS: Final = (("xdg-open",), ("gio", "open"), ("x-www-browser",), ("firefox",))
_BROWSER_SECONDS: Final = 5.0


def clean_environment() -> dict[str, str]:
    """Return the environment for another program, or for this app when it is opened again (D-404).

    Gone are the bundle's own variables and, from every list of paths, the folders of the bundle; what
    PyInstaller has set aside is put back.
    """
    environment, is_frozen = dict(os.environ), bool(getattr(sys, "frozen", False))
    folders = list(_bundle_folders(environment))
    if not (is_frozen or folders):
        return environment
    for name, value in list(environment.items()):
        paths = value.split(os.pathsep)
        other_paths = [path for path in paths if not _is_in(path, folders)]
        if _OF_THE_BUNDLE.fullmatch(name) or (other_paths != paths and not any(other_paths)):
            del environment[name]
        elif other_paths != paths:
            environment[name] = os.pathsep.join(other_paths)
    if is_frozen:
        environment["PYINSTALLER_RESET_ENVIRONMENT"] = "1"  # for another program of PyInstaller
        for name in _LIBRARY_PATHS:
            environment.pop(name, None)
            if (before := environment.pop(f"{name}_ORIG", None)) is not None:
                environment[name] = before
    if _appimage_folder(os.environ) is not None:
        for name in _OF_AN_APPIMAGE:
            environment.pop(name, None)
    return environment


def _bundle_folders(environment: Mapping[str, str]) -> Iterator[str]:
    """Return the folders that the bundle was unpacked to or mounted at, under each of their names."""
    unpacked = getattr(sys, "_MEIPASS", None), environment.get("NUITKA_ONEFILE_DIRECTORY")
    for folder in (*unpacked, _appimage_folder(environment)):
        if folder and is_folder_of_an_app(folder):
            yield from {folder.rstrip(os.sep), _resolve(folder)}


def _appimage_folder(environment: Mapping[str, str]) -> str | None:
    """Return where the AppImage is mounted that this program runs from; APPDIR may be another one's.

    Its AppRun may start the system's Python with a script, or with a module, of the AppImage.
    """
    folder = environment.get("APPDIR", "")
    if not is_folder_of_an_app(folder):
        return None
    names = (sys.executable, *sys.argv[:1], __file__)  # an embedded interpreter may have anything here
    ours = (os.fsdecode(name) for name in names if name and isinstance(name, str | bytes | os.PathLike))
    root = [_resolve(folder)]
    return folder if any(_is_in(_resolve(name), root) for name in ours) else None


def is_folder_of_an_app(folder: str) -> bool:
    """Return whether a folder that a variable names can be that of one app.

    It is not where all programs are as well: neither the root, nor the person's home, nor a folder above it.
    """
    home = _resolve(os.path.expanduser("~"))  # noqa: PTH111 - a text; `Path.home` may raise
    is_absolute = os.path.isabs(folder)  # noqa: PTH117 - as above
    return is_absolute and not _is_in(home, [_resolve(folder).rstrip(os.sep)])


def _resolve(path: str) -> str:
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # the working folder is gone; no name of a file
        return path


def _is_in(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)


def open_page(url: str) -> bool:
    """Open a page in the person's browser; may last as long as the browser.

    Return whether a browser was found; raise nothing.
    """
    environment = clean_environment()
    if sys.platform in ("win32", "darwin") or environment == dict(os.environ):
        is_open = _open_as_python_does(url)
    else:
        # `webbrowser` has no parameter for the environment.
        commands = _browser_commands(environment, url)
        is_open = any(_is_started(command, environment) for command in commands)
    if not is_open:
        logging.getLogger("licclient").warning("No browser could be opened for %s", url)
    return is_open


def _open_as_python_does(url: str) -> bool:
    try:
        return webbrowser.open(url)
    except Exception:  # noqa: BLE001 - each system in its own way; IndexError for a blank BROWSER
        return False


def _browser_commands(environment: Mapping[str, str], url: str) -> Iterator[list[str]]:
    """Return what may open a page: the person's choice, then what desktops have."""
    for chosen in filter(None, environment.get("BROWSER", "").split(os.pathsep)):
        try:
            words = shlex.split(chosen)
        except ValueError:
            continue
        with_url = [word.replace("%s", url) for word in words]
        yield with_url if with_url != words else [*words, url]
    for command in _BROWSERS:
        yield [*command, url]


def _is_started(command: list[str], environment: Mapping[str, str]) -> bool:
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
    except (OSError, ValueError):
        return False
    try:
        return process.wait(_BROWSER_SECONDS) == 0
    except subprocess.TimeoutExpired:
        process.wait()  # it is the browser itself
        return True
