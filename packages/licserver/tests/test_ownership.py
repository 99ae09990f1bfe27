"""What root's commands leave beside a server that runs as another user: all of it is that user's (D-126)."""

import io
import os
from datetime import UTC, datetime

import pytest

from licserver.artifacts.folder import ArtifactFolder
from licserver.errors import VaultError
from licserver.model import EnvironmentPolicy
from licserver.rotation import rotate
from licserver.secrets_file import SECRETS_FILE, open_vault
from licserver.settings import Settings
from licserver.vendor import Vendor

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
SERVER = 65534  # nobody

pytestmark = pytest.mark.skipif(
    os.name == "nt" or os.geteuid() != 0, reason="only root can make files that are another user's"
)


@pytest.fixture
def settings(tmp_path):
    """A data folder of the server's user, with nothing in it."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    os.chown(folder, SERVER, SERVER)
    return Settings(data_dir=folder)


def of_others(settings):
    """What in the data folder is not the server's."""
    everything = [settings.data_dir, *settings.data_dir.rglob("*")]
    return [path.name for path in everything if (path.stat().st_uid, path.stat().st_gid) != (SERVER, SERVER)]


def test_all_that_root_makes_belongs_to_the_servers_user(settings):
    """Database, secrets, lock, folders and artifacts; a leaked secret is replaced for the server as well."""
    vendor = Vendor(settings)
    vendor.add_product("app", "App", EnvironmentPolicy.DOMAIN)
    vendor.artifacts.store(io.BytesIO(b"zip"), "app.zip")
    assert (settings.data_dir / "licserver.sqlite3-wal").exists()
    assert of_others(settings) == []
    rotate(settings, NOW, leaked=True)
    vendor.close()
    assert of_others(settings) == []
    assert len(list((settings.data_dir / "artifacts").rglob("*"))) == 2


def test_an_owner_who_cannot_be_kept_keeps_the_file(settings, monkeypatch):
    """Where the file system lets nobody give files away, the old secrets stay, for the server to read."""
    open_vault(settings)
    path = settings.data_dir / SECRETS_FILE
    before = path.read_bytes()
    monkeypatch.setattr("licserver.secrets_file.hand_over", lambda *_: None)
    with pytest.raises(VaultError, match="belongs to another user"):
        rotate(settings, NOW, leaked=True)
    assert path.read_bytes() == before
    assert not list(settings.data_dir.glob(".secrets-*"))


def test_who_publishes_need_not_be_who_serves(tmp_path):
    """A file is readable for the folder's group, and for nobody else."""
    folder = ArtifactFolder(tmp_path / "artifacts")
    stored = folder.store(io.BytesIO(b"zip"), "app.zip")
    assert folder.path(stored).stat().st_mode & 0o777 == 0o640
