"""Webhook endpoints in the console and on the command line."""

import contextlib
import json
import re

import pytest

from licserver.domain.records import Role
from licserver.errors import BuryJobError
from licserver.services.lists import write_cursor
from licserver.web.console.pages.outgoing import WEBHOOK_ACTIONS

HOOK = "https://hooks.example/in"


@pytest.mark.slow
async def test_an_owner_manages_endpoints(users, alice):
    """A secret is shown once; tests and repeated deliveries are sent, an endpoint is disabled and removed."""
    await alice.get("/console/webhooks")
    await alice.post("/console/webhooks/add", url=HOOK, **{"license.issued": "on"})
    assert re.search(r"<code class=\"mono\">whsec_[^<]+</code>", alice.text)
    assert "whsec_" not in await alice.get("/console/webhooks")
    (endpoint,) = users.webhooks.list_endpoints()
    assert endpoint.types == ("license.issued",)
    for name, expected in [("test", "sent in a moment"), ("disable", "disabled"), ("enable", "enabled")]:
        await alice.post(f"/console/webhooks/{name}", endpoint=endpoint.id)
        assert expected in alice.notice
    await alice.post("/console/webhooks/rotate", endpoint=endpoint.id)
    assert "whsec_" in alice.text
    (delivery,) = users.webhooks.list_deliveries().items
    await alice.post("/console/webhooks/redeliver", delivery=str(delivery.id))
    await alice.post("/console/webhooks/redeliver", since="2026-06-01T00:00")
    assert "sent again" in alice.notice
    await alice.get(f"/console/webhooks?endpoint={endpoint.id}&after={write_cursor([delivery.id + 1])}")
    assert delivery.event_id in alice.text
    await alice.post("/console/webhooks/remove", endpoint=endpoint.id)
    assert "Remove https://hooks.example/in?" in alice.text
    await alice.post("/console/webhooks/remove", endpoint=endpoint.id, sure="yes")
    assert users.webhooks.list_endpoints() == []


async def test_what_is_wrong_in_a_form_is_shown(alice):
    """Beside what was typed."""
    await alice.get("/console/webhooks")
    for name, form, expected in [
        ("add", {"url": "http://a.example"}, "https://"),
        ("redeliver", {"delivery": "all"}, "choose a delivery"),
        ("redeliver", {"since": "yesterday"}, "is not a time"),
        ("redeliver", {"since": "9999-12-31T23:59-14:00"}, "is not a time"),
        ("rotate", {"endpoint": "ep_0"}, "there is no endpoint"),
    ]:
        await alice.post(f"/console/webhooks/{name}", **form)
        assert expected in alice.alert.lower()


async def test_support_looks_and_a_disabled_endpoint_is_shown(world, users, open_browser, alice):
    """What was answered is text; on the overview and the health page an owner sees what was disabled."""
    endpoint, _ = users.webhooks.add(HOOK)
    users.webhooks.send_test(endpoint.id)
    (delivery,) = users.webhooks.list_deliveries().items
    job = world.repositories.queue.find("webhook-deliveries", delivery.id)
    with contextlib.suppress(BuryJobError):
        users.webhooks.record(job, 410, "<script>alert(1)</script>")
    for path in ("/console", "/console/health", "/console/webhooks"):
        assert "it answered 410 Gone" in await alice.get(path)
    users.users.add("bob", "five words of another sentence", Role.SUPPORT)
    bob = await open_browser()
    await bob.sign_in("bob", "five words of another sentence")
    assert "&lt;script&gt;" in await bob.get("/console/webhooks")
    assert "/console/webhooks/" not in bob.text
    for name in WEBHOOK_ACTIONS:
        await bob.post(f"/console/webhooks/{name}", endpoint=endpoint.id)
        assert bob.status == 403


@pytest.mark.slow
def test_the_command_line_manages_endpoints(cli):
    """Each command once."""
    added = json.loads(cli("webhook", "add", HOOK, "--events", "license.issued, license.revoked", "--json"))
    name = added["endpoint"]
    assert added["secret"].startswith("whsec_")
    assert json.loads(cli("webhook", "rotate", name, "--json"))["secret"] != added["secret"]
    cli("webhook", "disable", name)
    assert "disabled: by hand" in cli("webhook", "list")
    assert "the endpoint is disabled" in cli("webhook", "test", name, expect=2)
    cli("webhook", "enable", name)
    event = json.loads(cli("webhook", "test", name, "--json"))["event"]
    (delivery,) = json.loads(cli("webhook", "deliveries", "--endpoint", name, "--json"))
    assert (delivery["event"], delivery["state"], delivery["response"]) == (event, "waiting", None)
    cli("webhook", "redeliver", str(delivery["delivery"]))
    cli("webhook", "redeliver", "--since", "2026-01-31T14:00", "--endpoint", name)
    for wrong in ((), ("7",), ("9" * 30,), ("7", "--since", "2026-01-31"), ("--since", "soon")):
        cli("webhook", "redeliver", *wrong, expect=2)
    cli("mail", "retry", "9" * 30, expect=2)
    cli("source", "replay", "9" * 30, expect=2)
    cli("webhook", "remove", name)
    assert "no endpoints yet" in cli("webhook", "list")
