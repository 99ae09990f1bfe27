"""`licserver signing-key`: added, listed, shown to apps, retired; and taken up by a server."""

import contextlib
import http.client
import json
import os
import re
import signal
import stat
import sys
import time
from urllib.parse import urlsplit

import pytest

from harness import oracle
from licserver.errors import InvalidInputError, SecretsError
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.security.secrets_file import change_secrets, open_vault, read_vault
from licserver.settings import Settings


def added(cli, *more: str):
    """Add a key; what the command says in JSON."""
    return json.loads(cli("signing-key", "add", "--json", *more))


def test_a_key_is_added_listed_and_shown(bare_cli):
    """The id and the public half are printed; the private half stays in the secrets file."""
    assert bare_cli("signing-key", "list") == "no signing keys: responses are not signed\n"
    assert "no live signing key" in bare_cli("signing-key", "public", expect=2)
    output = bare_cli("signing-key", "add")
    (key,) = open_vault(Settings(data_dir=bare_cli.folder)).signing_keys
    assert key.id in output
    assert key.private.public.text in output
    assert bare_cli("signing-key", "public") == f"{key.private.public.text}\n"
    header, row = bare_cli("signing-key", "list").splitlines()
    assert header.split() == ["ID", "ADDED", "AT", "RETIRED", "AT", "PUBLIC", "KEY"]
    assert row.split()[0] == key.id
    secrets = (bare_cli.folder / "secrets.json").read_text()
    held = json.loads(secrets)["signing_keys"][0]["secret"]
    shown = output + row + bare_cli("signing-key", "list", "--json") + repr(key)
    assert held not in shown
    assert key.private.seed.hex() not in shown
    assert stat.S_IMODE((bare_cli.folder / "secrets.json").stat().st_mode) == 0o600


def test_keys_overlap_and_retire(bare_cli):
    """The newest stands first for apps; a retired one is listed and pinned no more."""
    first, second = added(bare_cli), added(bare_cli)
    pins = json.loads(bare_cli("signing-key", "public", "--json"))["public_keys"]
    assert pins == [second["public_key"], first["public_key"]]
    output = bare_cli("signing-key", "retire", first["id"][:12])
    assert output.startswith(f"retired {first['id']}; ")
    assert bare_cli("signing-key", "public").split() == [second["public_key"]]
    listed = json.loads(bare_cli("signing-key", "list", "--json"))
    assert [key["retired_at"] is None for key in listed] == [False, True]


def test_retiring_says_what_it_cannot_do(bare_cli):
    """Unknown, ambiguous, retired already, and the last one: each has its sentence."""
    key = added(bare_cli)
    other = added(bare_cli)
    assert "is no signing key 'x!'" in bare_cli("signing-key", "retire", "x!", expect=2)
    assert "is no signing key '-xhy'" in bare_cli("signing-key", "retire", "-xhy", expect=2)
    assert "is no signing key ''" in bare_cli("signing-key", "retire", "", expect=2)
    bare_cli("signing-key", "retire", other["id"])
    assert "retired already" in bare_cli("signing-key", "retire", other["id"], expect=2)
    assert "the last live signing key" in bare_cli("signing-key", "retire", key["id"], expect=2)
    bare_cli("signing-key", "retire", key["id"], "--last")
    assert "no live signing key" in bare_cli("signing-key", "public", expect=2)


def test_a_beginning_must_be_of_one_key_only(bare_cli, tmp_path):
    """Two ids that begin alike: more letters are asked for."""
    known = {}
    while (private := PrivateKey.generate()).public.id[0] not in known:
        known[private.public.id[0]] = private
    for number, key in enumerate((private, known[private.public.id[0]])):
        (tmp_path / f"{number}.pem").write_bytes(key.to_pem())
        added(bare_cli, "--pem", str(tmp_path / f"{number}.pem"))
    first = private.public.id[0]
    assert f"are several signing keys '{first}'" in bare_cli("signing-key", "retire", first, expect=2)


def test_an_id_that_begins_with_a_hyphen_is_no_option(bare_cli):
    """One id in 64 does."""
    assert "is no signing key '-abc'" in bare_cli("signing-key", "retire", "-abc", expect=2)


def test_an_openssl_key_can_be_taken(bare_cli, tmp_path):
    """A key that was made elsewhere; not twice, and nothing else than such a key."""
    private = PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(private.to_pem())
    assert added(bare_cli, "--pem", str(tmp_path / "key.pem"))["public_key"] == private.public.text
    again = bare_cli("signing-key", "add", "--pem", str(tmp_path / "key.pem"), expect=2)
    assert "exists already" in again
    (tmp_path / "key.pem").write_bytes(b"nothing")
    assert "is not an unencrypted Ed25519" in bare_cli(
        "signing-key", "add", "--pem", str(tmp_path / "key.pem"), expect=2
    )
    assert "cannot read" in bare_cli("signing-key", "add", "--pem", str(tmp_path / "none.pem"), expect=2)


def test_secrets_in_the_environment_are_the_vendors_to_change(bare_cli, monkeypatch):
    """They are read from there, and the message says how to change them."""
    key = added(bare_cli)
    monkeypatch.setenv("LICSERVER_SECRETS", (bare_cli.folder / "secrets.json").read_text())
    assert bare_cli("signing-key", "public").strip() == key["public_key"]
    assert "LICSERVER_SECRETS" in bare_cli("signing-key", "add", expect=2)
    assert "LICSERVER_SECRETS" in bare_cli("signing-key", "retire", key["id"], "--last", expect=2)


def test_a_change_that_fails_changes_nothing(tmp_path):
    """Whatever goes wrong in between, the file stays as it was."""
    settings = Settings(data_dir=tmp_path)
    open_vault(settings)
    text = (tmp_path / "secrets.json").read_text()

    def refuse(held):
        held.clear()
        raise InvalidInputError("no")

    def spoil(held):
        held["index_secret"] = "!"

    for edit, problem in ((refuse, InvalidInputError), (spoil, SecretsError)):
        with pytest.raises(problem):
            change_secrets(settings, edit)
        assert (tmp_path / "secrets.json").read_text() == text


@pytest.mark.parametrize(
    "key",
    [
        {},
        {"secret": "AAAA", "added_at": "2026-06-15T12:00:00+00:00", "retired_at": None},
        {"secret": "A" * 43 + "=", "added_at": "2026-06-15T12:00:00", "retired_at": None},
        {"secret": "A" * 43 + "=", "added_at": "noon", "retired_at": None},
        {"secret": "A" * 43 + "=", "added_at": "2026-06-15T12:00:00+00:00"},
        "text",
    ],
)
def test_a_damaged_signing_key_is_noticed(tmp_path, key):
    """The server does not start with half of its keys."""
    open_vault(Settings(data_dir=tmp_path))
    held = json.loads((tmp_path / "secrets.json").read_text())
    with pytest.raises(SecretsError, match="restore it from your backup"):
        read_vault(json.dumps({**held, "signing_keys": [key]}), "secrets.json")


def signed_by(url: str) -> str | None:
    """Ask a server for a signed answer; the id of the key that signed it."""
    body = b'{"license_key": "CP-x", "domain": "a", "ip": "192.0.2.1"}'
    headers = {"Accept-Signature": oracle.accept_signature("abc"), "Content-Digest": oracle.digest(body)}
    with contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)) as connection:
        connection.request("POST", "/api/v1/licenses/verify", body, headers)
        answer = connection.getresponse()
        assert answer.status == 403
        found = re.search('keyid="([^"]+)"', answer.getheader("Signature-Input", ""))
    return found and found[1]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no fork, no SIGHUP")
def test_workers_take_a_new_key_up_on_sighup(program):
    """A key that is added while the server runs signs after SIGHUP, and no request fails meanwhile."""
    program.environ["LICSERVER_MISS_LIMIT"] = "0"  # it is asked again until it has changed
    with program.serve("--workers", "2") as (process, url):
        assert signed_by(url) is None
        key = json.loads(program.run("signing-key", "add", "--json").stdout)
        os.kill(process.pid, signal.SIGHUP)
        deadline = time.monotonic() + 30
        signers: set[str | None] = set()
        while signers != {key["id"]} and time.monotonic() < deadline:
            time.sleep(0.7)  # the old generation answers to its end
            signers = {signed_by(url) for _ in range(4)}
        assert signers == {key["id"]}
