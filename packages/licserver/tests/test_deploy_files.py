"""`licserver deploy-files`: what a vendor has who installed a wheel and nothing else."""

import json
import os
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from licserver.cli import main

SOURCE = Path(str(files("licserver") / "deploy_files"))

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; return its exit status and what it printed."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["deploy-files", *map(str, arguments)])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    paths = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_all_files_are_written(run: Run, tmp_path: Path) -> None:
    """As they are in the package, into a folder that it makes; a second time there is nothing to do."""
    folder = tmp_path / "a" / "deploy"
    status, out, err = run(folder)
    assert (status, err) == (0, "")
    assert contents(folder) == contents(SOURCE)
    expected = {"Containerfile", "licserver.service", "nginx.conf", "examples/notes_tk.py"}
    assert expected <= contents(folder).keys()
    assert sorted(out.splitlines()) == sorted(f"wrote {folder / name}" for name in contents(SOURCE))
    assert run(folder) == (0, f"all files are in {folder} already\n", "")
    status, out, _ = run(folder, "--json")
    assert json.loads(out) == {"folder": str(folder), "written": []}


def test_an_edited_file_is_kept(run: Run, tmp_path: Path) -> None:
    """It is named, and nothing is written, until `--force` replaces it; other files are never touched."""
    (tmp_path / "nginx.conf").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine too")
    status, out, err = run(tmp_path)
    assert (status, out) == (2, "")
    assert err == f"licserver: these files are in {tmp_path} and differ: nginx.conf; --force replaces them\n"
    assert contents(tmp_path).keys() == {"notes.txt", "nginx.conf"}
    assert run(tmp_path, "--force")[0] == 0
    assert contents(tmp_path) == {**contents(SOURCE), "notes.txt": b"mine too"}


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names on Windows")
def test_a_pipe_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    """Nobody may ever write into it."""
    (tmp_path / "deploy").mkdir()
    os.mkfifo(tmp_path / "deploy" / "Caddyfile")
    status, _, err = run(tmp_path / "deploy", "--force")
    assert (status, "Caddyfile is in the way, and no file" in err) == (2, True)


def test_what_cannot_be_written_is_named(run: Run, tmp_path: Path) -> None:
    """A file in place of the folder, and a folder in place of a file."""
    (tmp_path / "file").write_text("")
    status, _, err = run(tmp_path / "file")
    assert status == 2
    assert "is a file" in err
    (tmp_path / "deploy" / "Caddyfile").mkdir(parents=True)
    status, _, err = run(tmp_path / "deploy")
    assert (status, "Caddyfile is in the way, and no file" in err) == (2, True)
    assert contents(tmp_path / "deploy") == {}
