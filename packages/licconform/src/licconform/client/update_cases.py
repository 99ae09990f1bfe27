"""Cases of the update check: what a client sends, and what it offers."""

from collections.abc import Callable
from typing import Any

from licconform.cases import expect
from licconform.client.cache_cases import OFFLINE
from licconform.client.service import INSTALLED, KEY, SLUG, Reply, Request, error
from licconform.client.subject import CASES, NO, YES, Client
from licconform.client.verify_cases import PAGE


@CASES.table(
    "check-sends",
    "spec 4.2",
    "An update check has the right {0}.",
    [
        ("method", lambda sent: sent.method == "GET"),
        ("license_key", lambda sent: sent.query.get("license_key") == KEY),
        ("slug", lambda sent: sent.query.get("slug") == SLUG),
        ("current_version", lambda sent: sent.query.get("current_version") == INSTALLED),
        ("domain", lambda sent: bool(sent.query.get("domain", "").strip())),
    ],
)
def _(client: Client, is_right: Callable[[Request], bool]) -> None:
    client.check()
    sent = client.checks.first
    expect(is_right(sent), f"sent {sent.method} {sent.raw_query}")


@CASES.case("check-encodes", "spec 4.2", "The installed version arrives as it is, encoded for a query.")
def _(client: Client) -> None:
    client.check("1.0.0+build.5")
    sent = [request.query.get("current_version") for request in client.checks]
    expect(sent == ["1.0.0+build.5"], f"sent {sent}")


@CASES.case("check-offers", "spec 4.2", "A newer version with a link is offered.")
def _(client: Client) -> None:
    client.check(expected=YES)


@CASES.case("check-no-link", "spec 4.2", "Without download_url no update is offered.")
def _(client: Client) -> None:
    client.service.update = client.service.offer(download_url=...)
    client.check(expected=NO)


@CASES.table(
    "check-not-200",
    "spec 4.2",
    "Any answer but a 200 is no update ({0}).",
    [
        ("invalid_license", error(401, "invalid_license")),
        ("license_expired", error(401, "license_expired")),
        ("product_mismatch", error(403, "product_mismatch")),
        ("product_not_found", error(404, "product_not_found")),
        ("no_versions", error(404, "no_versions")),
        ("422", Reply(422, {"message": "No."})),
        ("500", Reply(500, PAGE)),
    ],
)
def _(client: Client, reply: Reply) -> None:
    client.service.update = reply
    client.never_yes(client.check)


@CASES.table(
    "check-status",
    "spec 4.2",
    "The body of an offer with the status {0} is no update.",
    [("201", 201), ("203", 203), ("403", 403), ("500", 500)],
)
def _(client: Client, status: int) -> None:
    client.service.update = Reply(status, client.service.offer().body)
    client.never_yes(client.check)


@CASES.case(
    "check-redirect", "spec 4.2", "A redirect is not a 200: no update, and nothing is sent elsewhere."
)
def _(client: Client) -> None:
    client.service.update = Reply(302, "", {"Location": f"{client.service.base_url}/elsewhere"})
    client.service.elsewhere = client.service.offer()
    client.never_yes(client.check)
    expect(not client.service.requests_for("/elsewhere"), "the redirect was followed")


@CASES.table(
    "check-accepts",
    "spec 2",
    "An offer may have {0}.",
    [
        ("requires", {"requires": "6.4"}),
        ("tested", {"tested": {"from": "6.1", "to": "6.6"}}),
        ("an-HTML-changelog", {"sections": {"changelog": "<h4>2.0.0</h4><ul><li>&lt;New&gt;</li></ul>"}}),
        ("an-empty-changelog", {"sections": {"changelog": ""}}),
        ("more-sections", {"sections": {"changelog": "New.", "description": "A product."}}),
    ],
)
def _(client: Client, changes: dict[str, Any]) -> None:
    client.service.update = client.service.offer(**changes)
    client.check(expected=YES)


@CASES.table(
    "check-malformed",
    "spec 2",
    "An offer must have the specified fields, not {0}.",
    [
        ("a-null-link", {"download_url": None}),
        ("a-number-as-link", {"download_url": 7}),
        ("an-empty-link", {"download_url": ""}),
        ("no-version", {"version": ...}),
        ("a-number-as-version", {"version": 2}),
    ],
)
def _(client: Client, changes: dict[str, Any]) -> None:
    client.service.update = client.service.offer(**changes)
    client.never_yes(client.check)


@CASES.table(
    "check-no-answer",
    "D-46",
    "Anything but a valid response is not an update ({0}).",
    [("page", Reply(200, PAGE)), ("list", Reply(200, [])), ("cut", None), ("dropped", OFFLINE)],
)
def _(client: Client, reply: Reply | None) -> None:
    client.service.update = reply or Reply(200, client.service.offer().body, cut=True)
    client.never_yes(client.check)


@CASES.case("check-unknown-fields", "D-11", "Unknown fields of an offer are ignored.")
def _(client: Client) -> None:
    client.service.update = client.service.offer(icons={"svg": "x"}, rating=4.5)
    client.check(expected=YES)


@CASES.table(
    "check-version",
    "D-47",
    "Newer is what PEP 440 calls newer: {0}.",
    [
        ("the-same", "2.0.0", "2.0.0", NO),
        ("older", "2.0.0", "1.9.9", NO),
        ("ten-after-nine", "1.9.0", "1.10.0", YES),
        ("nine-before-ten", "1.10.0", "1.9.0", NO),
        ("equal-with-zero", "2.0", "2.0.0", NO),
        ("pre-release", "1.0.0", "2.0.0rc1", NO),
        ("pre-release-for-one", "2.0.0rc1", "2.0.0rc2", YES),
        ("release-after-pre-release", "2.0.0rc2", "2.0.0", YES),
        ("unreadable", "1.0.0", "the new one", NO),
    ],
)
def _(client: Client, installed: str, offered: str, expected: int) -> None:
    client.service.update = client.service.offer(version=offered)
    client.check(installed, expected=expected)


@CASES.case("check-again", "spec 8", "A check within 12 hours sends no other request.")
def _(client: Client) -> None:
    client.check(expected=YES)
    client.check()
    client.expect_checks(1)


@CASES.case("check-11-hours", "spec 8", "The cycle of update checks is 12 hours.")
def _(client: Client) -> None:
    client.check(expected=YES)
    client.later(11)
    client.check()
    client.expect_checks(1)


@CASES.case("check-next-day", "spec 8", "The day after, an update check sends a request.")
def _(client: Client) -> None:
    client.check(expected=YES)
    client.later(24)
    client.check(expected=YES)
    client.expect_checks(2)


@CASES.case("check-force", "D-46", "If a person requests the check, a request is sent.")
def _(client: Client) -> None:
    client.check(expected=YES)
    client.check(force=True, expected=YES)
    client.expect_checks(2)


@CASES.case("check-remembers", "D-48", "A known offer is shown again without a request.")
def _(client: Client) -> None:
    client.check(expected=YES)
    client.service.update = OFFLINE
    client.check(expected=YES)


@CASES.case("check-forgets", "D-48", "An offer that was taken back is not shown again.")
def _(client: Client) -> None:
    client.check(expected=YES)
    client.service.update = error(401, "invalid_license")
    client.never_yes(lambda: client.check(force=True))
    client.service.update = OFFLINE
    client.never_yes(client.check)
