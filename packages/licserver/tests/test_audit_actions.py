"""Each action of the audit log by its name: what leaves it, about what, and no other is."""

import getpass
import io
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyotp
import pytest

import licserver
from harness.transfer import ASSUMED
from licserver.database.tables.events import jobs
from licserver.domain.offers import RolloutOptions
from licserver.domain.records import Actor, ActorKind, LicenseTerms, Role, Scope, SecurityNotice
from licserver.domain.seats import SeatRequest
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.license_files import read_rows
from licserver.protocol.release_manifests import sign_with_keys
from licserver.services.installation import Services
from licserver.shops import ShopKind
from licserver.web.console.pages.audit import ACTIONS

ANN = Actor(ActorKind.USER, "ann")
PASSWORD, ANOTHER = "four words of a sentence", "another sentence of words"


@pytest.fixture
def world(make_world):
    """A vendor who sends mail."""
    return make_world(mail_host="mail.example", mail_sender="licenses@vendor.example")


class Shop:
    """A vendor in ann's hands, with a version, a sold key with a subscription, a token and a user."""

    def __init__(self, world, activate, tmp_path) -> None:
        self.world, self.services = world, world.services.acting_as(ANN)
        self.file = tmp_path / "app.zip"
        self.file.write_bytes(b"zip")
        world.publish("1.0")
        self.key = world.key(slots=None, subscription_id="s", customer_email="jo@example.com")
        self.id = world.services.licenses.get(self.key).id.hex()
        self.endpoint = world.services.webhooks.add("https://example.com/hook")[0].id
        world.services.tokens.create("shop", Scope.READ)
        world.services.users.add("bob", PASSWORD)
        activate(self.key, "a.example", "192.0.2.1")

    def retry_mail(self):
        """Send a mail again that is on its way no more."""
        now = self.world.clock()
        with self.world.services.database.writing() as connection:
            row = {"id": 99, "queue": "mail", "key": "k", "payload": "{}", "state": "done", "attempts": 1}
            connection.execute(jobs.insert().values(**row, created_at=now, finished_at=now))
        self.services.mail.retry(99)

    def take_back(self):
        """Take a seat back."""
        self.services.licenses.change(self.key, floating_seats=1)
        self.services.seats.hold(self.key, SeatRequest(b"s" * 16, "a.example"))
        self.services.seats.take_back(self.key, (b"s" * 16).hex())

    def add_endpoint(self):
        """Add another webhook endpoint."""
        self.endpoint = self.services.webhooks.add("https://example.com/other")[0].id

    def enable_endpoint(self):
        """Disable the webhook endpoint, and enable it again."""
        self.services.webhooks.disable(self.endpoint)
        self.services.webhooks.enable(self.endpoint)

    def take_in(self):
        """Import a line."""
        rows = read_rows("jsonl", io.StringIO(json.dumps({"product": "app"})), ASSUMED)
        with self.services.transfer.start_import() as incoming:
            incoming.read(rows)
            incoming.commit()

    def issue_file(self):
        """Issue a license file."""
        keys = (SigningKey(PrivateKey.generate(), self.world.clock()),)
        vault = replace(self.services.vault, signing_keys=keys)
        Services(replace(self.services.context, vault=vault)).offline_files.issue(
            self.key, "REQ-AJQQAYLQOAANHWGC"
        )

    def sweep(self):
        """Free what was not seen for long."""
        settings = self.world.settings.model_copy(update={"activation_days": 40})
        retention = Services(replace(self.services.context, settings=settings)).retention
        retention.sweep()
        self.world.clock.forward(days=41)
        retention.sweep()

    def sign_in(self):
        """Sign bob in."""
        return self.services.logins.sign_in("bob", PASSWORD)

    def enrol(self):
        """Set bob's second factor up."""
        bob = self.sign_in()
        self.services.second_factors.begin_enrolment(bob, PASSWORD)
        code = pyotp.TOTP(self.services.second_factors.find_enrolment(bob).secret).at(self.world.clock())
        return self.services.second_factors.confirm_enrolment(bob, code)

    def add_source(self):
        """Add a shop."""
        self.services.sources.add("shop", ShopKind.STANDARD, "SHOP_SECRET")

    def add_event(self):
        """Add a shop that has delivered something; returns its id."""
        self.add_source()
        values = {"type": "a", "content": "[]", "state": "dead"}
        return self.services.repositories.sales.add_event("shop", "1", self.world.clock(), **values)

    def add_problem(self):
        """Add a sale that needs a person; returns its id."""
        self.add_source()
        values = {"message": "not mapped", "kind": "not mapped", "answers": "leave"}
        return self.services.repositories.sales.put_problem(
            "shop", "order:1", "a", self.world.clock(), **values
        )[0]

    def fail(self, action, subject="bob"):
        """Report a failed login."""
        self.services.logins.record_failures(action, subject, 1, "192.0.2.1")


BY_VENDOR = {
    "customer.export": lambda shop: shop.services.personal_data.export("jo@example.com"),
    "customer.erase": lambda shop: shop.services.personal_data.erase("jo@example.com", keep_licenses=True),
    "product.add": lambda shop: shop.services.products.add("pro", "Pro"),
    "product.change": lambda shop: shop.services.products.rename("app", "App 2"),
    "plan.add": lambda shop: shop.services.plans.add("app", "pro", {}),
    "plan.change": lambda shop: (
        shop.services.plans.add("app", "pro", {}),
        shop.services.plans.change("app", "pro", {"export": True}),
    ),
    "plan.remove": lambda shop: (
        shop.services.plans.add("app", "pro", {}),
        shop.services.plans.remove("app", "pro"),
    ),
    "release.publish": lambda shop: shop.services.releases.publish("app", "2.0", shop.file),
    "release.renew": lambda shop: shop.services.releases.renew_manifest(
        "app", "1.0", sign_with_keys([PrivateKey.generate()], timedelta(days=1))
    ),
    "release.promote": lambda shop: shop.services.releases.promote("app", "1.0", "beta"),
    "release.rollout": lambda shop: (
        shop.services.releases.publish("app", "2.0", shop.file, reach=RolloutOptions("7d")),
        shop.services.rollouts.change("app", "2.0", paused=True),
    ),
    "release.security": lambda shop: shop.services.releases.set_security(
        "app", "1.0", SecurityNotice(None, ())
    ),
    "release.wordpress": lambda shop: shop.services.releases.set_wordpress("app", "1.0", tested="6.7"),
    "release.withdraw": lambda shop: shop.services.releases.withdraw("app", "1.0"),
    "license.issue": lambda shop: list(shop.services.licenses.issue_batches("app", LicenseTerms(), 2)),
    "license.reveal": lambda shop: shop.services.licenses.reveal(shop.key),
    "license.mail": lambda shop: shop.services.mail.resend_key(shop.key),
    "license.change": lambda shop: shop.services.licenses.change(shop.key, slots=3),
    "license.revoke": lambda shop: shop.services.licenses.revoke(shop.key),
    "license.reinstate": lambda shop: (
        shop.services.licenses.revoke(shop.key),
        shop.services.licenses.reinstate(shop.key),
    ),
    "license.reissue": lambda shop: shop.services.support.reissue(shop.key),
    "license.deactivate": lambda shop: shop.services.licenses.deactivate(shop.key, "a.example"),
    "license.move": lambda shop: shop.services.moves.deactivate(
        shop.services.licenses.get(shop.key), "a.example"
    ),
    "license.file": Shop.issue_file,
    "license.take_back": Shop.take_back,
    "license.import": Shop.take_in,
    "license.export": lambda shop: list(shop.services.transfer.export()),
    "license.sweep": Shop.sweep,
    "sweep": Shop.sweep,
    "subscription.end": lambda shop: shop.services.subscriptions.end("s"),
    "subscription.resume": lambda shop: (
        shop.services.subscriptions.end("s"),
        shop.services.subscriptions.resume("s"),
    ),
    "subscription.change": lambda shop: shop.services.subscriptions.follow("s", None),
    "source.add": lambda shop: shop.add_source(),
    "source.change": lambda shop: (
        shop.add_source(),
        shop.services.sources.change("shop", grace_days=3),
    ),
    "source.map": lambda shop: (shop.add_source(), shop.services.sources.map("shop", "a", "app")),
    "source.unmap": lambda shop: (
        shop.add_source(),
        shop.services.sources.map("shop", "a", "app"),
        shop.services.sources.unmap("shop", "a"),
    ),
    "source.remove": lambda shop: (shop.add_source(), shop.services.sources.remove("shop")),
    "source.answer": lambda shop: shop.services.sources.answer(shop.add_problem(), "leave"),
    "source.replay": lambda shop: shop.services.sources.replay(shop.add_event()),
    "mail.retry": Shop.retry_mail,
    "webhook.add": Shop.add_endpoint,
    "webhook.rotate": lambda shop: shop.services.webhooks.rotate(shop.endpoint),
    "webhook.disable": lambda shop: shop.services.webhooks.disable(shop.endpoint),
    "webhook.enable": Shop.enable_endpoint,
    "webhook.remove": lambda shop: shop.services.webhooks.remove(shop.endpoint),
    "webhook.redeliver": lambda shop: (
        shop.services.webhooks.send_test(shop.endpoint),
        shop.services.webhooks.redeliver_since(shop.world.clock()),
    ),
    "token.create": lambda shop: shop.services.tokens.create("ci", Scope.READ),
    "token.revoke": lambda shop: shop.services.tokens.revoke("shop"),
    "user.add": lambda shop: shop.services.users.add("carol", PASSWORD),
    "user.password": lambda shop: shop.services.users.set_password("bob", ANOTHER),
    "user.role": lambda shop: shop.services.users.set_role("bob", Role.OWNER),
    "user.remove": lambda shop: (
        shop.services.users.add("carol", PASSWORD),
        shop.services.users.remove("bob"),
    ),
    "user.sign_in": Shop.sign_in,
    "user.sign_out": lambda shop: shop.services.logins.sign_out(shop.sign_in().token),
    "user.second_factor_on": Shop.enrol,
    "user.second_factor_off": lambda shop: (
        done := shop.enrol(),
        shop.services.second_factors.disable(done.session, PASSWORD, done.recovery_codes[0]),
    ),
    "user.second_factor_reset": lambda shop: (shop.enrol(), shop.services.second_factors.reset("bob")),
    "user.recovery_code": lambda shop: (
        done := shop.enrol(),
        shop.services.second_factors.sign_in(shop.sign_in(), done.recovery_codes[0]),
    ),
    "user.sign_in_failed": lambda shop: shop.fail("user.sign_in_failed"),
    "user.sign_in_throttled": lambda shop: shop.fail("user.sign_in_throttled"),
    "user.code_failed": lambda shop: shop.fail("user.code_failed"),
    "token.refused": lambda shop: shop.fail("token.refused", "shop"),
    "token.forbidden": lambda shop: shop.fail("token.forbidden", "shop"),
}
ABOUT = {
    "product.add": ("product", "pro"),
    "product.change": ("product", "app"),
    "release.publish": ("release", "app/2.0"),
    "release.rollout": ("release", "app/2.0"),
    "license.issue": ("product", "app"),
    "license.import": ("license", "-"),
    "license.export": ("license", "-"),
    "sweep": ("database", "-"),
    "webhook.redeliver": ("webhook", "-"),
    "mail.retry": ("mail", "99"),
    "token.create": ("token", "ci"),
    "user.add": ("user", "carol"),
}
BY_COMMAND = (
    "backup.write",
    "clock.accept",
    "secret.copy",
    "secret.rotate",
    "signing_key.add",
    "signing_key.retire",
)
BY_BROWSER = ("list.export", "backup.delete")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("action", BY_VENDOR)
def test_what_the_vendor_does_is_noted(world, activate, tmp_path, action):
    """Once, about the right thing, under the name of who did it, and without a key."""
    shop = Shop(world, activate, tmp_path)
    before = {entry.id for entry in world.services.audit.list_page(limit=200).items}
    BY_VENDOR[action](shop)
    items = [entry for entry in world.services.audit.list_page(limit=200).items if entry.id not in before]
    (line,) = [entry for entry in items if entry.action == action]
    own = {"sign_in", "sign_out", "second_factor_on", "second_factor_off", "recovery_code"}
    who = "bob" if action.partition(".")[2] in own else "ann"
    assert line.actor == Actor(ActorKind.USER, who)
    by_kind = {
        "license": ("license", shop.id),
        "release": ("release", "app/1.0"),
        "subscription": ("subscription", "s"),
        "token": ("token", "shop"),
        "user": ("user", "bob"),
        "source": ("source", "shop"),
        "plan": ("plan", "app/pro"),
        "webhook": ("webhook", shop.endpoint),
        "customer": ("customer", world.services.vault.pseudonym("erased address", "jo@example.com").hex()),
    }
    about = ABOUT[action] if action in ABOUT else by_kind[action.partition(".")[0]]
    assert (line.object_kind, line.object_id) == about
    assert shop.key not in json.dumps([entry.details for entry in items])


async def test_a_list_that_is_taken_is_noted(world, alice):
    """As a file, from the console."""
    await alice.get("/console/products.csv")
    (line,) = [entry for entry in world.services.audit.list_page().items if entry.action == "list.export"]
    assert (line.actor, line.object_kind, line.object_id) == (
        Actor(ActorKind.USER, "alice"),
        "list",
        "products",
    )


def noted(cli, action):
    """The lines of an action, the latest first."""
    return [entry for entry in json.loads(cli("audit", "--json")) if entry["action"] == action]


def test_a_backup_is_noted(cli, tmp_path):
    """By whom it was made."""
    cli("backup", str(tmp_path / "all.backup"))
    (line,) = noted(cli, "backup.write")
    assert line["actor"] == f"cli:{getpass.getuser()}"


def test_an_accepted_clock_is_noted(cli):
    """By the user who believes it, with the time that it shows."""
    assert cli("clock", "--accept").startswith("the clock is trusted: ")
    (line,) = noted(cli, "clock.accept")
    assert line["actor"] == f"cli:{getpass.getuser()}"
    assert line["details"]["at"][:2] == "20"


def test_a_new_secret_for_links_is_noted(cli):
    """Who drew it and when it signs, whether the old one had leaked, and which it is; not the secret."""
    listed = json.loads(cli("secret", "rotate", "--leaked", "--json"))
    (line,) = noted(cli, "secret.rotate")
    assert line["actor"] == f"cli:{getpass.getuser()}"
    assert (line["kind"], line["object"]) == ("secret", listed[0]["id"])
    assert line["details"]["leaked"] is True
    assert line["details"]["signs_from"][:16] == listed[0]["signs_from"][:16]
    held = json.loads((cli.folder / "secrets.json").read_text())
    assert held["link_secrets"][0]["secret"] not in json.dumps(line)


def test_signing_keys_are_noted(cli):
    """One that is added, and one that is retired, by their ids."""
    added = json.loads(cli("signing-key", "add", "--json"))
    json.loads(cli("signing-key", "retire", added["id"], "--last", "--json"))
    for action, details in (("signing_key.add", {"given": False}), ("signing_key.retire", {"last": True})):
        (line,) = noted(cli, action)
        assert (line["kind"], line["object"]) == ("signing-key", added["id"])
        assert line["actor"] == f"cli:{getpass.getuser()}"
        assert line["details"] == details


def test_what_is_refused_is_not_noted(cli):
    """A second rotation while one is under way, a key that is not there."""
    cli("secret", "rotate")
    cli("secret", "rotate", expect=2)
    cli("signing-key", "retire", "nothing", expect=2)
    assert len(noted(cli, "secret.rotate")) == 1
    assert noted(cli, "signing_key.retire") == []


@pytest.mark.parametrize(
    ("command", "done"),
    [
        (("secret", "rotate", "--leaked"), lambda held: len(held["link_secrets"]) == 1),
        (("signing-key", "add"), lambda held: len(held["signing_keys"]) == 1),
    ],
)
@pytest.mark.parametrize("away", ["gone", pytest.param("not set up", marks=pytest.mark.postgresql)])
def test_a_secret_is_renewed_while_the_database_is_away(
    bare_cli, capsys, request, monkeypatch, command, done, away
):
    """It has leaked, and cannot wait: done, with a warning that no line records it."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    gone = "postgresql+psycopg://nobody@127.0.0.1:9/none"
    bare_cli.use(request.getfixturevalue("empty_database") if away == "not set up" else gone)
    with pytest.raises(SystemExit) as ended:
        licserver.cli.main([*command])
    captured = capsys.readouterr()
    assert ended.value.code == 0, captured.err
    assert captured.err.startswith("warning: done, but not recorded in the audit log: ")
    assert captured.err.count("\n") == 1
    assert done(json.loads((bare_cli.folder / "secrets.json").read_text()))


def test_no_other_action_is_written():
    """Every action that the code writes is tested here by its name, and has a label in the console."""
    package, listed = Path(licserver.__file__).parent, Path("web", "console", "pages", "audit.py")
    kinds = "|".join(sorted({action.partition(".")[0] for action in ACTIONS}))
    shape = re.compile(rf'"((?:{kinds})\.(?!html)[a-z_]+|sweep)"')
    of_shops = package / "shops"  # what they call their events
    sources = [path for path in package.rglob("*.py") if path != package / listed and path.parent != of_shops]
    sources.remove(package / "protocol" / "webhooks.py")  # what our events are called
    written = {found for path in sources for found in shape.findall(path.read_text(encoding="utf-8"))}
    assert written == {*BY_VENDOR, *BY_COMMAND, *BY_BROWSER} == set(ACTIONS)
