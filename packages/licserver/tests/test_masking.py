"""Keys and secrets in any text are masked, by their format."""

import logging
from base64 import b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from licserver.domain.decisions import generate_license_key
from licserver.domain.records import Machine
from licserver.runtime.logging import MaskingFormatter
from licserver.security.redaction import contains_key, mask, mask_machine

SECRET = b64encode(bytes(range(100, 132))).decode()
PEM = (
    Ed25519PrivateKey.generate()
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    .decode()
    .strip()
)
MASKED = {
    "a key": ("key CP-ABCDEF-012345-GHIJKL-6789MN-OPQRST.", "key CP-AB…QRST."),
    "a token": ("Bearer lsv_abcdefghijklmnopqrstuvwxyz0123456789-_ABCDE.", "Bearer lsv_…."),
    "two keys": (
        "CP-ABCDEF-012345-GHIJKL-6789MN-OPQRST CP-000000-012345-GHIJKL-6789MN-111111",
        "CP-AB…QRST CP-00…1111",
    ),
    "lower case": ("cp-abcdef-012345-ghijkl-6789mn-opqrst", "cp-ab…qrst"),
    "half a key": ("CP-ABCDEF-012345-GHI", "CP-AB…2345-GHI"),
    "in a query": (
        "?license_key=CP-ABCDEF%2D012345%2DGHIJKL%2D6789MN%2DOPQRST&x",
        "?license_key=CP-AB…QRST&x",
    ),
    "no key": ("CP-1 and CP-ABCDEF", "CP-1 and CP-ABCDEF"),
    "a secret": (f'{{"seal_secret": "{SECRET}"}}', '{"seal_secret": "…"}'),
    "a secret by itself": (SECRET, "…"),
    "a signed link": ("GET /x?key=1&signature=AbC-_123&y=2 ok", "GET /x?key=1&signature=…&y=2 ok"),
    "a bucket's address": (
        "https://b.example/o?X-Amz-Signature=0123abcd",
        "https://b.example/o?X-Amz-Signature=…",
    ),
    "a password": ("postgresql://me:hunter2@db/x failed", "postgresql://me:…@db/x failed"),
    "a password without a user": ("redis://:hunter2@host:6379/0", "redis://:…@host:6379/0"),
    "a private key": (f"read {PEM}\nthen", "read … PRIVATE KEY …\nthen"),
    "all hyphens encoded": ("/CP%2DABCDEF%2D012345%2DGHIJKL%2D6789MN%2DOPQRST", "/CP%2D…QRST"),
    "a digest": (f"artifact {'0123456789abcdef' * 4}", f"artifact {'0123456789abcdef' * 4}"),
    "a path": (f"/srv/{'a' * 38}/b", f"/srv/{'a' * 38}/b"),
    "an address with a port": ("http://127.0.0.1:8080/a@b", "http://127.0.0.1:8080/a@b"),
}


@pytest.mark.parametrize(("text", "shown"), MASKED.values(), ids=MASKED.keys())
def test_whatever_is_logged_shows_nothing_secret(text, shown):
    """The finished line is masked, and so is a traceback; what is no secret stays readable."""
    assert mask(text) == shown
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "%s", (text,), None)
    assert MaskingFormatter("%(message)s").format(record) == shown
    record.exc_info = (ValueError, ValueError(text), None)
    assert MaskingFormatter("%(message)s").format(record) == f"{shown}\nValueError: {shown}"


def test_a_private_key_that_is_cut_off_hides_the_rest():
    """Nobody knows where it ends."""
    assert mask(f"x\n{PEM[:60]}\ny") == "x\n… PRIVATE KEY …"


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_key_survives_masking(before, after):
    """Whatever stands around it, and masking twice is masking once."""
    key = generate_license_key()
    masked = mask(f"{before}{key}{after}")
    assert key not in masked
    assert mask(masked) == masked


@given(st.binary(min_size=32, max_size=32), st.sampled_from([" ", '"', "'", "\n", ":", ","]))
def test_no_secret_survives_masking(secret, around):
    """Thirty-two bytes in base64, as the secrets file holds them."""
    text = b64encode(secret).decode()
    assert text not in mask(f"x{around}{text}{around}x")


def test_a_key_as_the_label_of_a_machine_is_masked():
    """Whatever its format; what is no key stays."""
    key = "sold-elsewhere-0001"
    assert mask_machine(Machine(f"Desk {key}", None), key) == Machine("Desk sold-…0001", None)
    assert mask_machine(Machine("Desk 3", "1.4"), key) == Machine("Desk 3", "1.4")
    assert mask("nothing", None) == "nothing"


@pytest.mark.parametrize(
    ("text", "contains"),
    [("xcp-abcdef-012345-x", True), ("CP%2DABCDEF%2D012345", True), ("CP-ABCDEF", False), ("", False)],
)
def test_most_of_a_key_counts_as_one(text, contains):
    """Two of its five groups are enough."""
    assert contains_key(text) is contains
