"""Cases of the update check."""

import re
from typing import Any

from licconform.cases import expect
from licconform.server.subject import CASES, MISSING, Server, expect_error, expect_link, expect_update
from licconform.server.verify_cases import UNKNOWN

# --- success ----------------------------------------------------------------------------------


@CASES.case("update-offered", "spec 4.2", "A valid key is answered 200 with version and download_url.")
def _(server: Server) -> None:
    _, answer = server.check_shared("valid")
    expect_link(answer)
    expect("version" in answer.json(), f"expected a version\n{answer}")


@CASES.table(
    "update-field",
    "spec 2",
    "The success body has the field {0}.",
    [
        ("name", "name", str),
        ("slug", "slug", str),
        ("version", "version", str),
        ("download_url", "download_url", str),
        ("sections", "sections", dict),
        ("last_updated", "last_updated", str),
        ("requires", "requires", object),
        ("tested", "tested", object),
    ],
)
def _(server: Server, name: str, kind: type) -> None:
    _, answer = server.check_shared("valid")
    body = expect_update(answer)
    expect(name in body and isinstance(body[name], kind), f"expected the field {name}\n{answer}")


@CASES.table(
    "update-value",
    "spec 2",
    "{0} has the value of the product or its latest version.",
    [("name", "name", "product"), ("slug", "slug", "slug"), ("version", "version", "version")],
)
def _(server: Server, name: str, of_seed: str) -> None:
    key = server.shared("valid")
    answer, expected = server.check(key.license_key, key.slug), getattr(key, of_seed)
    expect(expect_update(answer).get(name) == expected, f"expected {name} {expected!r}\n{answer}")


@CASES.case("update-changelog", "spec 2", "sections.changelog is the changelog, plain text or basic HTML.")
def _(server: Server) -> None:
    key, answer = server.check_shared("valid")
    sections = expect_update(answer).get("sections")
    text = sections.get("changelog") if isinstance(sections, dict) else None
    expect(isinstance(text, str), f"expected sections.changelog\n{answer}")
    expect(key.changelog is None or key.changelog in str(text), f"expected {key.changelog!r}\n{answer}")


@CASES.case("update-last-updated", "spec 2", "last_updated has the form YYYY-MM-DD HH:MM:SS.")
def _(server: Server) -> None:
    _, answer = server.check_shared("valid")
    time = str(expect_update(answer).get("last_updated"))
    right = re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-[0-3]\d ([01]\d|2[0-3]):[0-5]\d:[0-5]\d", time)
    expect(bool(right), f"expected YYYY-MM-DD HH:MM:SS\n{answer}")


@CASES.table(
    "update-text-or-null",
    "D-199",
    "{0} is null or a text.",
    [("requires", "requires"), ("tested", "tested")],
)
def _(server: Server, name: str) -> None:
    _, answer = server.check_shared("valid")
    body = expect_update(answer)
    expect(isinstance(body.get(name), str | None), f"expected {name}: null or a text\n{answer}")


@CASES.table(
    "update-domain",
    "spec 4.2",
    "domain may be the site's home URL or a hostname ({0}).",
    [
        ("URL", "https://shop.example.org/blog/?a=b&c=d"),
        ("hostname", "shop.example.org"),
        ("localhost", "localhost"),
    ],
)
def _(server: Server, domain: str) -> None:
    key = server.shared("valid")
    expect_link(server.check(key.license_key, key.slug, domain=domain))


@CASES.case("update-same-version", "spec 3", "With the latest version installed, both are there.")
def _(server: Server) -> None:
    key = server.shared("valid")
    answer = server.check(key.license_key, key.slug, key.version)
    expect_link(answer)
    expect(answer.json().get("version") == key.version, f"expected version {key.version}\n{answer}")


@CASES.case("update-new-version", "spec 2", "A version that was uploaded a moment ago is the latest.")
def _(server: Server) -> None:
    key = server.new("valid")
    expect_update(server.check(key.license_key, key.slug))
    server.keys.act("release", key.slug, "3.0.0")
    answer = server.check(key.license_key, key.slug)
    expect(expect_update(answer).get("version") == "3.0.0", f"expected version 3.0.0\n{answer}")


@CASES.case("update-lifetime", "spec 4.2", "A lifetime key is offered the update.")
def _(server: Server) -> None:
    expect_link(server.check_shared("lifetime")[1])


@CASES.case("update-support-active", "spec 4.2", "In the support period, version and link are there.")
def _(server: Server) -> None:
    key, answer = server.check_shared("support-active")
    expect_link(answer)
    expect(answer.json().get("version") == key.version, f"expected version {key.version}\n{answer}")


@CASES.case(
    "update-support-expired", "spec 4.2", "After the support period, the version is there, and no link."
)
def _(server: Server) -> None:
    key, answer = server.check_shared("support-expired")
    body = expect_update(answer)
    expect(body.get("version") == key.version, f"expected version {key.version}\n{answer}")
    expect("download_url" not in body, f"expected no download_url\n{answer}")


@CASES.case("update-support-unset", "D-25", "With a policy and no support period, the link is there.")
def _(server: Server) -> None:
    expect_link(server.check_shared("support-unset")[1])


@CASES.table(
    "update-latest",
    "D-23",
    "The latest version is the highest by PEP 440, of stable ones if there are any ({0}).",
    [
        ("unordered", "unordered", "1.10.0"),
        ("pre-release", "pre-release", "1.0.0"),
        ("only-pre-releases", "only-pre-releases", "1.0.0rc2"),
    ],
)
def _(server: Server, state: str, version: str) -> None:
    _, answer = server.check_shared(state, "0.1")
    expect(expect_update(answer).get("version") == version, f"expected version {version}\n{answer}")


@CASES.table(
    "update-installed",
    "D-24",
    "The answer does not depend on the installed version ({0}).",
    [("newer", "99.0"), ("unreadable", "nightly of tuesday")],
)
def _(server: Server, version: str) -> None:
    expect_link(server.check_shared("valid", version)[1])


@CASES.case("update-renamed", "D-12", "name is the product's name of today.")
def _(server: Server) -> None:
    key, answer = server.check_shared("renamed")
    expect(expect_update(answer).get("name") == key.new_name, f"expected {key.new_name!r}\n{answer}")


# --- errors -----------------------------------------------------------------------------------

NO_PRODUCT = "there-is-no-such-product"
KEY_ERRORS: list[tuple[str, int, str, str]] = [
    ("unknown", 401, "invalid_license", UNKNOWN),
    ("format", 401, "invalid_license", "no key"),
    ("revoked", 401, "invalid_license", "revoked"),
    ("expired", 401, "license_expired", "expired"),
    ("subscription-ended", 401, "license_expired", "subscription-ended"),
]


def key_of(server: Server, name: str) -> tuple[str, str]:
    """Return a key and its slug: `name` is a state, or the text to send."""
    if name in {UNKNOWN, "no key"}:
        return name, server.shared("valid").slug
    seed = server.shared(name)
    return seed.license_key, seed.slug


@CASES.table("update", "spec 7", "A key is answered {1} {2} ({0}).", KEY_ERRORS)
def _(server: Server, status: int, code: str, name: str) -> None:
    expect_error(server.check(*key_of(server, name)), status, code)


@CASES.case("update-mismatch", "spec 7", "A key for another product is answered 403 product_mismatch.")
def _(server: Server) -> None:
    answer = server.check(server.shared("valid").license_key, server.shared("lifetime").slug)
    expect_error(answer, 403, "product_mismatch")


@CASES.case("update-no-product", "spec 7", "An unknown slug is answered 404 product_not_found.")
def _(server: Server) -> None:
    answer = server.check(server.shared("valid").license_key, NO_PRODUCT)
    expect_error(answer, 404, "product_not_found")


@CASES.case("update-no-versions", "spec 7", "A product without a file version is answered 404 no_versions.")
def _(server: Server) -> None:
    expect_error(server.check_shared("no-versions")[1], 404, "no_versions")


@CASES.table(
    "update-error-body",
    "spec 7",
    "An error's body is {{error, message}}, both texts ({0}).",
    [
        *((label, name, None) for label, _, _, name in KEY_ERRORS),
        ("mismatch", "valid", "lifetime"),
        ("no-product", "valid", NO_PRODUCT),
        ("no-versions", "no-versions", None),
    ],
)
def _(server: Server, name: str, other: str | None) -> None:
    key, own = key_of(server, name)
    slug = own if other is None else other if other == NO_PRODUCT else server.shared(other).slug
    answer = server.check(key, slug)
    expect(answer.status in {401, 403, 404}, f"expected an error\n{answer}")
    body = answer.json()
    expect(body.keys() == {"error", "message"}, f"expected error and message alone\n{answer}")
    expect(all(isinstance(text, str) for text in body.values()), f"expected two texts\n{answer}")


@CASES.case("update-revoke", "spec 3", "A key that was offered updates is refused once it is revoked.")
def _(server: Server) -> None:
    key = server.new("valid")
    expect_update(server.check(key.license_key, key.slug))
    server.keys.act("revoke", key.license_key)
    expect_error(server.check(key.license_key, key.slug), 401, "invalid_license")


PARAMETERS = ("license_key", "slug", "current_version", "domain")


def check_without(server: Server, name: str, value: Any) -> Any:
    """Send an update check in which one parameter is another one, or missing."""
    key = server.shared("valid")
    return server.check(**{"key": key.license_key, "slug": key.slug, "version": "1", name: value})


@CASES.table(
    "update-missing",
    "spec 7",
    "Without {0} a request is answered 422.",
    [(name, name) for name in PARAMETERS],
)
def _(server: Server, name: str) -> None:
    answer = check_without(server, name, MISSING)
    expect(answer.status == 422, f"expected 422\n{answer}")  # noqa: PLR2004 - the case's own number


@CASES.table(
    "update-blank",
    "D-21",
    "A blank {0} is missing: the 422 has error validation, message, and errors naming it.",
    [(name, name) for name in PARAMETERS],
)
def _(server: Server, name: str) -> None:
    answer = check_without(server, name, " ")
    expect_error(answer, 422, "validation")
    errors = answer.json().get("errors")
    expect(isinstance(errors, dict) and name in errors, f"expected errors.{name}\n{answer}")
    expect(isinstance(answer.json().get("message"), str), f"expected a message\n{answer}")


@CASES.table(
    "update-order",
    "D-20",
    "Of several errors the first counts ({0}).",
    [
        ("malformed-before-key", "no key", MISSING, 422, "validation"),
        ("key-before-product", UNKNOWN, NO_PRODUCT, 401, "invalid_license"),
        ("expired-before-product", "expired", NO_PRODUCT, 401, "license_expired"),
        ("revoked-before-expired", "revoked-expired", None, 401, "invalid_license"),
        ("mismatch-before-no-versions", "valid", "no-versions", 403, "product_mismatch"),
    ],
)
def _(server: Server, name: str, slug: Any, status: int, code: str) -> None:
    key, own = key_of(server, name)
    requested = server.shared(slug).slug if slug == "no-versions" else own if slug is None else slug
    expect_error(server.check(key, requested), status, code)
