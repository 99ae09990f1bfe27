"""Cases of extensions: digests, entitlements, signed answers. What a server does not have is skipped."""

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

import httpx

from licconform.cases import NotApplicableError, SetupError, expect
from licconform.server.download_cases import fetch, link_of
from licconform.server.slot_cases import A, B, C, at_once, use_both_slots
from licconform.server.subject import (
    CASES,
    ENVIRONMENT,
    IP,
    Answer,
    Server,
    expect_error,
    expect_link,
    expect_refusal,
    expect_update,
    expect_valid,
)
from licconform.server.verify_cases import UNKNOWN

_COMPONENTS = (
    '("@status" "content-type" "content-digest" "@method";req "@target-uri";req "content-digest";req)'
)


# --- HTTP message signatures (RFC 9421) and digests (RFC 9530), as far as signed answers use them


def digest_of(content: bytes) -> str:
    """Return a digest field: `sha-256=:…:`."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


def check_signature(answer: Answer, public_key: str, request_body: bytes, nonce: str) -> None:
    """Check that an answer is signed by a key, over this answer and this request."""
    headers, request = answer.response.headers, answer.response.request
    digest = digest_of(answer.response.content)
    expect(headers.get("Content-Digest") == digest, "expected the Content-Digest of the body")
    label, _, parameters = headers.get("Signature-Input", "").partition("=")
    expect(bool(parameters), f"expected a Signature-Input\n{answer}")
    expect(f';nonce="{nonce}"' in parameters, "expected the nonce of the request")
    values = {
        '"@status"': str(answer.status),
        '"content-type"': headers.get("Content-Type", ""),
        '"content-digest"': digest,
        '"@method";req': request.method,
        '"@target-uri";req': str(request.url),
        '"content-digest";req': digest_of(request_body),
    }
    listed = re.match(r"\(([^)]*)\)", parameters)
    covered = listed[1].split(" ") if listed else []
    expect(set(covered) == values.keys(), f"expected six components, not {covered}")
    lines = [*(f"{name}: {values[name]}" for name in covered), f'"@signature-params": {parameters}']
    signature = re.search(rf"(?:^|, ?){re.escape(label)}=:([A-Za-z0-9+/=]+):", headers.get("Signature", ""))
    expect(signature is not None, f"expected a Signature\n{answer}")
    assert signature is not None  # noqa: S101 - as `expect` holds
    right = _verify(public_key, base64.b64decode(signature[1]), "\n".join(lines).encode())
    expect(right, "the signature is not one of this key over this answer and request")


def _verify(public_key: str, signature: bytes, content: bytes) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    except ImportError as error:
        raise SetupError("--public-key needs an extra: pip install 'licconform[signed]'") from error
    text = public_key.removeprefix("ed25519:")
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError as error:
        raise SetupError("--public-key is `ed25519:` and 32 bytes in base64url") from error
    try:
        key.verify(signature, content)
    except InvalidSignature:
        return False
    return True


# --- cases ------------------------------------------------------------------------------------


@CASES.case("file-digest", "extension D-32", "Repr-Digest is the SHA-256 digest of the file.")
def _(server: Server) -> None:
    answer = fetch(server, link_of(server, server.shared("valid")))
    header = answer.response.headers.get("Repr-Digest")
    if header is None:
        raise NotApplicableError("The file has no Repr-Digest.")
    expect(digest_of(answer.response.content) in header, f"Repr-Digest is {header!r}")


@CASES.case("file-digest-range", "extension D-32", "Repr-Digest of a part is that of the whole file.")
def _(server: Server) -> None:
    url = link_of(server, server.shared("valid"))
    whole, part = fetch(server, url).response, fetch(server, url, Range="bytes=3-").response
    if whole.headers.get("Repr-Digest") is None:
        raise NotApplicableError("The file has no Repr-Digest.")
    header = part.headers.get("Repr-Digest")
    expect(header == whole.headers["Repr-Digest"], f"Repr-Digest is {header!r}")


@CASES.case("entitlements", "extension D-222", "entitlements maps names to flags, numbers, texts or quotas.")
def _(server: Server) -> None:
    answer = server.verify(server.shared("entitled").license_key, "entitled.example.org")
    granted = expect_valid(answer).get("entitlements")
    expect(isinstance(granted, dict) and bool(granted), f"expected entitlements\n{answer}")
    wrong = [name for name, value in dict(granted or {}).items() if not _is_entitlement(name, value)]
    expect(not wrong, f"wrong entitlements: {wrong}\n{answer}")


def _is_entitlement(name: str, value: Any) -> bool:
    if not re.fullmatch(r"[a-z0-9_.-]{1,40}", name):
        return False
    if isinstance(value, dict):
        return isinstance(value.get("limit"), int) and value.get("per") in {"day", "month", "year"}
    return isinstance(value, bool | str) or (isinstance(value, int) and value >= 0)


@CASES.case("entitlements-absent", "extension D-222", "Without entitlements the body has four fields.")
def _(server: Server) -> None:
    answer = server.verify(server.shared("valid").license_key, "field.example.org")
    fields = expect_valid(answer).keys()
    expect(fields == {"valid", "product", "expiry", "lifetime"}, f"expected four fields\n{answer}")


# --- covered versions and security releases


@CASES.case("covered-offer", "extension D-330", "After support, the newest version of the period has a link.")
def _(server: Server) -> None:
    _, answer = server.check_shared("covered", "0.9.0")
    expect_link(answer)
    body = expect_update(answer)
    offered = {name: body.get(name) for name in ("version", "latest_version", "updates_until")}
    wanted = {"version": "1.0.0", "latest_version": "2.0.0", "updates_until": "2020-01-31"}
    expect(offered == wanted, f"expected {wanted}\n{answer}")


@CASES.case("covered-verify", "extension D-330", "updates_until is in the response to a verify as well.")
def _(server: Server) -> None:
    answer = server.verify(server.shared("covered").license_key, "covered.example.org")
    expect(expect_valid(answer).get("updates_until") == "2020-01-31", f"expected updates_until\n{answer}")


@CASES.case("security-expired", "extension D-331", "An expired key gets the security release.")
def _(server: Server) -> None:
    _, answer = server.check_shared("security", "1.0.0")
    expect_link(answer)
    body = expect_update(answer)
    expect(body.get("version") == "1.0.1", f"expected 1.0.1\n{answer}")
    expected = {"advisory": None, "cves": ["CVE-2026-1234"]}
    expect(body.get("security") == expected, f"expected security to be {expected}\n{answer}")


@CASES.case("security-installed", "extension D-331", "After it, an expired key is refused as specified.")
def _(server: Server) -> None:
    _, answer = server.check_shared("security", "1.0.1")
    expect_error(answer, 401, "license_expired")


# --- kinds of files


def _expect_kind(answer: Answer, version: str, kind: str | None) -> None:
    body = expect_update(answer)
    offered = {"version": body.get("version"), "kind": body.get("kind")}
    wanted = {"version": version, "kind": kind}
    expect(offered == wanted and ("kind" in body) == (kind is not None), f"expected {wanted}\n{answer}")


@CASES.case("kind-named", "extension D-187", "An app that names its kind is offered a file of it.")
def _(server: Server) -> None:
    _, answer = server.check_shared("kinds", "0.9.0", kind="appimage")
    expect_link(answer)
    _expect_kind(answer, "1.0.0", "appimage")


@CASES.case("kind-absent", "extension D-187", "An app that names none is offered each version, and no field.")
def _(server: Server) -> None:
    _, answer = server.check_shared("kinds", "0.9.0")
    _expect_kind(answer, "2.0.0", None)


@CASES.case("kind-unknown", "extension D-187", "What is no kind counts as none.")
def _(server: Server) -> None:
    _, answer = server.check_shared("kinds", "0.9.0", kind="APPIMAGE")
    _expect_kind(answer, "2.0.0", None)


@CASES.case("kind-of-no-version", "extension D-187", "A kind that no version has is offered nothing.")
def _(server: Server) -> None:
    _, answer = server.check_shared("kinds", "0.9.0", kind="msi")
    expect_error(answer, 404, "no_versions")


# --- computers of a license, and moves


def call_computers(server: Server, path: str, **fields: Any) -> Answer:
    """Send a request about a license's computers; a case is skipped where a server has none."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    url = f"{server.base_url}/api/v1/licenses/{path}"
    answer = server.send("POST", url, content=json.dumps(fields).encode(), headers=headers)
    is_of_a_move = b"computer_not_found" in answer.response.content
    if (answer.status == httpx.codes.NOT_FOUND and not is_of_a_move) or answer.status in {405, 501}:
        raise NotApplicableError("The server does not list the computers of a license.")
    return answer


def list_computers(server: Server, key: str, domain: str) -> Mapping[str, Any]:
    """Return the list of computers that a domain gets."""
    answer = call_computers(server, "computers", license_key=key, domain=domain)
    expect(answer.status == httpx.codes.OK, f"expected 200\n{answer}")
    body = answer.json()
    computers = body.get("computers")
    is_right = isinstance(computers, list) and all(map(_is_computer, computers))
    expect(is_right, f"expected computers with ids of 32 hexadecimal digits\n{answer}")
    return body


def _is_computer(entry: Any) -> bool:
    return isinstance(entry, dict) and re.fullmatch("[0-9a-f]{32}", str(entry.get("id"))) is not None


def move(server: Server, key: str, source: str, domain: str) -> Answer:
    """Send a request to move the license from the computer with an id to a domain."""
    fields = {"license_key": key, "domain": domain, "ip": IP, "from": source}
    return call_computers(server, "move", **fields)


def fill(server: Server) -> tuple[str, str]:
    """Take both slots of a new key; return it, and the id of the computer A."""
    key = server.new("valid").license_key
    use_both_slots(server, key)
    marked = [entry["id"] for entry in list_computers(server, key, A)["computers"] if entry.get("is_this")]
    expect(len(marked) == 1, f"expected one computer with is_this, not {len(marked)}")
    return key, marked[0]


@CASES.case("computers", "extension D-332", "Computers are listed without their domains, this one is marked.")
def _(server: Server) -> None:
    key, _ = fill(server)
    body = list_computers(server, key, C)
    shown = {name: body.get(name, "absent") for name in ("slots", "used", "moved_to")}
    shown["computers"] = len(body["computers"])
    expected = {"slots": 2, "used": 2, "moved_to": None, "computers": 2}
    expect(shown == expected, f"expected two computers, not {shown}")
    expect(A not in json.dumps(body), "expected no domain in the list")
    expect(not any(entry.get("is_this") for entry in body["computers"]), "expected no mark: C has no slot")


@CASES.case("move", "extension D-333", "A move takes the slot of a computer; repeated, it does nothing.")
def _(server: Server) -> None:
    key, source = fill(server)
    for is_moved in (True, False):
        answer = move(server, key, source, C)
        expect(answer.status == httpx.codes.OK, f"expected 200\n{answer}")
        expect(answer.json().get("moved") is is_moved, f"expected moved to be {is_moved}\n{answer}")
    expect_valid(server.verify(key, C))
    expect_valid(server.verify(key, B))
    expect_refusal(server.verify(key, A), 403, ENVIRONMENT)
    moved_to = list_computers(server, key, A).get("moved_to")
    expect(isinstance(moved_to, dict), f"expected moved_to for the former computer, not {moved_to}")


@CASES.case("move-race", "extension D-333", "Of moves from one computer at once, one gets its slot.")
def _(server: Server) -> None:
    key, source = fill(server)
    got = at_once([lambda n=n: move(server, key, source, f"race-{n}.example.org") for n in range(8)])  # type: ignore[misc]
    expect(got.count(200) == 1, f"expected 200 once, not {got}")
    expect_valid(server.verify(key, B))
    expect_refusal(server.verify(key, A), 403, ENVIRONMENT)


@CASES.case("move-unknown", "extension D-333", "A computer without a slot, and an unknown key, move nothing.")
def _(server: Server) -> None:
    key, source = fill(server)
    expect_error(move(server, key, "0" * 32, C), 404, "computer_not_found")
    expect_error(move(server, UNKNOWN, source, C), 401, "invalid_license")
    expect_refusal(server.verify(key, C), 403, ENVIRONMENT)


def signed(
    server: Server, method: str, url: str, body: bytes, nonce: str, digest: str | None = None
) -> Answer:
    """Send a request for a signed response."""
    if server.public_key is None:
        raise NotApplicableError("Signed answers are tested with --public-key.")
    accept_signature = (
        f'sig0={_COMPONENTS};created;expires;nonce="{nonce}";alg="ed25519";tag="licensing-answer"'
    )
    headers = {"Content-Digest": digest or digest_of(body), "Accept-Signature": accept_signature}
    if body:
        headers |= {"Content-Type": "application/json", "Accept": "application/json"}
    return server.send(method, url, content=body, headers=headers)


def signed_verify(server: Server, key: str) -> tuple[Answer, bytes, str]:
    """Send a signed verify; return the answer, the request's body, and the nonce."""
    body = f'{{"license_key": "{key}", "domain": "signed.example.org", "ip": "192.0.2.1"}}'.encode()
    nonce = base64.b64encode(secrets.token_bytes(12)).decode()
    url = f"{server.base_url}/api/v1/licenses/verify"
    return signed(server, "POST", url, body, nonce), body, nonce


@CASES.table(
    "signed",
    "extension D-60",
    "The response is signed on request ({0}).",
    [("success", "lifetime", 200), ("revoked", "revoked", 403), ("unknown", UNKNOWN, 404)],
)
def _(server: Server, state: str, status: int) -> None:
    key = state if state == UNKNOWN else server.shared(state).license_key
    answer, body, nonce = signed_verify(server, key)
    expect(answer.status == status, f"expected {status}\n{answer}")
    check_signature(answer, server.public_key or "", body, nonce)


@CASES.case("signed-update", "extension D-60", "The response to an update check is signed on request.")
def _(server: Server) -> None:
    key = server.shared("valid")
    query = f"license_key={key.license_key}&slug={key.slug}&current_version=1&domain=signed.example.org"
    nonce = base64.b64encode(secrets.token_bytes(12)).decode()
    answer = signed(server, "GET", f"{server.base_url}/api/v1/update-check?{query}", b"", nonce)
    check_signature(answer, server.public_key or "", b"", nonce)


@CASES.case("signed-on-request", "extension D-60", "A response is not signed without a request for it.")
def _(server: Server) -> None:
    if server.public_key is None:
        raise NotApplicableError("Signed answers are tested with --public-key.")
    answer = server.verify(server.shared("lifetime").license_key, "lifetime.example.org")
    expect("Signature" not in answer.response.headers, "expected no Signature")


@CASES.case("signed-digest", "extension D-60", "A Content-Digest that is not the body's is answered 400.")
def _(server: Server) -> None:
    url = f"{server.base_url}/api/v1/licenses/verify"
    answer = signed(server, "POST", url, b"{}", "nonce", digest_of(b"another body"))
    expect(answer.status == 400, f"expected 400\n{answer}")  # noqa: PLR2004 - the case's own number
