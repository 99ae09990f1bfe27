"""The installed packages in projects of others, who name and run them in ways of their own."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
UNPRIVILEGED = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if IS_ROOT else []
needs_modes = pytest.mark.skipif(
    sys.platform == "win32" or (IS_ROOT and shutil.which("setpriv") is None),
    reason="needs modes of Unix; for root they count only under setpriv, of util-linux",
)
PLUGINS = [entry for entry in entry_points(group="pytest11") if entry.value.startswith("lic")]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.value)
def test_a_plugin_that_a_conftest_names_as_well(plugin: EntryPoint) -> None:
    """It is found by itself, and `pytest_plugins` or `-p` names its module, and it is there once."""
    manager = pytest.PytestPluginManager()
    manager.load_setuptools_entrypoints("pytest11", name=plugin.name)
    manager.import_plugin(plugin.value)
    assert plugin.load() in manager.get_plugins()
    first = pytest.PytestPluginManager()
    first.import_plugin(plugin.value, consider_entry_points=True)  # `-p` comes before what is found
    first.load_setuptools_entrypoints("pytest11", name=plugin.name)
    assert plugin.load() in first.get_plugins()


def test_each_plugin_was_found() -> None:
    """The test above has cases."""
    assert {plugin.value for plugin in PLUGINS} == {"licclient.pytest_plugin", "licserver.pytest_plugin"}


@needs_modes
def test_a_database_that_belongs_to_another_user(tmp_path: Path) -> None:
    """A new image runs as another user: the message names the file, and not only what SQLite thinks of it."""
    folder = str(tmp_path / "data")
    command = [sys.executable, "-m", "licserver"]
    subprocess.run([*command, "product", "add", "notes", "--name", "Notes", "--data-dir", folder], check=True)
    file = Path(folder, "licserver.sqlite3")
    reasons = {0o400: "attempt to write a readonly database", 0o000: "unable to open database file"}
    for mode, reason in reasons.items():
        file.chmod(mode)
        issue = [*UNPRIVILEGED, *command, "license", "issue", "notes", "--data-dir", folder]
        done = subprocess.run(issue, capture_output=True, text=True, check=False)
        hint = f"see that this user may read and write {file} and its folder"
        assert (done.returncode, done.stderr) == (1, f"licserver: the database failed: {reason}; {hint}\n")
