"""Cases of verify: what a client sends, and what it makes of the response."""

import ipaddress
from collections.abc import Callable

from licconform.cases import expect
from licconform.client.service import KEY, OTHER_KEY, PRODUCT, Reply, Request, error, refusal, success
from licconform.client.subject import CASES, NO, NO_ANSWER, YES, Client

PAGE = "<!doctype html><title>Log in to the network</title>"


def is_address(text: object) -> bool:
    """Return whether a value is the text of an IP address."""
    try:
        return isinstance(text, str) and bool(ipaddress.ip_address(text).version)
    except ValueError:
        return False


def field_of(request: Request, name: str) -> object:
    """Return a field of a JSON body, or None."""
    body = request.json()
    return body.get(name) if isinstance(body, dict) else None


def media_type(request: Request, name: str) -> str:
    """Return the media type that a header names."""
    return request.headers.get(name, "").partition(";")[0].strip()


@CASES.table(
    "verify-sends",
    "spec 4.1",
    "A verify has the right {0}.",
    [
        ("method", lambda sent: sent.method == "POST"),
        ("Content-Type", lambda sent: media_type(sent, "content-type") == "application/json"),
        ("Accept", lambda sent: media_type(sent, "accept") == "application/json"),
        ("license_key", lambda sent: field_of(sent, "license_key") == KEY),
        ("domain", lambda sent: bool(str(field_of(sent, "domain") or "").strip())),
        ("ip", lambda sent: is_address(field_of(sent, "ip"))),
    ],
)
def _(client: Client, is_right: Callable[[Request], bool]) -> None:
    client.verify()
    sent = client.verifies.first
    expect(is_right(sent), f"sent {sent.method} {sent.headers} {sent.body!r}")


@CASES.case("verify-once", "spec 4.1", "One verify is one request, below the whole base URL.")
def _(client: Client) -> None:
    client.verify()
    client.expect_verifies(1)


@CASES.table(
    "verify-valid",
    "spec 2",
    "A success is valid ({0}).",
    [
        ("with-expiry", success()),
        ("without-expiry", success(expiry=None)),
        ("lifetime", success(expiry=None, lifetime=True)),
    ],
)
def _(client: Client, reply: Reply) -> None:
    client.service.verify = reply
    client.verify(expected=YES)


@CASES.table(
    "verify-refused",
    "spec 7",
    "A refusal is a definite no ({0}).",
    [
        ("format", 403, "Invalid license format."),
        ("unknown", 404, "License not found."),
        ("revoked", 403, "License has been revoked."),
        ("expired", 403, "License expired."),
        ("environment", 403, "Max activations exceeded or unrecognized environment."),
        ("other-reason", 403, "Not on a Sunday."),
    ],
)
def _(client: Client, status: int, reason: str) -> None:
    client.service.verify = refusal(status, reason)
    client.verify(expected=NO)


@CASES.table(
    "verify-not-valid",
    "spec 4.1",
    "Only a 200 with valid true is valid, not {0}.",
    [
        ("200-valid-false", Reply(body={"valid": False, "reason": "License expired."})),
        ("200-without-valid", success(valid=...)),
        ("403-valid-true", Reply(403, {"valid": True, "product": PRODUCT, "expiry": None, "lifetime": True})),
        ("422", Reply(422, {"message": "No.", "errors": {"ip": ["No."]}})),
        ("500", Reply(500, PAGE)),
        ("500-with-a-success", Reply(500, success().body)),
    ],
)
def _(client: Client, reply: Reply) -> None:
    client.service.verify = reply
    client.never_yes(client.verify)


@CASES.table(
    "verify-no-answer",
    "D-40",
    "A response that is not the service's is an outage, neither valid nor refused ({0}).",
    [
        ("500", Reply(500, {"message": "Internal error."})),
        ("502-page", Reply(502, PAGE)),
        ("429", Reply(429, {"message": "Too many requests."})),
        ("401", error(401, "login")),
        ("redirect", Reply(302, PAGE, {"Location": "/login"})),
        ("200-page", Reply(200, PAGE)),
        ("200-empty", Reply(200, b"")),
        ("200-list", Reply(200, [True])),
        ("200-valid-text", success(valid="true")),
        ("200-valid-1", success(valid=1)),
        ("403-page", Reply(403, PAGE)),
        ("404-page", Reply(404, PAGE)),
        ("403-without-valid", Reply(403, {"reason": "License expired."})),
        ("cut", Reply(200, success().body, cut=True)),
        ("dropped", Reply(drop=True)),
    ],
)
def _(client: Client, reply: Reply) -> None:
    client.service.verify = reply
    client.verify(expected=NO_ANSWER)


@CASES.case("verify-redirect", "D-40", "A redirect is not followed: the key goes nowhere else.")
def _(client: Client) -> None:
    client.service.verify = Reply(307, "", {"Location": f"{client.service.base_url}/elsewhere"})
    client.service.elsewhere = success()
    client.never_yes(client.verify)
    expect(not client.service.requests_for("/elsewhere"), "the redirect was followed")


@CASES.case("verify-unknown-fields", "D-11", "Unknown fields of a success are ignored.")
def _(client: Client) -> None:
    client.service.verify = success(plan={"name": "pro"}, seats=[1])
    client.verify(expected=YES)


@CASES.case("verify-product", "spec 1", "A client that expects a product accepts its name.")
def _(client: Client) -> None:
    client.verify(product=PRODUCT, expected=YES)


@CASES.case("verify-other-product", "spec 1", "A client that expects a product refuses another one's name.")
def _(client: Client) -> None:
    client.verify(product="Another Product", expected=NO)


@CASES.case("verify-same-domain", "D-45", "Each verify of an installation names the same domain: one slot.")
def _(client: Client) -> None:
    client.verify()
    client.verify(force=True)
    client.verify(OTHER_KEY)
    domains = {str(field_of(sent, "domain")) for sent in client.verifies}
    client.expect_verifies(3)
    expect(len(domains) == 1, f"sent {len(domains)} domains")


@CASES.table(
    "verify-typed",
    "D-02",
    "A typed key is sent without {0}.",
    [("white-space", f"  {KEY}\t"), ("lower-case", KEY.lower())],
)
def _(client: Client, typed: str) -> None:
    client.verify(typed, expected=YES)
    expect(field_of(client.verifies.first, "license_key") == KEY, "expected the corrected key")
