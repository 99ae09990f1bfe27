"""What a freezer put into the environment of an app does not reach the programs that the app starts."""

import importlib
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, sleep

import pytest
from stage.archives import APP, downloaded, pack

from licclient._core import environment as _environment
from licclient._core.environment import clean_environment, open_page
from licclient.install import Installation

needs_linux = pytest.mark.skipif(
    sys.platform in ("win32", "darwin"), reason="other systems open pages otherwise"
)
BUNDLE = "/tmp/_MEIa1b2c3"  # noqa: S108 - a name as PyInstaller makes it


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make this process an app that PyInstaller has frozen, with these variables."""

    def freeze(variables: Mapping[str, str], folder: str = BUNDLE) -> None:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
        monkeypatch.setattr(sys, "_MEIPASS", folder, raising=False)
        for name in ("LD_LIBRARY_PATH", "LD_LIBRARY_PATH_ORIG"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return freeze


PYINSTALLER = {
    "LD_LIBRARY_PATH": BUNDLE,
    "LD_LIBRARY_PATH_ORIG": "/opt/lib",
    "XDG_DATA_DIRS": f"{BUNDLE}/share:/usr/share",
    "GI_TYPELIB_PATH": f"{BUNDLE}/gi_typelibs",
    "SSL_CERT_FILE": f"{BUNDLE}/certifi/cacert.pem",
    "_PYI_ARCHIVE_FILE": "/opt/app/app",
    "_PYI_APPLICATION_HOME_DIR": BUNDLE,
    "_PYI_PARENT_PROCESS_LEVEL": "1",
    "PHOTO_LAB_HOME": "/home/me/photos",
}


def test_pyinstaller_pyinstaller_3668(frozen: Callable[..., None]) -> None:
    """Each list of paths loses the bundle's folders; what the person has set stays."""
    frozen(PYINSTALLER)
    found = clean_environment()
    assert not [name for name, value in found.items() if BUNDLE in value or name.startswith("_PYI_")]
    assert found["XDG_DATA_DIRS"] == "/usr/share"
    assert found["LD_LIBRARY_PATH"] == "/opt/lib"
    assert found["PHOTO_LAB_HOME"] == "/home/me/photos"
    assert found["PYINSTALLER_RESET_ENVIRONMENT"] == "1"
    assert found["PATH"] == os.environ["PATH"]
    assert "LD_LIBRARY_PATH_ORIG" not in found


def test_without_a_former_value_the_variable_goes(frozen: Callable[..., None]) -> None:
    """As most people have none."""
    frozen({"LD_LIBRARY_PATH": "/opt/app/_internal"}, folder="/opt/app/_internal")
    assert "LD_LIBRARY_PATH" not in clean_environment()


def test_outside_a_bundle_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person or a terminal in another AppImage has set is not ours to change."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    monkeypatch.setenv("APPDIR", "/tmp/.mount_Other1")  # noqa: S108 - as AppImages are mounted
    assert clean_environment() == dict(os.environ)


def test_archipelagomw_archipelago_5076(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An AppImage sets variables for its own libraries; of those it runs from, and no other."""
    program = tmp_path / ".mount_PhotoL" / "usr" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    program.touch()
    folder = str(program.parents[2])
    monkeypatch.setattr(sys, "executable", str(program))
    variables = {"APPDIR": folder, "APPIMAGE": "/opt/Photo.AppImage", "ARGV0": "photo", "OWD": "/home/me"}
    paths = {"LD_LIBRARY_PATH": f"{folder}/usr/lib:/opt/lib", "PATH": f"{folder}/usr/bin:/usr/bin"}
    for name, value in (variables | paths | {"PYTHONHOME": f"{folder}/usr"}).items():
        monkeypatch.setenv(name, value)
    found = clean_environment()
    assert (found["LD_LIBRARY_PATH"], found["PATH"]) == ("/opt/lib", "/usr/bin")
    assert not {*variables, "PYTHONHOME"} & set(found)


@pytest.mark.parametrize("start", ["a script", "a module", "code with a library"])
def test_an_appimage_on_the_python_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: str
) -> None:
    """Its mount is gone when the app is opened again: no variable names it."""
    mount = tmp_path / ".mount_PhotoL"
    (mount / "usr").mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    monkeypatch.setattr(sys, "argv", ["-c"])
    if start == "code with a library":
        monkeypatch.setattr(_environment, "__file__", str(mount / "usr" / "licclient" / "environment.py"))
    else:
        monkeypatch.setattr(
            sys, "argv", [str(mount / ("app.py" if start == "a script" else "lab/__main__.py"))]
        )
    values = {
        "APPDIR": mount,
        "APPIMAGE": "/opt/Photo.AppImage",
        "ARGV0": "x",
        "OWD": "/",
        "HOME": tmp_path,
        "PYTHONHOME": mount / "usr",
        "PYTHONPATH": mount / "usr/lib",
        "QT_PLUGIN_PATH": mount / "plugins",
        "LD_LIBRARY_PATH": f"{mount}/usr/lib:/opt/lib",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    found = clean_environment()
    assert not [name for name, value in found.items() if str(mount) in value]
    assert (found["LD_LIBRARY_PATH"], found["HOME"]) == ("/opt/lib", str(tmp_path))
    assert not {"APPDIR", "APPIMAGE", "ARGV0", "OWD", "PYTHONHOME", "PYTHONPATH"} & set(found)


@pytest.mark.parametrize("folder", ["/", "{home}", "{home}/..", "relative", "{home}/../{home.name}/"])
@pytest.mark.parametrize("name", ["APPDIR", "NUITKA_ONEFILE_DIRECTORY", "_MEIPASS"])
def test_a_folder_that_is_not_the_bundles(
    frozen: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, folder: str
) -> None:
    """The root or a home in such a variable does not take PATH and HOME from other programs."""
    home = tmp_path / "home" / "me"
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "argv", [str(home / "app.py")])
    place = folder.format(home=home)
    if name == "_MEIPASS":
        frozen({}, folder=place)
    monkeypatch.setenv("PATH", f"{home}/bin:/usr/bin")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv(name, place)
    found = clean_environment()
    assert (found["HOME"], found["PATH"]) == (str(home), f"{home}/bin:/usr/bin")


@needs_linux
@pytest.mark.parametrize("chosen", ["{browser} %s", "{browser}", "no-such-browser:{browser} --new '%s'", "'"])
def test_activitywatch_aw_qt_20(
    frozen: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: str
) -> None:
    """A link in a dialog opens the browser with its own libraries: a real program notes what it got."""
    noted, browser = tmp_path / "noted", tmp_path / "bin" / "xdg-open"
    browser.parent.mkdir()
    browser.write_text(
        f'#!/bin/sh\nenv > "{noted}.new"\nfor one; do url=$one; done\n'
        f'echo "URL=$url" >> "{noted}.new"\nmv "{noted}.new" "{noted}"\n'
    )
    browser.chmod(0o755)
    frozen(PYINSTALLER | {"BROWSER": chosen.format(browser=browser)})
    monkeypatch.setenv("PATH", f"{browser.parent}{os.pathsep}{os.environ['PATH']}")
    open_page("https://shop.example.com/buy")
    until = monotonic() + 20
    while not noted.exists() and monotonic() < until:
        sleep(0.01)
    lines = noted.read_text().splitlines()
    assert "URL=https://shop.example.com/buy" in lines
    assert not [line for line in lines if BUNDLE in line]


@needs_linux
@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize("chosen", [None, " ", "'", ":", "nowhere %s"])
def test_a_computer_without_a_browser(
    frozen: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    chosen: str | None,
    is_frozen: bool,
) -> None:
    """The log says so, and nothing is raised on the thread of the click."""
    if is_frozen:
        frozen(PYINSTALLER)
    importlib.reload(webbrowser)  # it looks for browsers once in a process
    monkeypatch.delenv("BROWSER", raising=False)
    if chosen is not None:
        monkeypatch.setenv("BROWSER", chosen)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert not open_page("https://shop.example.com/buy")
    assert caplog.messages == ["No browser could be opened for https://shop.example.com/buy"]


@pytest.mark.slow
@needs_linux
def test_a_browser_that_goes_on_running_is_not_waited_for(
    frozen: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some are the browser itself: no second one is started after it."""
    browser, count = tmp_path / "browser", tmp_path / "count"
    browser.write_text(f'#!/bin/sh\necho started >> "{count}"\nexec sleep 2\n')
    browser.chmod(0o755)
    monkeypatch.setattr(_environment, "_BROWSER_SECONDS", 0.3)
    frozen(PYINSTALLER | {"BROWSER": f"{browser}:{browser}"})
    open_page("https://shop.example.com/buy")
    assert count.read_text() == "started\n"


@pytest.mark.skipif(sys.platform == "win32", reason="runs a program of Unix")
def test_a_frozen_launcher_hands_on_a_clean_environment(
    frozen: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The app that it starts has libraries of its own."""
    content = pack(APP | {"photo-lab": b"#!/bin/sh\nexit 0\n"})
    Installation(tmp_path / "app").apply(downloaded(tmp_path, content))
    given: list[Mapping[str, str]] = []
    monkeypatch.setattr(os, "execve", lambda _path, _words, environment: given.append(environment))
    frozen(PYINSTALLER)
    Installation(tmp_path / "app").start("photo-lab")
    assert not [value for value in given[0].values() if BUNDLE in value]
