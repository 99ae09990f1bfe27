"""Who may use the admin API: who shows a token that is good, for what it is good for (D-91)."""

import json
from datetime import date

from harness.admin import ROOT, Api
from licserver.domain.records import Scope


async def test_who_shows_no_good_token_gets_nothing(site, api, reader):
    """None, another scheme, a changed, an expired, a revoked one: 401; and every operation is behind it."""
    services = site.world.services
    expired, revoked = (
        services.tokens.create(name, Scope.WRITE, date(2026, 6, 15))[1] for name in ("e", "r")
    )
    services.tokens.revoke("r")
    assert (await Api(site, expired)("GET", "/products"))[0] == 200
    site.world.clock.forward(days=1)
    for text in (expired, revoked, api.text[:-1] + "_", "", "é", "x" * 5000):
        assert (await Api(site, text)("GET", "/products"))[0] == 401
    basic = {"Authorization": f"Basic {api.text}"}
    status, headers, _ = await site.call("GET", f"{ROOT}/products", headers=basic)
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="licserver"')
    for path in (
        "/products",
        "/licenses",
        "/subscriptions",
        "/audit",
        "/licenses/lookup",
        "/products/x/releases",
    ):
        for method in ("GET", "POST"):
            assert (await site.call(method, ROOT + path))[0] in {401, 405}


async def test_a_token_that_may_read_changes_nothing(site, reader):
    """403 for whatever changes something, also for revealing a key; lists and lookups are fine."""
    key = site.world.key()
    id_ = site.world.services.licenses.get(key).id.hex()
    before = list(site.world.services.audit.list_page().items)
    for method, path in (
        ("POST", "/products"),
        ("PATCH", "/products/app"),
        ("POST", "/products/app/releases"),
        ("POST", "/licenses"),
        ("PATCH", f"/licenses/{id_}"),
        *(("POST", f"/licenses/{id_}/{act}") for act in ("revoke", "reinstate", "reveal", "deactivate")),
        ("POST", "/subscriptions/s/end"),
        ("POST", "/subscriptions/s/resume"),
    ):
        assert (await reader(method, path, {}))[0] == 403, path
    done = [
        entry for entry in site.world.services.audit.list_page().items if entry.action != "token.forbidden"
    ]
    assert done == before
    _, found = await reader("GET", "/licenses")
    assert key not in json.dumps(found)
    assert (await reader("POST", "/licenses/lookup", {"license_key": key}))[0] == 200


async def test_who_guesses_tokens_is_turned_away(make_world, open_site):
    """As who guesses keys is: 429 after so many; who has a good one is not kept out."""
    site = await open_site(make_world(miss_limit=6))
    good = Api(site, site.world.services.tokens.create("shop", Scope.READ)[1])
    statuses = [(await Api(site, f"lsv_{n}")("GET", "/products"))[0] for n in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    assert (await good("GET", "/products"))[0] == 200
