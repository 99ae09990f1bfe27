"""The three packages as they are published: what each has to bring itself, and one version of all."""

import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ["licclient", "licconform", "licserver"]


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_the_license(package: str) -> None:
    """A file of its own: a link leads out of the sdist, and pip and uv refuse such an archive."""
    file = ROOT / "packages" / package / "LICENSE"
    assert not file.is_symlink()
    assert file.read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_has_a_link(package: str) -> None:
    """Nothing that an sdist packs is a link."""
    for folder in ("src", "tests"):
        assert not [path for path in (ROOT / "packages" / package / folder).rglob("*") if path.is_symlink()]


def test_all_have_one_version() -> None:
    """The three packages, and the one that the Containerfile installs: a tag names them together."""
    containers = ROOT / "packages/licserver/src/licserver/deploy_files/Containerfile"
    named = set(re.findall(r"^ARG VERSION=(.*)$", containers.read_text(), re.MULTILINE))
    assert {import_module(package).__version__ for package in PACKAGES} == named


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    """The files of the repository."""
    listing = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("this is no clone of the repository, so nothing tells which files belong to it")
    return done.stdout.splitlines()


def test_no_source_is_ignored_by_git(tracked: list[str]) -> None:
    """`.gitignore` once hid `tests/dist`: every clone lacked the tests of the archives."""
    folders = ("bench", "docs", "packages", "tests", "tools")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "_build" not in path.parts
        and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    }
    assert found <= set(tracked)


def test_nox_names_files_of_the_repository(tracked: list[str]) -> None:
    """A session whose tests do not exist fails only where it runs."""
    noxfile = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    named = set(re.findall(r'"((?:bench|docs|packages|tests|tools)/[\w./-]+)"', noxfile))
    named = {name for name in named if "_build" not in name}
    assert "tests/archives" in named
    folders = {parent.as_posix() for name in tracked for parent in Path(name).parents}
    assert named <= {*tracked, *folders}
