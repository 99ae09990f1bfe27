"""Pinned public keys."""

import errno
import os
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from licclient._core import lazy, public_keys
from licclient._core.public_keys import PublicKey, read_public_key
from licclient.errors import StateUnreadableError

RFC_8037_X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
RFC_8037_THUMBPRINT = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_a_key_has_the_id_that_rfc_8037_computes_for_its_example():
    """The id is a standard thumbprint, so client and server come to the same one (RFC 8037, A.3)."""
    key = read_public_key(f"ed25519:{RFC_8037_X}")
    assert key.id == RFC_8037_THUMBPRINT
    assert read_public_key(key.text) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519:",
        RFC_8037_X,
        f"ed25519:{RFC_8037_X}=",
        f"ed25519:{RFC_8037_X[:-1]}",
        f"ED25519:{RFC_8037_X}",
        f"ed25519:{RFC_8037_X[:-1]}p",
        f"ed25519:{RFC_8037_X}AAAA",
        "ed25519:é" + RFC_8037_X[1:],
    ],
)
def test_other_text_is_no_public_key(text):
    """One key has one text: padding, cut ends, stray bits and other alphabets are refused."""
    with pytest.raises(ValueError, match=r"public_keys must hold public keys .*: ed25519:"):
        read_public_key(text)


def test_a_public_key_is_text():
    """Bytes are rejected with a message that names the mistake."""
    with pytest.raises(TypeError, match="public_keys must hold strings, not bytes"):
        read_public_key(b"ed25519:")


def test_a_signature_fits_its_key_and_its_message_only():
    """Another message, a cut signature, another key: all False, nothing raised."""
    private = Ed25519PrivateKey.generate()
    key = _public(private)
    signature = private.sign(b"message")
    assert key.verify(signature, b"message")
    assert not key.verify(signature, b"massage")
    assert not key.verify(signature[:-1], b"message")
    assert not key.verify(b"", b"message")
    assert not _public(Ed25519PrivateKey.generate()).verify(signature, b"message")


def _public(private):
    return PublicKey(private.public_key().public_bytes_raw())


def test_reading_and_naming_a_key_loads_no_library():
    """What an app pins costs its start nothing: the library is loaded for the first signature."""
    program = (
        "import sys; from licclient._core.public_keys import require_library, read_public_key;"
        f"require_library('public_keys'); read_public_key('ed25519:{RFC_8037_X}').id;"
        "sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("problem", "escapes"), [(KeyboardInterrupt(), True), (BaseException(), False)])
def test_only_what_ends_the_program_escapes_from_a_signature_check(monkeypatch, problem, escapes):
    """A library in native code may panic: that is no valid signature."""

    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr(public_keys, "_verify", fail)
    key = _public(Ed25519PrivateKey.generate())
    if escapes:
        with pytest.raises(KeyboardInterrupt):
            key.verify(b"", b"")
    else:
        assert not key.verify(b"", b"")


def test_a_library_that_cannot_be_loaded_makes_no_signature_wrong(monkeypatch):
    """An app without file descriptors is not attacked."""

    def refuse(_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    key, loaded = _public(Ed25519PrivateKey.generate()), public_keys.ed25519
    monkeypatch.delitem(vars(loaded), "__module__", raising=False)
    monkeypatch.setattr(lazy, "import_module", refuse)
    with pytest.raises(StateUnreadableError):
        key.verify(b"", b"")


def test_a_missing_library_is_reported(monkeypatch):
    """The error names the extra."""
    monkeypatch.setattr(public_keys, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"^release_keys needs .*licclient\[signed\]"):
        public_keys.require_library("release_keys")
    monkeypatch.setattr(public_keys, "_verify", lambda *_: public_keys.require_library("public_keys"))
    with pytest.raises(ImportError, match="public_keys needs"):
        _public(Ed25519PrivateKey.generate()).verify(b"", b"")


@pytest.mark.parametrize(
    ("problem", "raised"), [(ValueError, False), (ImportError, True), (KeyboardInterrupt, True)]
)
def test_a_signature_that_cannot_be_read_is_wrong(problem, raised, monkeypatch):
    """But a missing library, or the end of the program, goes on."""

    def fail(raw, signature, message):
        raise problem

    monkeypatch.setattr("licclient._core.public_keys._verify", fail)
    key = read_public_key(f"ed25519:{RFC_8037_X}")
    if raised:
        with pytest.raises(problem):
            key.verify(b"", b"")
    else:
        assert key.verify(b"", b"") is False
