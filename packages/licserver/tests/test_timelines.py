"""The timelines that a data folder keeps, so that a former primary is known after a restart (D-259)."""

import json
import logging
import sys

import pytest

from licserver.database.hosts import HostRole, Server
from licserver.database.timelines import Timelines
from licserver.errors import StoreError


def server(timeline, system="s"):
    """A primary."""
    return Server(HostRole.PRIMARY, system, timeline)


def test_the_highest_of_each_system_stays(tmp_path):
    """Of all processes, in whatever order they see them; the file is for nobody else."""
    timelines, two = Timelines(tmp_path), Timelines(tmp_path)
    timelines.note(server(3))
    two.note(server(2))
    two.note(server(2, "other"))
    assert Timelines(tmp_path).newest == {"s": 3, "other": 2}
    if sys.platform != "win32":
        assert (tmp_path / "timelines.json").stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_without_need(tmp_path):
    """No timeline is lower than the first; `check` changes nothing; and no folder is made."""
    Timelines(tmp_path).note(server(1))
    Timelines(tmp_path, keep=False).note(server(2))
    Timelines(tmp_path / "missing").note(server(2))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_logged(tmp_path, monkeypatch, caplog):
    """The process goes on, and knows the timeline until its end."""

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("os.replace", refuse)
    monkeypatch.setattr("pathlib.Path.replace", refuse)
    timelines = Timelines(tmp_path)
    with caplog.at_level(logging.WARNING, "licserver.database"):
        timelines.note(server(2))
    assert timelines.newest == {"s": 2}
    assert "Read-only file system; a restart would accept the former primary" in caplog.text


@pytest.mark.parametrize("content", ["", "[]", '{"s": "soon"}', json.dumps({"s": None}), "\udcff"])
def test_a_damaged_file_is_no_empty_one(tmp_path, content):
    """Nothing would refuse the former primary."""
    (tmp_path / "timelines.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(StoreError, match=r"cannot read .*timelines.json: it is damaged; .*delete it"):
        Timelines(tmp_path)
