"""Signatures of files for other updaters: made where the key is, checked by minisign and by cryptography."""

import json
from base64 import b64decode, b64encode
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from harness.feeds import minisign_verifies, tauri_verifies
from licserver.cli import main
from licserver.cli.signing import file_signer
from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.file_signatures import PUBLIC_KEY_FORMS, FileSignatures, read_signatures, to_semantic
from licserver.protocol.release_manifests import Manifest, read

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
KEY, OTHER = PrivateKey(b"1" * 32), PrivateKey(b"2" * 32)
CONTENT = b"an installer\n" * 1000
MINISIGN = PUBLIC_KEY_FORMS["minisign"]


def sign(path, content=CONTENT, version="1.5b2"):
    """Sign a file as that version."""
    path.write_bytes(content)
    return file_signer(path, KEY)(Manifest("app", version, len(content), b"", NOW, NOW))


def test_minisign_itself_accepts_the_signature(tmp_path):
    """Of this file and comment by this key, and of no other; the version is signed with it."""
    signed = sign(tmp_path / "Phöto Lab.exe")
    comment = minisign_verifies(tmp_path, CONTENT, signed.minisign, MINISIGN(KEY.public))
    assert comment == f"timestamp:{int(NOW.timestamp())}\tfile:Phöto Lab.exe\tversion:1.5.0-beta.2"
    forged = signed.minisign.replace("beta.2", "beta.3")
    for content, text, key in (
        (CONTENT + b"!", signed.minisign, KEY),
        (CONTENT, forged, KEY),
        (CONTENT, signed.minisign, OTHER),
    ):
        assert minisign_verifies(tmp_path, content, text, MINISIGN(key.public)) == ""
    fields = tauri_verifies(tmp_path, CONTENT, signed.tauri, PUBLIC_KEY_FORMS["tauri"](KEY.public))
    assert fields["version"] == "1.5.0-beta.2"


@pytest.mark.parametrize("content", [CONTENT, b""], ids=["file", "empty"])
def test_sparkle_checks_the_bytes_of_the_file(tmp_path, content):
    """With the public key in base64, as `SUPublicEDKey` has it."""
    signed = sign(tmp_path / "app.dmg", content)
    key = Ed25519PublicKey.from_public_bytes(b64decode(PUBLIC_KEY_FORMS["sparkle"](KEY.public)))
    key.verify(b64decode(signed.sparkle), content)


def test_a_file_that_could_be_a_manifest_is_not_signed(tmp_path):
    """Its signature for Sparkle would be one of a manifest that nobody has seen."""
    with pytest.raises(InvalidInputError, match="could be a manifest"):
        sign(tmp_path / "app.dmg", b"eyJhbGciOiJFZERTQSJ9.eyJzbHVnIjoiYXBwIn0")


GOOD = FileSignatures(
    b64encode(b"s" * 64).decode(),
    f"untrusted comment: x\n{b64encode(b'm' * 74).decode()}\n"
    f"trusted comment: y\n{b64encode(b'c' * 64).decode()}\n",
)


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {"sparkle": GOOD.sparkle},
        {"sparkle": 1, "minisign": GOOD.minisign},
        {"sparkle": GOOD.sparkle, "minisign": "text"},
        {"sparkle": b64encode(b"s" * 63).decode(), "minisign": GOOD.minisign},
        {"sparkle": "?", "minisign": GOOD.minisign},
        {"sparkle": GOOD.sparkle, "minisign": GOOD.minisign.replace("bW1t", "bW1tbW1t", 1)},
        {"sparkle": GOOD.sparkle, "minisign": GOOD.minisign.replace("comment: y", "comment: " + "y" * 401)},
    ],
)
def test_other_texts_are_no_signatures(found):
    """A manifest with them is refused before anything is stored."""
    assert read_signatures(found) is None
    assert read_signatures({"sparkle": GOOD.sparkle, "minisign": GOOD.minisign}) == GOOD


@pytest.mark.parametrize(
    ("version", "semantic"),
    [
        ("1.5", "1.5.0"),
        ("2", "2.0.0"),
        ("1.5.2", "1.5.2"),
        ("1.5.0-beta.1", "1.5.0-beta.1"),
        ("v1.05", "1.5.0"),
        ("1.5a1", "1.5.0-alpha.1"),
        ("1.5rc3", "1.5.0-rc.3"),
        *(
            (none, None)
            for none in ("1.2.3.4", "1.5.post1", "1.5.0-1", "1.5.dev1", "1!1.5", "1.5+local", "x")
        ),
    ],
)
def test_a_version_that_semantic_versions_have(version, semantic):
    """In the same order; where there is none, Tauri and Velopack are offered nothing."""
    assert to_semantic(version) == semantic


def test_a_vendor_signs_offline_and_publishes_elsewhere(cli, tmp_path, capsys):
    """One file carries the manifest and both signatures; a later manifest without them keeps those before."""
    file, key, manifest = (tmp_path / name for name in ("app.exe", "key.pem", "manifest.json"))
    file.write_bytes(CONTENT)
    key.write_bytes(KEY.to_pem())
    other = tmp_path / "other.pem"
    other.write_bytes(OTHER.to_pem())
    base = ("release", "sign", "app", "1.0", str(file), "--release-key")
    cli(*base, str(key), "--out", str(manifest))
    cli(*base, str(other), "--add-to", str(manifest), "--out", str(tmp_path / "both.json"))
    signed = read((tmp_path / "both.json").read_text())
    assert signed.key_ids == (KEY.public.id, OTHER.public.id)
    assert signed.files is not None
    assert minisign_verifies(tmp_path, CONTENT, signed.files.minisign, MINISIGN(KEY.public))
    cli("product", "add", "app", "--name", "App")
    cli("release", "publish", "app", "1.0", str(file), "--manifest", str(tmp_path / "both.json"))
    cli("release", "renew", "app", "1.0", "--release-key", str(other))
    (release,) = json.loads(cli("release", "list", "app", "--json"))
    assert release["for_updaters"] is True
    broken = json.loads(manifest.read_text()) | {"file_signatures": {}}
    manifest.write_text(json.dumps(broken))
    output = cli("release", "renew", "app", "1.0", "--manifest", str(manifest), expect=2)
    assert "its file_signatures are not those of `licserver release sign`" in output


def test_the_public_key_is_printed_in_each_form(tmp_path, capsys):
    """For the app's source: nothing of it is secret."""
    (tmp_path / "key.pem").write_bytes(KEY.to_pem())
    for updater, form in PUBLIC_KEY_FORMS.items():
        with pytest.raises(SystemExit):
            main(["release", "public-key", str(tmp_path / "key.pem"), "--for", updater])
        assert capsys.readouterr().out == form(KEY.public) + "\n"
