"""The contract, signed: others verify what our server has signed, for every vector of the two endpoints."""

import json
from collections.abc import Callable
from urllib.parse import urlencode

import pytest

from harness.oracle import Answered, Asked, digest, verify, wish
from harness.vectors import Case, load, parameters
from harness.world import MovableClock, World
from licserver import wire
from licserver.keys import PrivateKey, SigningKey
from licserver.secrets_file import new_secrets, write_signing_key
from test_vectors_server import BASE, play

CASES = [
    case
    for case in load()
    if (case.request["method"], case.request["path"])
    in {("POST", wire.VERIFY_PATH), ("GET", wire.UPDATE_CHECK_PATH)}
]
NO_VERDICT = {400, 408, 413, 503}


@pytest.mark.parametrize("case", parameters(CASES))
def test_others_verify_what_the_server_has_signed(
    case: Case, clock: MovableClock, make_world: Callable[..., World]
) -> None:
    """Every verdict, refusals and 422 included, carries a signature over question and answer that holds."""
    key = SigningKey(PrivateKey.generate(), case.now)
    held = {**new_secrets(), "signing_keys": [write_signing_key(key)]}
    asking = {
        "Accept-Signature": wish("bm9uY2U", keyid=key.id),
        "Content-Digest": digest(case.body() or b""),
    }
    played = play(case, clock, make_world, asking, secrets=json.dumps(held))
    assert played.status == case.answer["status"]
    if played.status in NO_VERDICT:
        assert "Signature" not in played.headers
        return
    target = BASE + case.request["path"] + (f"?{urlencode(played.query)}" if played.query else "")
    asked = Asked(case.request["method"], target, asking, case.body() or b"")
    answered = Answered(asked, played.status, dict(played.headers.items()), played.body)
    result = verify(answered, {key.id: key.private.public.raw}, case.now.replace(microsecond=0))
    assert result.nonce == "bm9uY2U"
    assert list(result.parameters) == ["created", "expires", "keyid", "nonce", "alg", "tag"]
