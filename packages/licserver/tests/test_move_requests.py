"""A license is moved in the app: its computers are listed, and one of them gives its slot up (D-332)."""

import json
from datetime import timedelta

import pytest

from licserver.domain.records import Environment

LIST, MOVE = "/api/v1/licenses/computers", "/api/v1/licenses/move"
ADDRESS = "127.0.0.1"  # of the connection, whatever the body names


class App:
    """The app of a customer on several computers."""

    def __init__(self, site, key: str) -> None:
        self.site, self.key = site, key

    async def call(self, path: str, domain: str, **more: str):
        """Send a request; return the status and the body."""
        body = {"license_key": self.key, "domain": domain, **more}
        status, _, answer = await self.site.call("POST", path, data=json.dumps(body).encode())
        return status, answer

    async def list(self, domain: str):
        """Return the list that a computer sees."""
        status, answer = await self.call(LIST, domain)
        assert status == 200
        return answer

    async def find(self, domain: str) -> str:
        """Return the id of a computer, as it sees itself."""
        (own,) = [row["id"] for row in (await self.list(domain))["computers"] if row["is_this"]]
        return own

    async def move(self, domain: str, source: str, **more: str):
        """Move the slot of a computer to another one; `source` is its domain."""
        return await self.call(MOVE, domain, ip="192.0.2.9", **{"from": await self.find(source)}, **more)


@pytest.fixture
async def app(world, site):
    """A license with two slots, both in use by named computers; two moves in 30 days."""
    world.services.products.change("app", policy="domain", customer_moves=2)
    app = App(site, world.key(slots=2))
    for domain, label in (("desktop.example.com", "Desk"), ("laptop", "Lap")):
        status, _, _ = await site.call(
            "POST",
            "/api/v1/licenses/verify",
            json={"license_key": app.key, "domain": domain, "ip": ADDRESS, "label": label},
        )
        assert status == 200
        world.clock.forward(minutes=1)
    return app


async def test_a_new_computer_sees_which_ones_hold_the_slots(app):
    """By their names, the newest first; their domains are not shown."""
    answer = await app.list("new")
    assert {name: answer[name] for name in ("slots", "used", "moves_left", "retry_at", "moved_to")} == {
        "slots": 2,
        "used": 2,
        "moves_left": 2,
        "retry_at": None,
        "moved_to": None,
    }
    shown = [(row["name"], row["masked"], row["is_this"], row["can_move"]) for row in answer["computers"]]
    assert shown == [("Lap", "l…", False, True), ("Desk", "desk….com", False, True)]
    assert len({row["id"] for row in answer["computers"]}) == 2
    assert "desktop" not in json.dumps(answer)


async def test_a_license_is_moved_and_moved_back(app, world):
    """The new computer has the slot at once, and the former one learns where it went."""
    status, answer = await app.move("new", "laptop", label="New one")
    assert (status, answer) == (200, {"moved": True, "from": {"name": "Lap", "masked": "l…"}})
    assert world.held(app.key) == [("desktop.example.com", ADDRESS), ("new", ADDRESS)]
    assert (await app.site.verify(app.key, "new"))[0] == 200
    assert (await app.site.verify(app.key, "laptop"))[0] == 403
    lost = await app.list("laptop")
    assert lost["moved_to"] == {"name": "New one", "masked": "n…", "on": "2026-06-15"}
    assert (lost["moves_left"], lost["used"]) == (2, 2), "to take it back is free"
    assert (await app.list("desktop.example.com"))["moves_left"] == 1
    assert (await app.list("desktop.example.com"))["moved_to"] is None
    assert (await app.move("laptop", "new"))[0] == 200
    back = await app.list("laptop")
    assert (back["moved_to"], back["moves_left"]) == (None, 1)
    assert (await app.list("new"))["moved_to"]["masked"] == "l…"


async def test_a_repeated_move_counts_once(app, world):
    """Its answer was lost; the computer has its slot by then."""
    source = await app.find("laptop")
    fields = {"ip": ADDRESS, "from": source}
    assert (await app.call(MOVE, "new", **fields))[1]["moved"] is True
    assert await app.call(MOVE, "new", **fields) == (200, {"moved": False})
    assert (await app.list("new"))["moves_left"] == 1
    status, answer = await app.call(MOVE, "fourth", **fields)
    assert (status, answer["error"]) == (404, "computer_not_found")
    assert world.held(app.key) == [("desktop.example.com", ADDRESS), ("new", ADDRESS)]


async def test_moves_are_bounded(app, world):
    """Also beside slots that are freed; the refusal and the list name the day."""
    assert [(await app.move(*pair))[0] for pair in (("c", "laptop"), ("d", "c"))] == [200, 200]
    status, answer = await app.move("e", "d")
    again = f"{world.clock() + timedelta(days=30):%Y-%m-%dT%H:%M:%SZ}"
    assert (status, answer["error"], answer["retry_at"]) == (403, "too_many_moves", again)
    shown = await app.list("e")
    assert (shown["moves_left"], shown["retry_at"]) == (0, again)
    deactivate = {"license_key": app.key, "domain": "d"}
    assert (await app.site.call("POST", "/api/v1/licenses/deactivate", json=deactivate))[0] == 403
    world.clock.forward(days=31)
    assert (await app.move("e", "d"))[0] == 200


async def test_a_license_file_holds_its_computer(app, world):
    """Until its end, which both answers name."""
    until = world.clock() + timedelta(days=5)
    world.repositories.licenses.hold_offline(world.services.vault.license_id(app.key), "laptop", until)
    status, answer = await app.move("new", "laptop")
    assert (status, answer["error"], answer["retry_at"]) == (403, "file_held", f"{until:%Y-%m-%dT%H:%M:%SZ}")
    rows = {row["name"]: row for row in (await app.list("new"))["computers"]}
    assert (rows["Lap"]["can_move"], rows["Lap"]["retry_at"]) == (False, answer["retry_at"])
    assert (rows["Desk"]["can_move"], rows["Desk"]["retry_at"]) == (True, None)
    world.clock.forward(days=6)
    assert (await app.move("new", "laptop"))[0] == 200


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda world, key: world.services.licenses.revoke(key), (403, "license_revoked")),
        (
            lambda world, key: world.services.licenses.change(key, expires_on=world.clock().date()),
            (401, "license_expired"),
        ),
        (
            lambda world, _: world.services.products.change("app", customer_moves=0),
            (403, "not_allowed"),
        ),
    ],
)
async def test_a_license_that_is_over_is_neither_listed_nor_moved(app, world, spoil, expected):
    """Nor one of a product that leaves it to support."""
    source = await app.find("laptop")
    spoil(world, app.key)
    world.clock.forward(days=1)
    for path, more in ((LIST, {}), (MOVE, {"ip": ADDRESS, "from": source})):
        status, answer = await app.call(path, "new", **more)
        assert (status, answer["error"]) == expected
    assert ("laptop", ADDRESS) in world.held(app.key)


async def test_a_wrong_request_moves_nothing(app, world, new_key):
    """Unknown keys, text that is no key, ids of another license, and missing fields."""
    other = App(app.site, world.key(slots=1))
    await app.site.verify(other.key, "laptop")
    foreign = await other.find("laptop")
    assert foreign != await app.find("laptop")
    status, answer = await app.call(MOVE, "new", ip=ADDRESS, **{"from": foreign})
    assert (status, answer["error"]) == (404, "computer_not_found")
    for key in (new_key(), "nonsense"):
        for path, more in ((LIST, {}), (MOVE, {"ip": ADDRESS, "from": foreign})):
            status, answer = await App(app.site, key).call(path, "new", **more)
            assert (status, answer["error"]) == (401, "invalid_license")
    status, answer = await app.call(MOVE, "new")
    assert (status, [*answer["errors"]]) == (422, ["ip", "from"])
    assert len(world.held(app.key)) == 2


async def test_a_computer_whose_address_changed_takes_its_own_slot_over(world, site):
    """Under `strict` it is another environment of the same computer; no other computer lost anything."""
    app = App(site, world.key(slots=1))
    license_id = world.services.vault.license_id(app.key)
    before = Environment("laptop", "192.0.2.77")
    world.repositories.licenses.add_activation(license_id, before, world.clock(), (None, None))
    assert (await site.verify(app.key, "laptop"))[0] == 403
    assert (await app.move("laptop", "laptop"))[1]["moved"] is True
    assert world.held(app.key) == [("laptop", ADDRESS)]
    assert world.repositories.moves.list_records(license_id) == []


async def test_a_move_is_in_the_log_and_in_events(app, world):
    """As a slot that is freed, and one that is taken; names are not in the log, and of domains a part."""
    world.services.webhooks.add("https://hook.example")
    await app.move("new", "laptop", label="New one")
    (entry,) = [entry for entry in world.services.audit.list_page().items if entry.action == "license.move"]
    assert (entry.actor.name, entry.details) == ("customer", {"freed": 1, "computer": "l…", "to": "n…"})
    queued = world.services.repositories.queue.list_page("webhook-events")
    assert sorted(job.payload["type"] for job in queued) == ["activation.created", "activation.freed"]


async def test_the_customer_gets_a_mail_about_the_new_computer(make_world, open_site):
    """Also without an endpoint for webhooks, as for any other new computer."""
    world = make_world(mail_host="mail.example", mail_sender="shop@example.com", mail_activations=True)
    app = App(await open_site(world), world.key(customer_email="ann@example.com"))
    license_id = world.services.vault.license_id(app.key)
    world.repositories.licenses.add_activation(
        license_id, Environment("laptop", ADDRESS), world.clock(), (None, None)
    )
    await app.move("new", "laptop")
    queued = world.services.repositories.queue.list_page("webhook-events")
    assert [job.payload["type"] for job in queued] == ["activation.created"]


async def test_records_of_moves_are_swept_after_30_days(app, world):
    """Until then the former computer learns where its slot went."""
    await app.move("new", "laptop", label="New one")
    world.clock.forward(days=29)
    world.services.retention.sweep()
    assert (await app.list("laptop"))["moved_to"] is not None
    world.clock.forward(days=2)
    world.services.retention.sweep()
    assert (await app.list("laptop"))["moved_to"] is None


async def test_a_list_has_at_most_a_hundred_computers(world, site):
    """Those seen last; the requesting one is marked in it."""
    world.services.products.change("app", policy="domain")
    app = App(site, world.key(slots=None))
    license_id = world.services.vault.license_id(app.key)
    for number in range(103):
        world.repositories.licenses.add_activation(
            license_id, Environment(f"pc-{number:03}", ADDRESS), world.clock(), (f"PC {number}", None)
        )
        world.clock.forward(seconds=1)
    answer = await app.list("pc-003")
    assert (answer["slots"], answer["used"], len(answer["computers"])) == (None, 103, 100)
    assert [row["name"] for row in answer["computers"]][::99] == ["PC 102", "PC 3"]
    assert answer["computers"][-1]["is_this"]
