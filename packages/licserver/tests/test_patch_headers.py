"""Which clients are sent a patch, and with which headers (RFC 9842)."""

from base64 import b64encode
from hashlib import sha256

import pytest

from licserver.domain.records import Artifact
from licserver.protocol.downloads import patch_headers, read_patch_base

DIGEST = sha256(b"the file that the client has").digest()
WISH = {"Accept-Encoding": "gzip,DCZ, br", "Available-Dictionary": f" :{b64encode(DIGEST).decode()}: "}


@pytest.mark.parametrize(
    "changed",
    [
        {"Available-Dictionary": ""},
        {"Available-Dictionary": ":AAAA:"},
        {"Available-Dictionary": f":{'A' * 43}=: , :x:"},
        {"Accept-Encoding": "gzip, dcb"},
        {"Accept-Encoding": ""},
        {"Range": "bytes=0-9"},
    ],
)
def test_what_does_not_request_a_patch_gets_the_file(changed):
    """Neither a malformed header nor a part of the file is answered with a patch."""
    assert read_patch_base(WISH | changed) is None
    assert read_patch_base({}) is None
    assert read_patch_base(WISH) == DIGEST


def test_a_patch_names_the_file_that_it_makes():
    """By its digest; a proxy keeps it apart from the file."""
    assert patch_headers(Artifact("app.zip", 1, DIGEST)) == {
        "Content-Encoding": "dcz",
        "Unencoded-Digest": f"sha-256=:{b64encode(DIGEST).decode()}:",
        "Vary": "Accept-Encoding, Available-Dictionary",
    }
