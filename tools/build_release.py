"""Build a release of what is committed into `dist`; `nox -s dist` brings the tools.

`dist/packages` has the archives, which are uploaded; `dist/release` has the notes, the pinned libraries and a
bill of materials of each package; the container image is built of `dist/image`. A tag, as `v1.2.3`, must be
this commit, its version released, and the repository's address set.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

from licserver import __version__
from tools.changelog import find_section
from tools.repository_address import read_address

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
IMAGE_PLATFORMS: Final = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
PACKAGES: Final = ("licclient", "licconform", "licserver")


class ReleaseError(Exception):
    """The release cannot be built from this commit; the message says why."""


def run(*command: str | Path, folder: Path = ROOT, **environ: str) -> str:
    """Run a program and return what it prints; it must succeed, and its errors are shown."""
    done = subprocess.run(  # noqa: S603 - ours
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise ReleaseError(f"`{' '.join(map(str, command))}` failed with exit code {done.returncode}")
    return done.stdout.strip()


def build_release(work: Path, tag: str | None) -> None:
    """Build and check everything in a folder of its own, then put it into `dist`."""
    if tag is not None:
        check_tag(tag)
    elif changed := run("git", "status", "--porcelain"):
        print(f"not committed, so not in the archives:\n{changed}", file=sys.stderr)
    clone = work / "clone"
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, clone)
    packages, release = work / "packages", work / "release"
    build_twice(clone, packages)
    check_archives(clone, packages)
    write_release_files(clone, release, tag)
    image = write_image_files(clone, packages, release)
    shutil.rmtree(DIST, ignore_errors=True)
    for folder in (packages, release, image):
        shutil.copytree(folder, DIST / folder.name)


def check_tag(tag: str, root: Path = ROOT) -> None:
    """Compare the tag with the version of the packages, the commit and the repository."""
    if tag != f"v{__version__}":
        raise ReleaseError(f"the tag is {tag}, and the version of the packages {__version__}")
    names = (f"refs/tags/{tag}", "HEAD")
    commits = {run("git", "rev-parse", f"{name}^{{commit}}", folder=root) for name in names}
    if len(commits) > 1:
        raise ReleaseError(f"{tag} is not the commit that is checked out")
    if changed := run("git", "status", "--porcelain", folder=root):
        raise ReleaseError(f"these changes would not be in the archives: commit or undo them\n{changed}")
    address = read_address(root)
    if not address:
        raise ReleaseError("set `repository` in pyproject.toml, as RELEASING.md says")
    host, name = os.getenv("GITHUB_SERVER_URL"), os.getenv("GITHUB_REPOSITORY")
    if name is not None and address != f"{host}/{name}":
        raise ReleaseError(f"`repository` in pyproject.toml is {address}, and this is {host}/{name}")


def build_twice(clone: Path, packages: Path) -> None:
    """Build all archives, and compare them with those of files of another age and mode.

    The first wheels are built from the sdists, the second ones from the files.
    """
    epoch = run("git", "log", "-1", "--format=%ct", folder=clone)
    again, copy = packages.with_name("again"), clone.with_name("copy")
    mask = os.umask(0o077)
    shutil.copytree(clone, copy, copy_function=shutil.copyfile)
    os.umask(mask)
    for package in PACKAGES:
        for ways, source, out in (
            ((), clone / "packages" / package, packages),
            (("--sdist", "--wheel"), copy / "packages" / package, again),
        ):
            run("uv", "build", "--quiet", *ways, "--out-dir", out, source, SOURCE_DATE_EPOCH=epoch)
    first, second = digests(packages), digests(again)
    if first != second or len(first) != 2 * len(PACKAGES):
        differ = sorted(name for name in first | second if first.get(name) != second.get(name))
        raise ReleaseError(f"built twice, these archives differ: {', '.join(differ or first)}")


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of each archive; uv leaves a .gitignore beside them."""
    (folder / ".gitignore").unlink(missing_ok=True)
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def check_archives(clone: Path, packages: Path) -> None:
    """Check what the package index checks, and that a wheel has the files of the source and no others."""
    print(run("twine", "check", "--strict", *sorted(packages.iterdir())))
    for package in PACKAGES:
        # Alembic loads migrations by their paths: their names begin with digits.
        ignored = ("--ignore", "W004") if package == "licserver" else ()
        source = ("--package", clone / "packages" / package / "src" / package)
        (wheel,) = packages.glob(f"{package}-*.whl")
        print(run("check-wheel-contents", *ignored, *source, wheel))


def write_release_files(clone: Path, release: Path, tag: str | None) -> None:
    """Write what a release has beside the archives."""
    release.mkdir()
    changelog = (clone / "CHANGELOG.md").read_text(encoding="utf-8")
    (release / "notes.md").write_text(find_section(changelog, tag or __version__) + "\n", encoding="utf-8")
    locked = ("--quiet", "--locked", "--no-default-groups", "--all-extras", "--package")
    pinned = run("uv", "export", *locked, "licserver", "--no-emit-workspace", "--no-header", folder=clone)
    (release / "requirements.txt").write_text(pinned + "\n", encoding="utf-8")
    environment = release.with_name("environment")
    for package in PACKAGES:
        installing = ("uv", "sync", *locked, package, "--no-install-workspace")
        run(*installing, folder=clone, UV_PROJECT_ENVIRONMENT=str(environment))
        write_bill_of_materials(clone, package, environment, release / f"{package}.cdx.json")


def write_image_files(clone: Path, packages: Path, release: Path) -> Path:
    """Write what the image is built of; every library must have a wheel for each of its platforms."""
    image = release.with_name("image")
    image.mkdir()
    source = clone / "packages" / "licserver" / "src" / "licserver" / "deploy_files" / "Containerfile"
    (wheel,) = packages.glob("licserver-*.whl")
    for file in (source, wheel, release / "requirements.txt"):
        shutil.copy(file, image)
    (python,) = set(re.findall(r"^ARG PYTHON_IMAGE=\S*python:([\d.]+)", source.read_text(), re.MULTILINE))
    pinned = ("--require-hashes", "-r", release / "requirements.txt", "--only-binary", ":all:")
    resolved = release.with_name("resolved")  # a dry run leaves it empty
    for platform in IMAGE_PLATFORMS:
        kind = ("--python-version", python, "--python-platform", platform, "--target", resolved)
        run("uv", "pip", "install", "--quiet", "--dry-run", *kind, *pinned)
    return image


def write_bill_of_materials(clone: Path, package: str, environment: Path, target: Path) -> None:
    """Write which libraries a package uses, in the tested versions, with their licenses (CycloneDX)."""
    # Validation takes a quarter of a minute; tests/archives reads what matters.
    options = ("--output-reproducible", "--no-validate", "--mc-type", "library", "-o", target)
    project = ("--pyproject", clone / "packages" / package / "pyproject.toml")
    run("cyclonedx-py", "environment", *options, *project, environment)
    document = json.loads(target.read_text(encoding="utf-8"))
    version = {"version": __version__, "purl": f"pkg:pypi/{package}@{__version__}"}  # pyproject.toml has none
    document["metadata"]["component"] |= version
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        try:
            build_release(Path(folder), sys.argv[1] if sys.argv[1:] else None)
        except (ReleaseError, ValueError) as problem:
            sys.exit(f"no release: {problem}")
