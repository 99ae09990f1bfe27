"""Cases of activation slots and environments. Every key has two free slots, unless its state has none."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from licconform.cases import expect
from licconform.server.subject import (
    CASES,
    ENVIRONMENT,
    MISSING,
    Answer,
    Server,
    expect_refusal,
    expect_update,
    expect_valid,
)

A, B, C = "a.example.org", "b.example.org", "c.example.org"


def use_both_slots(server: Server, key: str) -> None:
    """Verify from A and B, which must both be let in, and C, which must not."""
    expect_valid(server.verify(key, A))
    expect_valid(server.verify(key, B))
    expect_refusal(server.verify(key, C), 403, ENVIRONMENT)


@CASES.case("slot-new-domain", "spec 1", "A verify from an unknown domain takes one activation slot.")
def _(server: Server) -> None:
    use_both_slots(server, server.new("valid").license_key)


@CASES.case("slot-known", "spec 3", "An environment that took a slot is known: it takes no other one.")
def _(server: Server) -> None:
    key = server.new("valid").license_key
    for _ in range(4):
        expect_valid(server.verify(key, A))
    expect_valid(server.verify(key, B))


@CASES.case("slot-known-when-full", "spec 3", "A known environment is valid when all slots are filled.")
def _(server: Server) -> None:
    key = server.new("valid").license_key
    use_both_slots(server, key)
    expect_valid(server.verify(key, A))


@CASES.case("slot-body-ip", "spec 2", "The ip of the body is checked for its format only: no slot is taken.")
def _(server: Server) -> None:
    key = server.new("valid").license_key
    for ip in ("192.0.2.1", "198.51.100.2", "2001:db8::3"):
        expect_valid(server.verify(key, A, ip))
    expect_valid(server.verify(key, B))


@CASES.case("slot-allow-list", "spec 3", "A domain and address in the allow-list are valid without a slot.")
def _(server: Server) -> None:
    expect_valid(server.verify(server.shared("allowed").license_key, "allowed.example.org"))


@CASES.case("slot-not-allowed", "spec 7", "A domain beside the allow-list is refused without a free slot.")
def _(server: Server) -> None:
    expect_refusal(server.verify(server.shared("allowed").license_key), 403, ENVIRONMENT)


@CASES.case("slot-refused-again", "spec 3", "An environment that was refused stays refused.")
def _(server: Server) -> None:
    key = server.shared("full").license_key
    for _ in range(2):
        expect_refusal(server.verify(key, A), 403, ENVIRONMENT)


@CASES.case("slot-per-key", "spec 8", "Slots are counted per key: a domain is known to one key alone.")
def _(server: Server) -> None:
    use_both_slots(server, server.new("valid").license_key)
    use_both_slots(server, server.new("valid").license_key)


@CASES.case("slot-malformed", "D-01", "A malformed verify takes no slot.")
def _(server: Server) -> None:
    key = server.new("valid").license_key
    for ip in (MISSING, "no ip"):
        server.verify(key, C, ip)
    use_both_slots(server, key)


@CASES.case("slot-update-check", "D-22", "An update check takes no slot, and needs none.")
def _(server: Server) -> None:
    key = server.new("valid")
    for domain in (A, B, C):
        expect_update(server.check(key.license_key, key.slug, domain=domain))
    use_both_slots(server, key.license_key)
    expect_update(server.check(key.license_key, key.slug, domain=C))


@CASES.table(
    "slot-same-domain",
    "D-06",
    "The same domain, written otherwise, takes no other slot ({0}).",
    [
        ("case", "www.example.org", "WWW.Example.ORG"),
        ("URL", "www.example.org", "https://www.example.org/shop/?a=b"),
        ("port", "www.example.org", "www.example.org:8443"),
        ("dot", "www.example.org", "www.example.org."),
        ("space", "www.example.org", " www.example.org "),
        ("IDN", "bücher.example.org", "XN--bcher-kva.example.org"),
    ],
)
def _(server: Server, domain: str, written: str) -> None:
    key = server.new("valid").license_key
    expect_valid(server.verify(key, domain))
    expect_valid(server.verify(key, written))
    expect_valid(server.verify(key, B))


@CASES.table(
    "slot-other-domain",
    "D-06",
    "These are different domains ({0}).",
    [("www", "example.org", "www.example.org"), ("ids", "1f0c-desk", "1f0c-desk2")],
)
def _(server: Server, domain: str, other: str) -> None:
    key = server.new("valid").license_key
    expect_valid(server.verify(key, domain))
    expect_valid(server.verify(key, other))
    expect_refusal(server.verify(key, B), 403, ENVIRONMENT)


def at_once(calls: list[Callable[[], Answer]]) -> list[int]:
    """Send all requests at the same time; return the sorted status codes."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return sorted(answer.status for answer in pool.map(lambda call: call(), calls))


@CASES.case("slot-race", "D-08", "Of calls from new domains at once, exactly as many pass as slots are free.")
def _(server: Server) -> None:
    key = server.new("valid").license_key
    got = at_once([lambda n=n: server.verify(key, f"race-{n}.example.org") for n in range(8)])  # type: ignore[misc]
    expect(got == [200, 200, *[403] * 6], f"expected 200 twice and 403 six times, not {got}")


@CASES.case("slot-same-at-once", "D-08", "A new environment that calls eight times at once takes one slot.")
def _(server: Server) -> None:
    key = server.new("valid").license_key
    got = at_once([lambda: server.verify(key, A)] * 8)
    expect(got == [200] * 8, f"expected 200 eight times, not {got}")
    expect_valid(server.verify(key, B))
