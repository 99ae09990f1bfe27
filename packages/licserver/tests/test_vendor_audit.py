"""Every change leaves a line in the audit log, in its own transaction, and no key in any (issue 6)."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select

from licserver.database.tables import audit
from licserver.domain.decisions import mask_key
from licserver.domain.records import SYSTEM, Actor, ActorKind, EnvironmentPolicy, Scope
from licserver.errors import StoreUnavailable, Unknown, WrongUse
from licserver.services import AuditFilter, LicenseTerms

ANN = Actor(ActorKind.USER, "ann")


@pytest.fixture
def vendor(world):
    """The vendor, in the hands of ann."""
    return world.vendor.acting_as(ANN)


def lines(vendor, **which: Any):
    """The log, the oldest line first, without instants and actors."""
    items = vendor.audit(AuditFilter(**which), limit=200).items
    return [(one.action, one.object_kind, one.object_id, one.details) for one in reversed(items)]


def test_every_operation_is_noted_once_with_what_it_did(world, vendor, activate, tmp_path):
    """From the first product to the last token; who did it stands beside each."""
    file = tmp_path / "pro.zip"
    file.write_bytes(b"zip")
    vendor.add_product("pro", "Pro")
    vendor.change_product("pro", name="Pro 2", policy=EnvironmentPolicy.DOMAIN, has_support_policy=True)
    vendor.publish("pro", "1.0", file)
    vendor.withdraw("pro", "1.0")
    license_, key = vendor.issue_one("pro", LicenseTerms(slots=None, subscription_id="s", note="secret"))
    list(vendor.issue("pro", LicenseTerms(), 3))
    activate(key, "a.example", "192.0.2.1")
    vendor.deactivate(key, "a.example")
    vendor.change(key, slots=3, note="other", expires_on=date(2027, 1, 1))
    vendor.allow(key, "b.example")
    vendor.disallow(key, "b.example")
    vendor.revoke(key, f"as {key} was refunded")
    vendor.reinstate(key)
    assert vendor.reveal(key) == key
    vendor.end_subscription("s", datetime(2026, 7, 1, tzinfo=UTC))
    vendor.resume_subscription("s")
    vendor.add_token("shop", Scope.READ)
    vendor.revoke_token("shop")
    id_ = license_.id.hex()

    noted = lines(vendor, actor=ANN)
    reason = noted[10][3]["reason"]
    assert key not in json.dumps(noted)
    assert vendor.change(key, note=f"was {key}").note == f"was {mask_key(key)}"
    assert reason == f"as {mask_key(key)} was refunded"
    published = noted[2][3]
    assert published.pop("sha256") == vendor.release("pro", "1.0").artifact.sha256.hex()
    assert noted == [
        ("product.add", "product", "pro", {"name": "Pro", "environment": "strict", "support_policy": False}),
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
    assert {one.at for one in vendor.audit().items} == {world.clock()}


def test_what_changes_nothing_is_not_noted(world, vendor):
    """A second revocation, the same entry again, a change to what is: no line, and no line for a refusal."""
    key = world.key(allowed=("a.example",))
    world.vendor.revoke(key)
    before = lines(vendor)
    vendor.revoke(key, "again")
    vendor.allow(key, "A.example")
    vendor.change(key, slots=1)
    vendor.change_product("app", name="App")
    world.vendor.reinstate(key)
    vendor.reinstate(key)
    for act, error in (
        (lambda: vendor.disallow(key, "b.example"), Unknown),
        (lambda: vendor.change(key, lifetime=True, expires_on=date(2027, 1, 1)), WrongUse),
        (lambda: vendor.change(key, customer_email="nobody"), WrongUse),
        (lambda: vendor.change(key, note="a\x00"), WrongUse),
        (lambda: vendor.change(key, slots=-1), WrongUse),
        (lambda: vendor.deactivate(key, "b.example"), Unknown),
        (lambda: vendor.end_subscription("none"), Unknown),
    ):
        with pytest.raises(error):
            act()
    assert [line[0] for line in lines(vendor)] == [*(line[0] for line in before), "license.reinstate"]
    assert world.vendor.license(key).allowed == ("a.example",)


def test_a_change_without_its_line_does_not_happen(world, vendor, meddler):
    """When the log cannot be written, nothing is: both are one transaction."""
    key = world.key()
    meddler.do("ALTER TABLE audit RENAME TO away")
    try:
        for act in (
            lambda: vendor.revoke(key),
            lambda: vendor.add_product("new", "New"),
            lambda: list(vendor.issue("app", LicenseTerms())),
            lambda: vendor.reveal(key),
        ):
            with pytest.raises(StoreUnavailable):
                act()
    finally:
        meddler.do("ALTER TABLE away RENAME TO audit")
    assert world.vendor.license(key).revoked_at is None
    assert [product.slug for product in world.vendor.products()] == ["app"]
    assert len(list(world.vendor.licenses())) == 1


def test_several_operations_are_one_when_they_are_done_together(world, vendor):
    """All of them, with their lines, or none; and each sees what those before it did."""
    key = world.key()
    before = lines(vendor)

    def fail_in_the_end():
        with vendor.together() as bound:
            bound.revoke(key)
            assert bound.license(key).revoked_at is not None
            bound.add_product("new", "New")
            raise LookupError

    with pytest.raises(LookupError):
        fail_in_the_end()
    assert world.vendor.license(key).revoked_at is None
    assert lines(vendor) == before
    with vendor.together() as bound:
        bound.revoke(key)
        bound.add_product("new", "New")
    assert [line[0] for line in lines(vendor)][-2:] == ["license.revoke", "product.add"]


def test_the_log_is_read_by_object_actor_and_time(world, vendor):
    """Page by page, the newest first."""
    for n in range(5):
        vendor.add_product(f"p{n}", "P")
        world.clock.forward(hours=1)
    noon = world.clock() - timedelta(hours=5)
    seen, cursor = [], None
    while True:
        page = world.vendor.audit(AuditFilter(actor=ANN), cursor, 2)
        seen += [one.object_id for one in page.items]
        if (cursor := page.cursor) is None:
            break
    assert seen == ["p4", "p3", "p2", "p1", "p0"]
    assert [line[2] for line in lines(world.vendor, actor=SYSTEM)] == ["app"]
    assert [line[2] for line in lines(world.vendor, object=("product", "p3"))] == ["p3"]
    since, until = noon + timedelta(hours=2), noon + timedelta(hours=4)
    assert [line[2] for line in lines(world.vendor, since=since, until=until)] == ["p2", "p3"]
    assert (
        lines(world.vendor, since=world.clock()) == lines(world.vendor, until=noon - timedelta(days=1)) == []
    )
    with pytest.raises(WrongUse, match="one line"):
        world.vendor.audit(AuditFilter(object=("product", "a\x00")))


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
        world.vendor.acting_as(actors[number % 4]).add_product(f"p{number}", "P")
    wanted = [
        one
        for one in world.vendor.audit(limit=200).items
        if which.get("name") in {None, one.actor.name}
        and which.get("kind") in {None, one.actor.kind}
        and which.get("object") in {None, (one.object_kind, one.object_id)}
    ]
    seen, cursor = [], None
    while True:
        page = world.vendor.audit(AuditFilter(**which), cursor, 2)
        seen += page.items
        if (cursor := page.cursor) is None:
            break
    assert seen == wanted


def test_a_line_of_the_log_says_who_did_it(world):
    """Only the four kinds of actors are taken, whoever writes."""
    row = {"at": world.clock(), "actor_kind": "ghost", "actor_name": "x", "action": "x", "details": "{}"}
    ghost = insert(audit).values(object_kind="x", object_id="x", **row)
    with pytest.raises(StoreUnavailable), world.vendor.database.writing() as connection:
        connection.execute(ghost)
    with world.vendor.database.reading() as connection:
        assert set(connection.scalars(select(audit.c.actor_name))) == {"licserver"}
