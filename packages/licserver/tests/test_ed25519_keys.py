"""Ed25519 keys."""

import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import PrivateKey, from_base64url, to_base64url

RFC_8037_SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
RFC_8037_X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
RFC_8037_THUMBPRINT = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_a_key_has_the_id_that_rfc_8037_computes_for_its_example():
    """The id is a standard thumbprint: who has the public key comes to the same one (RFC 8037, A.3)."""
    key = PrivateKey(RFC_8037_SEED)
    assert key.public.text == f"ed25519:{RFC_8037_X}"
    assert key.public.id == RFC_8037_THUMBPRINT


def test_two_libraries_make_the_same_signature():
    """What libsodium signs is what OpenSSL signs, and RFC 8032 has it too (7.1, TEST 1)."""
    theirs = ed25519.Ed25519PrivateKey.from_private_bytes(RFC_8037_SEED).sign(b"")
    assert PrivateKey(RFC_8037_SEED).sign(b"") == theirs
    assert theirs.hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155")


@pytest.mark.parametrize(
    "text",
    [f"{RFC_8037_X}=", RFC_8037_X[:-2], f"{RFC_8037_X[:-1]}p", f"{RFC_8037_X}AAAA=", "é" + RFC_8037_X[1:]],
)
def test_the_same_bytes_have_one_text(text):
    """Padding, cut ends, stray bits and other alphabets are refused."""
    assert to_base64url(from_base64url(RFC_8037_X)) == RFC_8037_X
    with pytest.raises(ValueError):  # noqa: PT011 - some have no message
        from_base64url(text)


def test_a_private_key_survives_pem():
    """PEM as we write it reads back as the same key."""
    key = PrivateKey.generate()
    assert PrivateKey.from_pem(key.to_pem(), "key.pem") == key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssls_own_file_is_read():
    """The command in the error message writes a file that we read."""
    made = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519"], capture_output=True, check=True)
    assert PrivateKey.from_pem(made.stdout, "key.pem").public.id


def _other_files() -> dict[str, bytes]:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(RFC_8037_SEED)
    curve = ec.generate_private_key(ec.SECP256R1())
    pkcs8 = PrivateFormat.PKCS8
    return {
        "empty": b"",
        "text": b"not a key",
        "cut": PrivateKey(RFC_8037_SEED).to_pem()[:60],
        "encrypted": key.private_bytes(Encoding.PEM, pkcs8, BestAvailableEncryption(b"secret")),
        "openssh": key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        "another algorithm": curve.private_bytes(Encoding.PEM, pkcs8, NoEncryption()),
        "der": key.private_bytes(Encoding.DER, pkcs8, NoEncryption()),
        "raw": RFC_8037_SEED,
    }


@pytest.mark.parametrize(("what", "pem"), _other_files().items(), ids=_other_files())
def test_other_files_are_refused_without_a_word_of_what_is_in_them(what, pem):
    """Encrypted keys, other algorithms and other containers: one sentence, and nothing of the file."""
    with pytest.raises(InvalidInputError) as refused:
        PrivateKey.from_pem(pem, "release.key")
    message = str(refused.value)
    assert message == (
        "release.key is not an unencrypted Ed25519 private key in PEM; "
        "generate one with: openssl genpkey -algorithm ed25519"
    )
    assert refused.value.__cause__ is None
    assert not any(line and line.decode("latin-1") in message for line in pem.splitlines())


def test_a_private_key_does_not_show_itself():
    """A repr, as it may land in a log, shows the public half only."""
    key = PrivateKey(RFC_8037_SEED)
    assert RFC_8037_SEED.hex() not in repr(key)
    assert repr(RFC_8037_SEED) not in repr(key)


def test_a_seed_of_another_length_is_no_key():
    """A damaged secrets file is noticed."""
    with pytest.raises(ValueError, match="32 bytes"):
        PrivateKey(b"short")
