"""Cases of verify: success, refusals, and malformed requests."""

import re
from typing import Any

from licconform.cases import NotApplicableError, expect
from licconform.server.subject import (
    CASES,
    ENVIRONMENT,
    EXPIRED,
    FORMAT,
    MISSING,
    NOT_FOUND,
    REVOKED,
    Server,
    expect_malformed,
    expect_refusal,
    expect_valid,
    today,
)

UNKNOWN = "CP-ZZZZZZ-ZZZZZZ-ZZZZZZ-ZZZZZZ-ZZZZZZ"
UNPROCESSABLE = 422

# --- success ----------------------------------------------------------------------------------


@CASES.case("verify-valid", "spec 4.1", "A valid key is answered 200 with valid true, without any login.")
def _(server: Server) -> None:
    expect_valid(server.verify(server.new("valid").license_key))


@CASES.table(
    "verify-success-field",
    "spec 2",
    "The success body has the field {0}.",
    [("product", "product", str), ("expiry", "expiry", str | None), ("lifetime", "lifetime", bool)],
)
def _(server: Server, name: str, types: Any) -> None:
    answer = server.verify(server.shared("valid").license_key, "field.example.org")
    body = expect_valid(answer)
    expect(name in body and isinstance(body[name], types), f"expected the field {name}\n{answer}")


@CASES.case("verify-product", "spec 2", "product is the product's name.")
def _(server: Server) -> None:
    key = server.shared("valid")
    answer = server.verify(key.license_key, "field.example.org")
    expect(expect_valid(answer).get("product") == key.product, f"expected {key.product!r}\n{answer}")


@CASES.case("verify-product-snapshot", "spec 2", "product is the name stored when the key was issued.")
def _(server: Server) -> None:
    key = server.shared("renamed")
    answer = server.verify(key.license_key, "snapshot.example.org")
    expect(expect_valid(answer).get("product") == key.product, f"expected {key.product!r}\n{answer}")


@CASES.case("verify-expiry-date", "spec 2", "expiry is the key's date as YYYY-MM-DD.")
def _(server: Server) -> None:
    key = server.shared("valid")
    answer = server.verify(key.license_key, "field.example.org")
    expiry = expect_valid(answer).get("expiry")
    expect(bool(re.fullmatch(r"\d{4}-\d\d-\d\d", str(expiry))), f"expected YYYY-MM-DD\n{answer}")
    expect(key.expiry in {None, expiry}, f"expected {key.expiry}\n{answer}")


@CASES.case("verify-expiry-null", "spec 2", "expiry is null when the key has none; lifetime is false.")
def _(server: Server) -> None:
    answer = server.verify(server.shared("no-expiry").license_key, "null.example.org")
    body = expect_valid(answer)
    expect("expiry" in body and body["expiry"] is None, f"expected expiry: null\n{answer}")
    expect(body.get("lifetime") is False, f"expected lifetime: false\n{answer}")


@CASES.case("verify-not-lifetime", "spec 2", "lifetime is false for a key with an expiry date.")
def _(server: Server) -> None:
    answer = server.verify(server.shared("valid").license_key, "field.example.org")
    expect(expect_valid(answer).get("lifetime") is False, f"expected lifetime: false\n{answer}")


@CASES.case("verify-lifetime", "spec 2", "lifetime is true when the key never expires; then expiry is null.")
def _(server: Server) -> None:
    answer = server.verify(server.shared("lifetime").license_key, "lifetime.example.org")
    body = expect_valid(answer)
    expect(body.get("lifetime") is True, f"expected lifetime: true\n{answer}")
    expect("expiry" in body and body["expiry"] is None, f"expected expiry: null\n{answer}")


@CASES.table(
    "verify-ip",
    "spec 2",
    "ip may be any syntactically valid address ({0}).",
    [("IPv4", "203.0.113.255"), ("IPv6", "2001:db8::1"), ("IPv6-full", "2001:0db8:0:0:0:0:0:ffff")],
)
def _(server: Server, ip: str) -> None:
    expect_valid(server.verify(server.shared("lifetime").license_key, "lifetime.example.org", ip))


@CASES.case("verify-other-product", "spec 1", "Verify does not check for which product a key was issued.")
def _(server: Server) -> None:
    key = server.shared("lifetime").license_key
    expect_valid(server.verify(key, "lifetime.example.org", slug="another", product="Another"))


@CASES.case("verify-json-type", "D-11", "Responses have the media type application/json.")
def _(server: Server) -> None:
    answer = server.verify(server.shared("lifetime").license_key, "lifetime.example.org")
    media = answer.response.headers.get("Content-Type", "").partition(";")[0].strip()
    expect(media == "application/json", f"expected application/json, not {media!r}\n{answer}")


@CASES.case("verify-expires-today", "D-09", "A key is valid through the whole day named by expiry, UTC.")
def _(server: Server) -> None:
    day = today()
    key = server.new("expires-today").license_key
    answer = server.verify(key)
    if day != today():
        raise NotApplicableError("The day ended meanwhile.")
    expect(expect_valid(answer).get("expiry") == day, f"expected {day}\n{answer}")


@CASES.case("verify-lifetime-wins", "D-10", "lifetime wins over a subscription that has ended.")
def _(server: Server) -> None:
    key = server.shared("lifetime-subscription-ended").license_key
    expect(expect_valid(server.verify(key)).get("lifetime") is True, "expected lifetime: true")


# --- refusals ---------------------------------------------------------------------------------

REFUSALS: list[tuple[str, int, str, str]] = [
    ("revoked", 403, REVOKED, "revoked"),
    ("expired", 403, EXPIRED, "expired"),
    ("subscription-ended", 403, EXPIRED, "subscription-ended"),
    ("environment", 403, ENVIRONMENT, "full"),
]


@CASES.table("verify", "spec 7", "A key is refused with {1} {2} ({0}).", REFUSALS)
def _(server: Server, status: int, reason: str, state: str) -> None:
    expect_refusal(server.verify(server.shared(state).license_key), status, reason)


@CASES.case("verify-unknown", "spec 7", "A key that does not exist is refused with 404 License not found.")
def _(server: Server) -> None:
    expect_refusal(server.verify(UNKNOWN), 404, NOT_FOUND)


@CASES.table(
    "verify-format",
    "spec 7",
    "A text without the shape of a key is refused with 403 Invalid license format. ({0})",
    [("no-prefix", "ABC123-DEF456-GHI789-JKL012-MNO345"), ("other-prefix", f"XP{UNKNOWN[2:]}")],
)
def _(server: Server, text: str) -> None:
    expect_refusal(server.verify(text), 403, FORMAT)


@CASES.table(
    "verify-shape",
    "D-02",
    "CP- and five groups of six upper-case letters or digits: refused with 403 otherwise ({0}).",
    [
        ("four-groups", UNKNOWN[:-7]),
        ("six-groups", f"{UNKNOWN}-ZZZZZZ"),
        ("short-group", UNKNOWN[:-1]),
        ("lower-case", UNKNOWN.lower()),
        ("space", f"{UNKNOWN} "),
        ("line-end", f"{UNKNOWN}\n"),
        ("other-digits", f"{UNKNOWN[:-1]}٣"),
    ],
)
def _(server: Server, text: str) -> None:
    expect_refusal(server.verify(text), 403, FORMAT)


@CASES.table(
    "verify-refusal-body",
    "spec 7",
    "A refusal's body is {{valid: false, reason}} and nothing else ({0}).",
    [
        ("format", lambda _: "no key"),
        ("unknown", lambda _: UNKNOWN),
        *((label, lambda server, state=state: server.shared(state).license_key)
          for label, _, _, state in REFUSALS),
    ],
)  # fmt: skip
def _(server: Server, key: Any) -> None:
    answer = server.verify(key(server))
    expect(answer.status in {403, 404}, f"expected a refusal\n{answer}")
    body = answer.json()
    right = body.keys() == {"valid", "reason"} and body["valid"] is False and isinstance(body["reason"], str)
    expect(right, f"expected valid and reason alone\n{answer}")


@CASES.case("verify-revoke", "spec 3", "A key that was valid is refused once it is revoked.")
def _(server: Server) -> None:
    key = server.new("valid").license_key
    expect_valid(server.verify(key, "revoke.example.org"))
    server.keys.act("revoke", key)
    expect_refusal(server.verify(key, "revoke.example.org"), 403, REVOKED)


@CASES.table(
    "verify-order",
    "D-01",
    "Of several reasons the first counts: malformed, format, unknown, revoked, expired, environment ({0}).",
    [
        ("malformed-before-format", "no key", "no ip", UNPROCESSABLE, ""),
        ("malformed-before-revoked", "revoked", "no ip", UNPROCESSABLE, ""),
        ("revoked-before-expired", "revoked-expired", "192.0.2.1", 403, REVOKED),
        ("expired-before-environment", "expired-full", "192.0.2.1", 403, EXPIRED),
    ],
)
def _(server: Server, state: str, ip: str, status: int, reason: str) -> None:
    key = state if " " in state else server.shared(state).license_key
    answer = server.verify(key, ip=ip)
    if status == UNPROCESSABLE:
        expect_malformed(answer, "ip")
    else:
        expect_refusal(answer, status, reason)


# --- malformed requests -----------------------------------------------------------------------


def good_key(server: Server) -> str:
    """Return a key that exists: a server may count requests without one as guesses, and slow down."""
    return server.shared("lifetime").license_key


@CASES.table(
    "verify-missing",
    "spec 4.1",
    "Without {0} a request is answered 422, and errors names the field.",
    [(name, name) for name in ("license_key", "domain", "ip")],
)
def _(server: Server, name: str) -> None:
    expect_malformed(server.verify(good_key(server), **{name: MISSING}), name)


@CASES.table(
    "verify-invalid-ip",
    "spec 4.1",
    "An ip that is no valid address gets a 422 ({0}).",
    [
        ("text", "localhost"),
        ("too-large", "192.0.2.256"),
        ("three-numbers", "192.0.2"),
        ("five-numbers", "192.0.2.1.1"),
        ("with-port", "192.0.2.1:80"),
        ("two-gaps", "2001::db8::1"),
        ("network", "192.0.2.0/24"),
    ],
)
def _(server: Server, ip: str) -> None:
    expect_malformed(server.verify(good_key(server), ip=ip), "ip")


@CASES.case("verify-422-body", "spec 4.1", "The 422 body has message, and errors: field → texts.")
def _(server: Server) -> None:
    answer = server.verify(good_key(server), MISSING, "no ip")
    expect_malformed(answer)
    body = answer.json()
    errors = body.get("errors")
    expect(isinstance(body.get("message"), str), f"expected a message\n{answer}")
    right = isinstance(errors, dict) and all(
        isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts)
        for texts in errors.values()
    )
    expect(right and bool(errors), f"expected a list of texts for each field\n{answer}")


@CASES.table(
    "verify-field",
    "D-11",
    "A field that is {0} is answered 422, and errors names it.",
    [
        ("key-null", "license_key", None),
        ("key-blank", "license_key", " "),
        ("key-number", "license_key", 7),
        ("key-list", "license_key", ["CP-"]),
        ("domain-null", "domain", None),
        ("domain-blank", "domain", "\t "),
        ("domain-object", "domain", {}),
        ("ip-null", "ip", None),
        ("ip-number", "ip", 3221225994),
        ("domain-with-NUL", "domain", "a\x00b.example.org"),
        ("domain-too-long", "domain", "a" * 254),
    ],
)
def _(server: Server, name: str, value: Any) -> None:
    known = {"license_key": good_key(server), "domain": server.new_domain(), "ip": "192.0.2.1"}
    expect_malformed(server.verify_body({**known, name: value}), name)


@CASES.case("verify-all-faults", "D-11", "All faulty fields are named at once.")
def _(server: Server) -> None:
    expect_malformed(server.verify_body({"ip": "no ip"}), "license_key", "domain", "ip")


@CASES.table(
    "verify-body",
    "D-11",
    "A body that is {0} is answered 422, and errors names all three fields.",
    [("no-JSON", b"license_key=x"), ("a-list", b"[]"), ("empty", b""), ("no-UTF-8", b'{"ip": "\xff"}')],
)
def _(server: Server, body: bytes) -> None:
    expect_malformed(server.verify_body(body), "license_key", "domain", "ip")


@CASES.case("verify-unknown-fields", "D-11", "Unknown fields are ignored.")
def _(server: Server) -> None:
    key = server.shared("lifetime").license_key
    expect_valid(server.verify(key, "lifetime.example.org", unknown={"a": [None]}))


@CASES.case("verify-too-large", "D-11", "A body over 16 KiB is answered 413.")
def _(server: Server) -> None:
    answer = server.verify(good_key(server), padding="x" * 20_000)
    expect(answer.status == 413, f"expected 413\n{answer}")  # noqa: PLR2004 - the case's own number
