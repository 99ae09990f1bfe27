"""Secrets and encrypted keys: a stolen database gives no key away."""

import json
import os
import re
import stat

import pytest

from licserver.database.schema import open_database
from licserver.errors import SecretsError, StoreError
from licserver.security.secrets_file import change_secrets, new_secrets, open_vault, other_secrets, read_vault
from licserver.services.installation import open_services
from licserver.settings import Settings

KEY = "CP-ABCDEF-012345-GHIJKL-6789MN-OPQRST"


def a_vault():
    """A vault of fresh secrets."""
    return read_vault(json.dumps(new_secrets()), "test")


def test_the_secrets_file_is_private_from_the_first_byte(tmp_path):
    """Only the owner may read the secrets, and no half-written file is left."""
    vault = open_vault(Settings(data_dir=tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secrets.json", "secrets.lock"]
    assert stat.S_IMODE((tmp_path / "secrets.json").stat().st_mode) == 0o600
    assert open_vault(Settings(data_dir=tmp_path)) == vault


@pytest.mark.parametrize("was_there", [True, False])
def test_other_secrets_count_only_if_the_rest_succeeds(tmp_path, was_there):
    """What fails after they are in place, a database's commit say, brings the old ones back."""
    settings, path, text = Settings(data_dir=tmp_path), tmp_path / "secrets.json", json.dumps(new_secrets())
    if was_there:
        open_vault(settings)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def fail_afterwards():
        with other_secrets(settings, text) as put_in_place:
            put_in_place()
            assert path.read_text() == text
            raise OSError("no commit")

    with pytest.raises(OSError, match="no commit"):
        fail_afterwards()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    with other_secrets(settings, text) as put_in_place:
        put_in_place()
    assert path.read_text() == text
    kept = tmp_path / "secrets.json.before-restore"
    assert kept.exists() == was_there
    if was_there:
        assert kept.read_bytes() == before["secrets.json"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in tmp_path.iterdir())


def test_secrets_can_come_from_the_environment_and_then_touch_no_disk(tmp_path):
    """A vendor who keeps the secrets elsewhere has none in the folder."""
    text = json.dumps(new_secrets())
    vault = open_vault(Settings(data_dir=tmp_path, secrets=text))
    assert vault == read_vault(text, "test")
    assert list(tmp_path.iterdir()) == []


GOOD = new_secrets()
BROKEN: dict[str, str | bytes] = {
    "nothing": "",
    "no text": b"\xff\xfe",
    "no JSON": "{",
    "a list": "[]",
    "null": "null",
    "a secret missing": json.dumps({**GOOD, "seal_secret": None}),
    "no base64": json.dumps({**GOOD, "index_secret": "?"}),
    "too short": json.dumps({**GOOD, "index_secret": "AAAA"}),
    "no link secrets": json.dumps({**GOOD, "link_secrets": []}),
    "a short link secret": json.dumps({**GOOD, "link_secrets": [{"id": "x", "secret": "AAAA"}]}),
    "link secrets of another shape": json.dumps({**GOOD, "link_secrets": {"id": "x"}}),
    "a link secret whose id is no text": json.dumps(
        {**GOOD, "link_secrets": [{**GOOD["link_secrets"][0], "id": 7}]}
    ),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_broken_secrets_are_refused_without_a_word_of_them(text, tmp_path):
    """The message names the file and nothing that stands in it; the file is left as it is."""
    file = tmp_path / "secrets.json"
    content = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(content)
    with pytest.raises(SecretsError, match=re.escape(str(file))) as refusal:
        open_vault(Settings(data_dir=tmp_path))
    assert GOOD["seal_secret"] not in str(refusal.value)
    assert file.read_bytes() == content


def test_a_database_refuses_other_secrets(tmp_path):
    """With other secrets no key could be found: that is an error at the start, and nothing is changed."""
    settings = Settings(data_dir=tmp_path)
    open_services(settings).close()
    for part in ("index_secret", "seal_secret"):
        others = json.loads((tmp_path / "secrets.json").read_text()) | {part: new_secrets()[part]}
        with pytest.raises(StoreError, match="other secrets"):
            open_database(settings.database, read_vault(json.dumps(others), "test").fingerprint)
    open_services(settings).close()


def test_an_encrypted_key_opens_for_its_own_row_alone():
    """A key is bound to its row."""
    vault = a_vault()
    other = KEY.replace("A", "B")
    assert vault.decrypt_key(vault.encrypt_key(KEY), vault.license_id(KEY)) == KEY
    with pytest.raises(SecretsError):
        vault.decrypt_key(vault.encrypt_key(KEY), vault.license_id(other))
    with pytest.raises(SecretsError):
        a_vault().decrypt_key(vault.encrypt_key(KEY), vault.license_id(KEY))


def test_every_altered_byte_of_a_seal_is_noticed():
    """Nonce, text and tag: none can be changed, cut or lengthened; the message contains no key."""
    vault = a_vault()
    encrypted, row = vault.encrypt_key(KEY), vault.license_id(KEY)
    altered = [encrypted[:n] + bytes([encrypted[n] ^ 1]) + encrypted[n + 1 :] for n in range(len(encrypted))]
    for wrong in [*altered, *(encrypted[:n] for n in range(len(encrypted))), encrypted + b"\0"]:
        with pytest.raises(SecretsError) as refusal:
            vault.decrypt_key(wrong, row)
        assert "CP-" not in str(refusal.value)


def test_sealing_twice_gives_two_texts_and_indexing_twice_one():
    """The encrypted text does not show that two keys are equal; an index finds a key again."""
    vault = a_vault()
    assert vault.encrypt_key(KEY) != vault.encrypt_key(KEY)
    assert vault.license_id(KEY) == vault.license_id(KEY) != vault.license_id(KEY.lower())
    assert len(vault.license_id("\ud800")) == 16


def test_what_a_killed_writer_left_is_removed(tmp_path):
    """A whole copy of the secrets: gone with the next change, unless somebody may still be writing it."""
    settings = Settings(data_dir=tmp_path)
    open_vault(settings)
    left, fresh = tmp_path / ".secrets-left", tmp_path / ".secrets-fresh"
    for path in (left, fresh):
        path.write_bytes((tmp_path / "secrets.json").read_bytes())
    os.utime(left, (0, 0))
    change_secrets(settings, lambda held: held.update(of_another_version=1))
    assert not left.exists()
    fresh.unlink()  # was not taken away


def test_the_name_of_the_secrets_survives_a_power_cut(tmp_path, monkeypatch):
    """The folder is synced once the file has its name: at the first secrets, and at each change."""
    synced = []

    def sync(folder):
        synced.append((folder, (folder / "secrets.json").read_bytes()))

    monkeypatch.setattr("licserver.security.secrets_file.sync_folder", sync)
    settings = Settings(data_dir=tmp_path)
    open_vault(settings)
    change_secrets(settings, lambda held: held.update(of_another_version=1))
    assert [folder for folder, _ in synced] == [tmp_path, tmp_path]
    assert synced[0][1] != synced[1][1] == (tmp_path / "secrets.json").read_bytes()
