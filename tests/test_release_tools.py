"""What makes a release of the repository: the changelog's section, and the repository's address."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from tools import build_release, changelog, repository_address

from licserver import __version__

ROOT = Path(__file__).parents[1]
ADDRESS = "https://github.com/example/licensing"
CHANGELOG = """# Changelog

## 1.1.0 (unreleased)

- Next.

## 1.0.1 (2026-12-01)

### Fixed

- A fault.

## 1.0.0 (2026-11-30)

"""


def test_a_release_is_described_by_its_section() -> None:
    """All that stands below its heading, up to the next version."""
    assert changelog.find_section(CHANGELOG, "v1.0.1") == "### Fixed\n\n- A fault."
    assert changelog.find_section(CHANGELOG, "1.1.0") == "- Next."


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("v1.1.0", "1.1.0 is unreleased; write the day into its heading"),
        ("v1.0.0", "the section of 1.0.0 is empty"),
        ("v1.0", r"no heading `## 1.0 \(YYYY-MM-DD\)`"),
        ("v", r"no heading `##  \("),
    ],
)
def test_what_is_not_ready_is_no_release(name: str, problem: str) -> None:
    """A tag without a section, with an empty one, or of an unreleased version."""
    with pytest.raises(ValueError, match=problem):
        changelog.find_section(CHANGELOG, name)


@pytest.mark.parametrize(
    ("heading", "problem"),
    [
        ("## 0.9.0 (2026-1-2)", r"'## 0\.9\.0 \(2026-1-2\)' is not like"),
        ("## 0.9.0 (2026-11-29) ", "is not like"),
        ("## 0.9.0 (2026-13-45)", "month must be in"),
        ("## 1.0.1 (2026-11-29)", r"two sections of 1\.0\.1"),
    ],
)
def test_a_heading_of_another_form_ends_no_section_silently(heading: str, problem: str) -> None:
    """The notes of a release would have had those of an earlier one as well."""
    with pytest.raises(ValueError, match=problem):
        changelog.find_section(f"{CHANGELOG}\n{heading}\n\n- Old.\n", "v1.0.1")


def test_the_present_version_has_a_section() -> None:
    """`nox -s dist` writes it beside the archives."""
    assert changelog.find_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that name the repository's address."""
    for path in [ROOT / "README.md", ROOT / "pyproject.toml", *ROOT.glob("packages/*/pyproject.toml")]:
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return tmp_path


def set_address(root: Path, address: str) -> None:
    """Set the repository's address, as its owner does."""
    path = root / "pyproject.toml"
    lines = path.read_text(encoding="utf-8").splitlines()
    changed = [f'repository = "{address}"' if line.startswith("repository = ") else line for line in lines]
    path.write_text("\n".join(changed), encoding="utf-8")


def test_the_files_have_the_address_of_the_setting(copy: Path) -> None:
    """`python -m tools.repository_address` has been run after the setting was changed."""
    assert repository_address.write_files(copy) == []


def test_one_setting_makes_all_links(copy: Path) -> None:
    """Urls of each package and the badges; without an address there are none."""
    before = (copy / "README.md").read_text(encoding="utf-8")
    set_address(copy, ADDRESS)
    assert len(repository_address.write_files(copy)) == 4
    for path in copy.glob("packages/*/pyproject.toml"):
        urls = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["urls"]
        assert urls["Source"] == ADDRESS
        assert all(url.startswith(ADDRESS) for url in urls.values())
    assert f"]({ADDRESS}/actions/workflows/ci.yml)" in (copy / "README.md").read_text(encoding="utf-8")
    set_address(copy, "")
    assert len(repository_address.write_files(copy)) == 4
    assert (copy / "README.md").read_text(encoding="utf-8") == before
    for path in copy.glob("packages/*/pyproject.toml"):
        assert "urls" not in tomllib.loads(path.read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    "address",
    [
        *("github.com/example/licensing", "https://github.com/example", f"{ADDRESS}/", f"{ADDRESS}.git"),
        "https://github.com/../licensing",
    ],
)
def test_a_mistyped_address_is_refused(copy: Path, address: str) -> None:
    """Nothing is written."""
    set_address(copy, address)
    with pytest.raises(ValueError, match=r"is like https://github\.com/OWNER/NAME, or empty"):
        repository_address.write_files(copy)


def test_a_file_without_the_lines_is_named(copy: Path) -> None:
    """Somebody removed them: the address would silently stay away."""
    (copy / "README.md").write_text("# Hello\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"README.md: no lines"):
        repository_address.write_files(copy)


TAG = f"v{__version__}"


@pytest.fixture
def repository(copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits, its address set; the tag names the first."""
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"):
        monkeypatch.delenv(name, raising=False)
    set_address(copy, ADDRESS)
    git = ("git", "-C", copy, "-c", "user.name=Test", "-c", "user.email=test@example.com")
    commit = (*git, "commit", "--quiet", "--no-gpg-sign", "-m", "Change")
    add, tag = (*git, "add", "--all"), (*git, "tag", "--no-sign", TAG)
    for command in (("git", "init", "--quiet", copy), add, commit, tag):
        subprocess.run(command, check=True)
    return copy


def test_a_tag_that_fits_is_released(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the version of the packages, is checked out, and the address is that of the repository."""
    build_release.check_tag(TAG, repository)
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "example/licensing")
    build_release.check_tag(TAG, repository)
    monkeypatch.setenv("GITHUB_REPOSITORY", "example/fork")
    with pytest.raises(build_release.ReleaseError, match=r"this is https://github\.com/example/fork"):
        build_release.check_tag(TAG, repository)


def test_a_tag_that_does_not_fit_is_refused(repository: Path) -> None:
    """Another version, a tag that does not exist, another commit, an address that is not set."""
    with pytest.raises(build_release.ReleaseError, match=f"and the version of the packages {__version__}"):
        build_release.check_tag("v99.0.0", repository)
    set_address(repository, "")
    with pytest.raises(build_release.ReleaseError, match="would not be in the archives"):
        build_release.check_tag(TAG, repository)
    git = ("git", "-C", repository, "-c", "user.name=Test", "-c", "user.email=test@example.com")
    amend = "commit --quiet --all --amend --no-gpg-sign -m Change"
    for words in (amend, f"tag --no-sign --force {TAG}"):
        subprocess.run([*git, *words.split()], check=True, capture_output=True)
    with pytest.raises(build_release.ReleaseError, match=r"set `repository` in pyproject\.toml"):
        build_release.check_tag(TAG, repository)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--no-gpg-sign", "-m", "More"], check=True)
    with pytest.raises(build_release.ReleaseError, match=f"{TAG} is not the commit that is checked out"):
        build_release.check_tag(TAG, repository)
    for words in (f"tag -d {TAG}", f"branch {TAG}"):
        subprocess.run([*git, *words.split()], check=True)
    with pytest.raises(build_release.ReleaseError, match="git rev-parse"):
        build_release.check_tag(TAG, repository)
