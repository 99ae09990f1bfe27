"""The command that writes the files for a server in production, which the package brings with it."""

import os
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from licserver.cli.common import Printer, json_option, write_new
from licserver.errors import InvalidInputError


@click.command("deploy-files")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace files that differ.")
@json_option
def deploy_files(folder: Path, *, force: bool, as_json: bool) -> None:
    """Write files for systemd, nginx, Caddy, haproxy, containers and Grafana to DIR, and example apps.

    A file that is there and differs, because you have edited it or it is of another version, is kept: nothing
    is written then without --force.
    """
    contents = dict(_list_files(files("licserver") / "deploy_files", folder))
    different = [path for path, content in contents.items() if not _is_writable(path, content)]
    if different and not force:
        names = ", ".join(str(path.relative_to(folder)) for path in different)
        raise InvalidInputError(f"these files are in {folder} and differ: {names}; --force replaces them")
    written = [path for path, content in contents.items() if _write(path, content)]
    shown = [path.relative_to(folder).as_posix() for path in written]
    sentence = "\n".join(f"wrote {path}" for path in written) or f"all files are in {folder} already"
    Printer(as_json=as_json).result({"folder": str(folder), "written": shown}, sentence)


def _list_files(source: Traversable, folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield where each file goes, and its content."""
    for item in sorted(source.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            if item.name != "__pycache__":  # of the example apps
                yield from _list_files(item, folder / item.name)
        else:
            yield folder / item.name, item.read_bytes()


def _is_writable(path: Path, content: bytes) -> bool:
    """Return whether nothing is lost where the path is written."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise InvalidInputError(f"{path} is in the way, and no file: remove it, or choose another folder")
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return not path.is_symlink()  # a link that leads nowhere may yet have a place


def _write(path: Path, content: bytes) -> bool:
    """Write a file whole, unless it has this content; return whether it was written."""
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_new(temporary, content, 0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return True
