"""Answers that are signed for who asks, over a real socket (D-60, D-61)."""

import json
import logging
import re
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from yarl import URL

from harness import oracle
from licserver.protocol import public_api
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.security.secrets_file import format_signing_key, new_secrets
from licserver.web.public import AnswerSigner
from licserver.web.responses import send

VERIFY, CHECK = "/api/v1/licenses/verify", "/api/v1/update-check"


@pytest.fixture
def signing_key(clock):
    """The key that signs."""
    return SigningKey(PrivateKey.generate(), clock())


@pytest.fixture
def make_signing_world(make_world, signing_key):
    """Make a world whose answers can be signed."""

    def make(*more: SigningKey, **settings: Any):
        keys = [format_signing_key(key) for key in (signing_key, *more)]
        return make_world(secrets=json.dumps({**new_secrets(), "signing_keys": keys}), **settings)

    return make


@pytest.fixture
async def signing_site(make_signing_world, open_site):
    """A server whose answers can be signed."""
    return await open_site(make_signing_world())


def asking(body: bytes = b"", **changes: str) -> dict[str, str]:
    """The headers of who asks for a signature; an empty one is left out."""
    headers = {
        "Accept-Signature": oracle.accept_signature("abc"),
        "Content-Digest": oracle.digest(body),
        "Content-Type": "application/json",
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in headers.items() if value}


def verify_body(key, domain="a.example") -> bytes:
    """The body of a verify."""
    return json.dumps({"license_key": key, "domain": domain, "ip": "192.0.2.1"}).encode()


async def call(site, method, path, body=b"", url=None, **changes: str):
    """Ask for a signature; returns status, answer and what the oracle can verify."""
    session = await site.session()
    headers = asking(body, **changes)
    async with session.request(method, URL(path, encoded=True), data=body or None, headers=headers) as reply:
        content = await reply.read()
        request = oracle.HttpRequest(method, (url or site.url) + path, headers, body)
        return reply.status, oracle.HttpResponse(request, reply.status, dict(reply.headers), content)


def verified(answered, signing_key, clock):
    """Have the oracle verify; fails when nothing is signed."""
    public = {signing_key.id: signing_key.private.public.raw}
    return oracle.verify(answered, public, clock().replace(microsecond=0))


async def test_who_does_not_ask_sees_no_difference(signing_site, site):
    """Without the header the answer is byte for byte that of a server without keys."""
    body = verify_body("CP-rubbish")
    answers = []
    for target in (signing_site, site):
        status, headers, answer = await target.call("POST", VERIFY, data=body)
        answers.append((status, answer, sorted(name for name in headers if name != "Date")))
    assert answers[0] == answers[1]
    assert "Signature" not in answers[0][2]


async def test_a_server_without_keys_answers_unsigned(site, make_signing_world, open_site, clock):
    """No key, or none that is live: who asks gets the plain answer."""
    gone = make_signing_world()
    object.__setattr__(
        gone.services.vault,
        "signing_keys",
        tuple(SigningKey(key.private, key.added_at, clock()) for key in gone.services.vault.signing_keys),
    )
    for target in (site, await open_site(gone)):
        status, answered = await call(target, "POST", VERIFY, verify_body("CP-rubbish"))
        assert status == 403
        assert "Signature" not in answered.headers


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"Accept_Signature": "sig=("},
        {"Accept_Signature": oracle.accept_signature("abc", keyid="somebody-else")},
        {"Content_Digest": ""},
    ],
)
async def test_what_cannot_be_signed_is_answered_plainly(signing_site, changes):
    """A wish that cannot be honoured counts as not uttered (D-61)."""
    status, answered = await call(signing_site, "POST", VERIFY, verify_body("CP-rubbish"), **changes)
    assert status == 403
    assert "Signature" not in answered.headers


async def test_a_question_that_is_not_what_it_says_is_not_judged(signing_site):
    """A digest of another body: 400, no signature, and no slot taken."""
    key = signing_site.world.key()
    digest = oracle.digest(verify_body("CP-another"))
    status, answered = await call(signing_site, "POST", VERIFY, verify_body(key), Content_Digest=digest)
    assert (status, json.loads(answered.body)["error"]) == (400, "bad_digest")
    assert "Signature" not in answered.headers
    assert signing_site.world.held(key) == []


async def test_no_signature_no_answer(signing_site, monkeypatch, caplog):
    """If signing fails the answer is a 500, and never the verdict without its signature."""

    def fail(*_: Any):
        raise RuntimeError("no more entropy")

    monkeypatch.setattr("licserver.web.public.sign_response", fail)
    key = signing_site.world.key()
    with caplog.at_level(logging.ERROR, "licserver.web"):
        status, answered = await call(signing_site, "POST", VERIFY, verify_body(key))
    assert (status, json.loads(answered.body)["error"]) == (500, "internal")
    assert "Signature" not in answered.headers
    assert "no more entropy" in caplog.text
    assert key not in caplog.text


@pytest.mark.parametrize(
    ("base_url", "as_used"),
    [
        ("https://Licenses.example:443/store", "https://licenses.example/store"),
        ("http://licenses.example", "http://licenses.example"),
    ],
)
async def test_behind_a_proxy_the_customers_address_is_signed(
    make_signing_world, open_site, signing_key, clock, base_url, as_used
):
    """What customers ask at is the base URL, whatever host and path the proxy asks for."""
    site = await open_site(make_signing_world(base_url=base_url))
    _, answered = await call(site, "POST", VERIFY, verify_body("CP-x"), url=as_used)
    verified(answered, signing_key, clock)


async def test_an_address_of_other_bytes_is_answered_plainly(signing_key, clock):
    """What is no ASCII cannot be signed, and is no reason to fail (aiohttp's parser in C refuses it)."""

    async def no_body(_: web.Request) -> bytes:
        return b""

    async def answer(_: web.Request) -> web.StreamResponse:
        return send(public_api.json_response(200, {}))

    signer = AnswerSigner([signing_key], clock, no_body, lambda _: "http://a.example")
    for path, signed in (("/x?slug=a", True), ("/x?slug=\udcff", False)):
        request = make_mocked_request("GET", path, headers=asking())
        response = await signer.signing(answer)(request)
        assert ("Signature" in response.headers) is signed


async def test_what_has_no_bytes_yet_cannot_be_signed(signing_key, clock):
    """A handler that streams is a mistake of ours, and ends in a 500 rather than unsigned."""

    async def no_body(_: web.Request) -> bytes:
        return b""

    signer = AnswerSigner([signing_key], clock, no_body, lambda _: "http://a.example")
    for streamed in (web.StreamResponse(), web.Response()):

        async def stream(_: web.Request, streamed: web.StreamResponse = streamed) -> web.StreamResponse:
            return streamed

        with pytest.raises(TypeError, match="WholeResponse"):
            await signer.signing(stream)(make_mocked_request("GET", "/x", headers=asking()))
    assert AnswerSigner([], clock, no_body, str).signing(stream) is stream


async def test_accept_signature_may_be_spread_over_several_lines(signing_site, signing_key, clock):
    """Header lines of one name are one list (RFC 9110 section 5.3)."""
    body = verify_body("CP-x")
    raw = await signing_site.raw(
        f"POST {VERIFY} HTTP/1.1\r\nHost: 127.0.0.1:{signing_site.port}\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\nContent-Digest: {oracle.digest(body)}\r\n"
        'Accept-Signature: other=("date")\r\n'
        f"Accept-Signature: {oracle.accept_signature('abc')}\r\n\r\n".encode()
        + body
    )
    assert raw.startswith(b"HTTP/1.1 403")
    assert re.search(rb"\r\nSignature: sig=:", raw)


async def test_a_digest_field_of_many_lines_is_not_parsed(make_signing_world, open_site):
    """Above 8,190 characters it counts as absent (D-161)."""
    site, body = await open_site(make_signing_world()), b"{}"
    for count, signed in ((100, True), (200, False)):
        lines = f"Content-Digest: {oracle.digest(body)}\r\n" * 50
        lines = lines.replace("\r\n", "," + ",".join([oracle.digest(body)] * (count // 50 - 1)) + "\r\n")
        raw = await site.raw(
            f"POST {VERIFY} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n{lines}"
            f"Accept-Signature: {oracle.accept_signature('abc')}\r\n\r\n".encode()
            + body
        )
        assert raw.startswith(b"HTTP/1.1 422")
        assert (b"\r\nSignature: " in raw) == signed


async def test_who_guesses_too_much_gets_no_signature(make_signing_world, open_site):
    """A 429 is no verdict, and is not signed like one (D-60, D-70)."""
    site = await open_site(make_signing_world(miss_limit=1))
    for expected, signed in ((403, True), (429, False)):
        status, answered = await call(site, "POST", VERIFY, verify_body("CP-x"))
        assert (status, "Signature" in answered.headers) == (expected, signed)
