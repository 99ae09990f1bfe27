"""Every change leaves a line in the audit log, in its own transaction, and no key in any."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select

from licserver.database.repositories.audit import AuditFilter
from licserver.database.tables.licenses import audit
from licserver.domain.decisions import mask_key
from licserver.domain.records import SYSTEM, Actor, ActorKind, EnvironmentPolicy, LicenseTerms, Scope
from licserver.errors import InvalidInputError, NotFoundError, StoreUnavailableError

ANN = Actor(ActorKind.USER, "ann")


@pytest.fixture
def services(world):
    """The vendor, in the hands of ann."""
    return world.services.acting_as(ANN)


def lines(services, **which: Any):
    """The log, the oldest line first, without instants and actors."""
    items = services.audit.list_page(AuditFilter(**which), limit=200).items
    return [(entry.action, entry.object_kind, entry.object_id, entry.details) for entry in reversed(items)]


def test_every_operation_is_noted_once_with_what_it_did(world, services, activate, tmp_path):
    """From the first product to the last token; who did it stands beside each."""
    file = tmp_path / "pro.zip"
    file.write_bytes(b"zip")
    services.products.add("pro", "Pro", EnvironmentPolicy.STRICT)
    services.products.change("pro", name="Pro 2", policy=EnvironmentPolicy.DOMAIN, has_support_policy=True)
    services.releases.publish("pro", "1.0", file)
    services.releases.withdraw("pro", "1.0")
    license_, key = services.licenses.issue(
        "pro", LicenseTerms(slots=None, subscription_id="s", note="secret")
    )
    list(services.licenses.issue_batches("pro", LicenseTerms(), 3))
    activate(key, "a.example", "192.0.2.1")
    services.licenses.deactivate(key, "a.example")
    services.licenses.change(key, slots=3, note="other", expires_on=date(2027, 1, 1))
    services.licenses.allow(key, "b.example")
    services.licenses.disallow(key, "b.example")
    services.licenses.revoke(key, f"as {key} was refunded")
    services.licenses.reinstate(key)
    assert services.licenses.reveal(key) == key
    services.subscriptions.end("s", datetime(2026, 7, 1, tzinfo=UTC))
    services.subscriptions.resume("s")
    services.tokens.create("shop", Scope.READ)
    services.tokens.revoke("shop")
    id_ = license_.id.hex()

    noted = lines(services, actor=ANN)
    reason = noted[10][3]["reason"]
    assert key not in json.dumps(noted)
    assert services.licenses.change(key, note=f"was {key}").note == f"was {mask_key(key)}"
    assert reason == f"as {mask_key(key)} was refunded"
    published = noted[2][3]
    assert published.pop("sha256") == services.releases.get("pro", "1.0").artifact.sha256.hex()
    rules = {"environment": "strict", "support_policy": False, "accept_imported_keys": False}
    rules |= {"customer_moves": 3, "trial_days": 0, "public_feed": False, "after_support": "none"}
    rules |= {"idle_days": 0}
    assert noted == [
        ("product.add", "product", "pro", {"name": "Pro", **rules}),
        (
            "product.change",
            "product",
            "pro",
            {"name": ["Pro", "Pro 2"], "environment": ["strict", "domain"], "support_policy": [False, True]},
        ),
        ("release.publish", "release", "pro/1.0", {"file": "pro.zip", "size": 3, "signed": False}),
        ("release.withdraw", "release", "pro/1.0", {}),
        ("license.issue", "license", id_, {"product": "pro", "count": 1}),
        ("license.issue", "product", "pro", {"product": "pro", "count": 3}),
        ("license.deactivate", "license", id_, {"environment": "a.example", "freed": 1}),
        (
            "license.change",
            "license",
            id_,
            {"slots": [None, 3], "note": "changed", "expires_on": [None, "2027-01-01"]},
        ),
        ("license.change", "license", id_, {"allowed": [[], ["b.example"]]}),
        ("license.change", "license", id_, {"allowed": [["b.example"], []]}),
        ("license.revoke", "license", id_, {"reason": reason}),
        ("license.reinstate", "license", id_, {"was": reason}),
        ("license.reveal", "license", id_, {}),
        ("subscription.end", "subscription", "s", {"at": "2026-07-01T00:00:00+00:00", "licenses": 1}),
        ("subscription.resume", "subscription", "s", {"at": None, "licenses": 1}),
        ("token.create", "token", "shop", {"scope": "read", "expires_on": None}),
        ("token.revoke", "token", "shop", {}),
    ]
    assert {entry.at for entry in services.audit.list_page().items} == {world.clock()}


def test_what_changes_nothing_is_not_noted(world, services):
    """A second revocation, the same entry again, a change to what is: no line, and no line for a refusal."""
    key = world.key(allowed=("a.example",))
    world.services.licenses.revoke(key)
    before = lines(services)
    services.licenses.revoke(key, "again")
    services.licenses.allow(key, "A.example")
    services.licenses.change(key, slots=1)
    services.products.change("app", name="App")
    world.services.licenses.reinstate(key)
    services.licenses.reinstate(key)
    for act, error in (
        (lambda: services.licenses.disallow(key, "b.example"), NotFoundError),
        (
            lambda: services.licenses.change(key, lifetime=True, expires_on=date(2027, 1, 1)),
            InvalidInputError,
        ),
        (lambda: services.licenses.change(key, customer_email="nobody"), InvalidInputError),
        (lambda: services.licenses.change(key, note="a\x00"), InvalidInputError),
        (lambda: services.licenses.change(key, slots=-1), InvalidInputError),
        (lambda: services.licenses.deactivate(key, "b.example"), NotFoundError),
        (lambda: services.subscriptions.end("none"), NotFoundError),
    ):
        with pytest.raises(error):
            act()
    assert [line[0] for line in lines(services)] == [*(line[0] for line in before), "license.reinstate"]
    assert world.services.licenses.get(key).allowed == ("a.example",)


def test_a_change_without_its_line_does_not_happen(world, services, meddler):
    """When the log cannot be written, nothing is: both are one transaction."""
    key = world.key()
    meddler.do("ALTER TABLE audit RENAME TO away")
    try:
        for act in (
            lambda: services.licenses.revoke(key),
            lambda: services.products.add("new", "New"),
            lambda: list(services.licenses.issue_batches("app", LicenseTerms())),
            lambda: services.licenses.reveal(key),
        ):
            with pytest.raises(StoreUnavailableError):
                act()
    finally:
        meddler.do("ALTER TABLE away RENAME TO audit")
    assert world.services.licenses.get(key).revoked_at is None
    assert [product.slug for product in world.services.products.list_all()] == ["app"]
    assert len(list(world.services.licenses.list_all())) == 1


def test_several_operations_are_one_when_they_are_done_together(world, services):
    """All of them, with their lines, or none; and each sees what those before it did."""
    key = world.key()
    before = lines(services)

    def fail_in_the_end():
        with services.transaction() as bound:
            bound.licenses.revoke(key)
            assert bound.licenses.get(key).revoked_at is not None
            bound.products.add("new", "New")
            raise LookupError

    with pytest.raises(LookupError):
        fail_in_the_end()
    assert world.services.licenses.get(key).revoked_at is None
    assert lines(services) == before
    with services.transaction() as bound:
        bound.licenses.revoke(key)
        bound.products.add("new", "New")
    assert [line[0] for line in lines(services)][-2:] == ["license.revoke", "product.add"]


def test_the_log_is_read_by_object_actor_and_time(world, services):
    """Page by page, the newest first."""
    for n in range(5):
        services.products.add(f"p{n}", f"P {n}")
        world.clock.forward(hours=1)
    noon = world.clock() - timedelta(hours=5)
    seen, cursor = [], None
    while True:
        page = world.services.audit.list_page(AuditFilter(actor=ANN), cursor, 2)
        seen += [line_.object_id for line_ in page.items]
        if (cursor := page.cursor) is None:
            break
    assert seen == ["p4", "p3", "p2", "p1", "p0"]
    assert [line[2] for line in lines(world.services, actor=SYSTEM)] == ["app"]
    assert [line[2] for line in lines(world.services, object=("product", "p3"))] == ["p3"]
    since, until = noon + timedelta(hours=2), noon + timedelta(hours=4)
    assert [line[2] for line in lines(world.services, since=since, until=until)] == ["p2", "p3"]
    assert (
        lines(world.services, since=world.clock())
        == lines(world.services, until=noon - timedelta(days=1))
        == []
    )
    with pytest.raises(InvalidInputError, match="one line"):
        world.services.audit.list_page(AuditFilter(object=("product", "a\x00")))


@pytest.mark.parametrize(
    "which",
    [
        {"name": "ann"},
        {"name": "nobody"},
        {"kind": ActorKind.USER},
        {"kind": ActorKind.CLI},
        {"kind": ActorKind.USER, "name": "ben"},
        {"name": "ann", "object": ("product", "p3")},
    ],
    ids=str,
)
def test_the_lines_of_some_actors_are_read_in_order_page_by_page(world, which):
    """By a name whichever way it came, by a way whoever took it: the same lines as from the whole log."""
    actors = [ANN, Actor(ActorKind.TOKEN, "ann"), Actor(ActorKind.USER, "ben"), Actor(ActorKind.USER, "")]
    for number in range(12):
        world.services.acting_as(actors[number % 4]).products.add(f"p{number}", f"P {number}")
    wanted = [
        entry
        for entry in world.services.audit.list_page(limit=200).items
        if which.get("name") in {None, entry.actor.name}
        and which.get("kind") in {None, entry.actor.kind}
        and which.get("object") in {None, (entry.object_kind, entry.object_id)}
    ]
    seen, cursor = [], None
    while True:
        page = world.services.audit.list_page(AuditFilter(**which), cursor, 2)
        seen += page.items
        if (cursor := page.cursor) is None:
            break
    assert seen == wanted


def test_a_line_of_the_log_says_who_did_it(world):
    """Only the four kinds of actors are taken, whoever writes."""
    row = {"at": world.clock(), "actor_kind": "ghost", "actor_name": "x", "action": "x", "details": "{}"}
    ghost = insert(audit).values(object_kind="x", object_id="x", **row)
    with pytest.raises(StoreUnavailableError), world.services.database.writing() as connection:
        connection.execute(ghost)
    with world.services.database.reading() as connection:
        assert set(connection.scalars(select(audit.c.actor_name))) == {"licserver"}
