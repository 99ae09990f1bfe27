"""`licserver check`: what is wrong is reported, what is well too, and nothing is changed by looking."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.engines import both_engines
from licserver.database.repositories.webhooks import DELIVERIES
from licserver.domain.records import AfterSupport
from licserver.protocol import release_manifests
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.security.secrets_file import add_signing_key, new_secrets
from licserver.services.mail import NOTICES
from licserver.services.queues import measure_queues
from licserver.services.self_check import (
    Finding,
    Level,
    check_base_url,
    check_installation,
    check_settings,
)
from licserver.settings import Settings
from licserver.shops import ShopKind

ADMIN = {"admin_listen": "127.0.0.1:8081"}
BASE = {"base_url": "https://l.example", "trusted_proxies": "127.0.0.1", **ADMIN}


def found(settings: Settings, now: Any, **more: Any) -> list[Finding]:
    """All that is found."""
    return list(check_installation(settings, now, **{"reach": False, **more}))


def bad(findings: list[Finding]) -> dict[str, Finding]:
    """What is not as it should be, by what it is about."""
    return {finding.about: finding for finding in findings if finding.level is not Level.OK}


@both_engines
def test_all_is_well(make_world, clock):
    """An installation as the guide makes it has nothing to complain of, on either engine."""
    world = make_world(**BASE)
    world.publish("1.0")
    findings = found(world.settings, clock())
    complaints = bad(findings)
    complaints.pop("clock", None)  # the tests' clock stands still, PostgreSQL's does not
    assert complaints == {}
    assert {"settings", "permissions", "disk", "database", "files", "signing keys"} <= {
        finding.about for finding in findings
    }


@both_engines
def test_a_shop_without_its_secret_is_reported(make_world, clock, monkeypatch):
    """Without any secret its deliveries are refused; with one of two they are taken; both are reported."""
    world = make_world()
    world.services.sources.add("shop", ShopKind.STRIPE, "NEW_SHOP_SECRET,OLD_SHOP_SECRET")
    assert bad(found(world.settings, clock()))["source shop"].level is Level.FAILED
    monkeypatch.setenv("NEW_SHOP_SECRET", "whsec_something")
    only_one = bad(found(world.settings, clock()))["source shop"]
    assert (only_one.level, "whsec" in str(only_one)) == (Level.WARNING, False)
    monkeypatch.setenv("OLD_SHOP_SECRET", "whsec_something else")
    assert "source shop" not in bad(found(world.settings, clock()))
    monkeypatch.setenv("OLD_SHOP_SECRET", "sk_live_an-api-key")
    odd = bad(found(world.settings, clock()))["source shop"]
    assert (odd.level, odd.message.split()[:2]) == (Level.WARNING, ["OLD_SHOP_SECRET", "holds"])


def test_the_api_key_of_a_source(world, clock, monkeypatch):
    """One that is named and not set; and a shop whose deliveries have no addresses, where keys are mailed."""
    monkeypatch.setenv("SHOP_SECRET", "pdl_ntfset_x")
    world.services.sources.add("shop", ShopKind.PADDLE, "SHOP_SECRET")
    assert "source shop" not in bad(found(world.settings, clock()))
    mailing = world.settings.model_copy(update={"mail_host": "localhost"})
    silent = bad(found(mailing, clock()))["source shop"]
    assert silent.message == (
        "deliveries of Paddle have no addresses, so without an API key nobody is mailed a key"
    )
    world.services.sources.change("shop", key_env="SHOP_KEY")
    unset = bad(found(mailing, clock()))["source shop"]
    assert unset.message == "SHOP_KEY is not set here: what its API knows is not looked up"
    monkeypatch.setenv("SHOP_KEY", "pdl_live_apikey_x")
    assert "source shop" not in bad(found(mailing, clock()))


def test_a_missing_secret_is_described_as_its_shop_has_it(make_world, clock):
    """Gumroad shows none: the vendor makes one of a length that cannot be guessed."""
    world = make_world()
    for kind in ("gumroad", "stripe"):
        world.services.sources.add(kind, ShopKind(kind), f"NO_{kind.upper()}")
    findings = bad(found(world.settings, clock()))
    assert findings["source gumroad"].advice == (
        "set it to a secret of your own, such as `openssl rand -hex 20` prints; it must have at least 20 "
        "letters and digits, since it is part of the address"
    )
    assert findings["source stripe"].advice == (
        "set it to the signing secret that the shop shows for this webhook; it must begin with whsec_"
    )


def test_products_of_one_name_are_reported(make_world, clock):
    """A database from before the rule may have two: a key of one opens the app of the other."""
    world = make_world()
    world.services.products.add("lite", "Lite")
    assert "products" not in bad(found(world.settings, clock()))
    world.repositories.products.change("lite", name="App")
    finding = bad(found(world.settings, clock()))["products"]
    assert finding.message == "app, lite have the same name 'App': a key of one opens the app of another"
    assert finding.advice == "licserver product rename lite --name NAME"


@both_engines
def test_jobs_that_nobody_does_are_reported(make_world, clock):
    """A job that is due for minutes, as when no server runs; not one that runs, or is to be repeated."""
    world = make_world(mail_host="mail.example", mail_sender="shop@example.com")
    queue = world.repositories.queue
    for key in ("running", "failed", "dead"):
        queue.add(NOTICES, key, {}, clock())
    _, failed, dead = queue.claim(NOTICES, clock(), timedelta(hours=1), 3)
    queue.retry(failed, clock() + timedelta(hours=1), "no connection")
    queue.add(DELIVERIES, "forgotten", {}, clock())
    clock.forward(minutes=5)
    assert not {"mail", "webhooks"} & {*bad(found(world.settings, clock()))}
    clock.forward(minutes=5)
    late = bad(found(world.settings, clock()))["webhooks"]
    assert (late.level, late.message) == (Level.WARNING, "1 job waiting, the oldest is due for 10 minutes")
    world.services.sources.add("shop", ShopKind.STANDARD, "A_SECRET")
    world.services.sources.take("shop", b"{")
    sales = {finding.message for finding in found(world.settings, clock()) if finding.about == "sales"}
    assert sales == {"1 delivery given up", "1 sale needs you"}
    queue.bury(dead, clock(), "550")
    assert bad(found(world.settings, clock()))["mail"].message == "1 mail given up"
    measured = {
        queue_.name: queue_[1:4] for queue_ in measure_queues(world.repositories, world.settings, clock())
    }
    nothing = (0, 0, 0)
    assert measured == {"sales": (0, 0, 1), "webhooks": (600, 1, 0), "mail": (0, 2, 1), "patches": nothing}


def test_a_clock_that_is_off_is_reported(make_world, clock):
    """The database's machine has a clock of its own to compare with; the year alone can be wrong too."""
    world = make_world(**BASE)
    if world.settings.database_url is not None:
        assert "seconds off" in bad(found(world.settings, clock()))["clock"].message
    messages = [
        finding.message
        for finding in found(world.settings, clock().replace(year=1970))
        if finding.about == "clock"
    ]
    assert "1970" in messages[0]


SETTINGS: dict[str, tuple[dict[str, Any], str, Level, str]] = {
    "no base URL": ({"base_url": None}, "settings", Level.WARNING, "LICSERVER_BASE_URL is not set"),
    "a base URL of http": ({"base_url": "http://l.example"}, "settings", Level.WARNING, "in the clear"),
    "https, no proxy": ({"trusted_proxies": ""}, "settings", Level.WARNING, "LICSERVER_TRUSTED_PROXIES"),
    "a console in the open": (
        {"admin_listen": None}, "settings", Level.WARNING, "LICSERVER_ADMIN_LISTEN is not set",
    ),
    "no data folder": ({"data_dir": "/nowhere/else"}, "data folder", Level.FAILED, "there is no"),
    "a database file out of reach": (  # a folder that may not be entered would not stop root
        {"database_url": f"sqlite+pysqlite:////tmp/{'x' * 300}"}, "database", Level.FAILED, "cannot look at",
    ),
    "a database that is away": (
        {"database_url": "postgresql://licserver:hunter2@127.0.0.1:1/nowhere"},
        "database", Level.FAILED, "the database failed",
    ),
}  # fmt: skip


def publish_covered(world: Any) -> None:
    """Publish a newer version than one that a license covers, whose manifest runs out."""
    publish_for(world, timedelta(days=20))
    rules = {"has_support_policy": True, "after_support": AfterSupport.COVERED}
    world.services.products.change("app", **rules)
    world.clock.forward(days=1)
    world.publish("5.0")


def publish_for(world: Any, valid: timedelta) -> None:
    """Publish a version whose manifest is good for some time."""
    file = world.folder / "app.zip"
    file.write_bytes(b"zip")
    seal = release_manifests.sign_with_keys([PrivateKey.generate()], valid)
    world.services.releases.publish("app", "4.0", file, "", seal)


FAULTS: dict[str, tuple[Callable[[Any, Path], object], str, Level, str]] = {
    "secrets that others may read": (
        lambda _, folder: (folder / "secrets.json").chmod(0o644),
        "permissions", Level.FAILED, "others may read",
    ),
    "a folder that others may enter": (
        lambda _, folder: folder.chmod(0o755), "permissions", Level.WARNING, "others may look into",
    ),
    "lost secrets": (
        lambda _, folder: (folder / "secrets.json").unlink(), "secrets", Level.FAILED, "cannot read",
    ),
    "other secrets": (
        lambda _, folder: (folder / "secrets.json").write_text(json.dumps(new_secrets())),
        "database", Level.FAILED, "other secrets",
    ),
    "a lost file": (
        lambda world, _: world.services.artifacts.path(world.publish("3.0").artifact).unlink(),
        "files", Level.FAILED, "lacks the file of app 3.0",
    ),
    "a manifest that runs out": (
        lambda world, _: publish_for(world, timedelta(days=20)),
        "manifests", Level.WARNING, "out on 2026-07-05",
    ),
    "a manifest of what a license covers that runs out": (
        lambda world, _: publish_covered(world), "manifests", Level.WARNING, "app 4.0",
    ),
}  # fmt: skip


def test_signing_keys_without_a_base_url_are_reported(make_world, clock):
    """The signature covers the address."""
    settings = Settings(data_dir=make_world().settings.data_dir)
    add_signing_key(settings, PrivateKey.generate(), clock())
    finding = bad(found(settings, clock()))["signing keys"]
    assert (finding.level, "the signature covers the address" in finding.message) == (Level.FAILED, True)


@pytest.mark.sampled(5)
@pytest.mark.skipif(os.name == "nt", reason="there are no file modes on Windows")
@pytest.mark.parametrize("case", [*SETTINGS, *FAULTS])
def test_what_is_wrong_is_reported_with_advice(case, make_world, clock):
    """Each fault has its own sentence and its own advice, and looking makes nothing."""
    world = make_world(**BASE)
    if case in SETTINGS:
        changes, about, level, message = SETTINGS[case]
        settings = Settings(**{"data_dir": world.settings.data_dir, **BASE, **changes})
    else:
        break_it, about, level, message = FAULTS[case]
        break_it(world, world.settings.data_dir)
        settings = world.settings
    before = sorted(map(str, Path(world.folder).rglob("*")))
    finding = bad(found(settings, clock()))[about]
    assert message in finding.message
    assert (finding.level, bool(finding.advice)) == (level, True)
    assert "hunter2" not in repr(finding)
    assert sorted(map(str, Path(world.folder).rglob("*"))) == before


@pytest.mark.parametrize("url", ["http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"])
def test_a_console_that_only_this_machine_reaches_is_well(make_world, clock, url):
    """A trial installation at home is not advised to hide it."""
    settings = Settings(data_dir=make_world().settings.data_dir, base_url=url)
    assert not any("LICSERVER_ADMIN_LISTEN" in finding.message for finding in found(settings, clock()))


def test_a_console_at_each_address_is_a_warning():
    """`serve --host ::` with no settings: anyone who reaches the machine gets the console over plain http."""
    (finding, _) = check_settings(Settings(), listens_openly=True)
    assert "LICSERVER_ADMIN_LISTEN is not set" in finding.message
    assert len([*check_settings(Settings())]) == 1


DEAD = {
    "a bucket that is not there": ({}, "s3://bucket-nobody-made/x", "NoSuchBucket"),
    "a store that is away": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, None, "cannot be reached"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", DEAD)
def test_a_dead_bucket_is_reported_before_anything_lies_in_it(make_world, clock, bucket, monkeypatch, case):
    """No release needs a file yet, and still it is reported; a bucket that is there is well, though empty."""
    environ, url, message = DEAD[case]
    assert "files" not in bad(found(make_world(**BASE, artifacts_url=bucket).settings, clock()))
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    finding = bad(found(make_world(**BASE, artifacts_url=url or bucket).settings, clock()))["files"]
    assert (finding.level, message in finding.message) == (Level.FAILED, True), finding


async def test_the_base_url_is_asked_as_customers_ask_it(make_world, open_site, clock):
    """A licserver that answers there is distinguished from silence, an error, and somebody else's page."""
    import asyncio  # noqa: PLC0415 - for this story

    world = make_world()
    site = await open_site(world)
    assert (await asyncio.to_thread(check_base_url, site.url)).problem == ""
    refused = await asyncio.to_thread(check_base_url, f"{site.url}/elsewhere")
    assert refused.problem == "answers 404 at /healthz"
    closed = await asyncio.to_thread(check_base_url, "http://127.0.0.1:1")
    assert "cannot be reached" in closed.problem
    settings = Settings(data_dir=world.settings.data_dir, base_url=site.url)
    findings = await asyncio.to_thread(found, settings, clock(), reach=True)
    assert any(finding.message == f"{site.url} answers" for finding in findings)
    assert "off this machine's" in bad(findings)["clock"].message  # the tests' clock stands at noon


def test_the_command(bare_cli, monkeypatch):
    """Exit code 1 when something failed, 0 when it is only odd; a bad setting is a finding as well."""
    assert "FAIL  data folder" in _fails(bare_cli)
    bare_cli("product", "add", "app", "--name", "App")
    assert "ok    database" in bare_cli("check")
    report = json.loads(bare_cli("check", "--json"))
    assert report["ok"] is True
    assert {"about", "level", "message", "advice"} == set(report["findings"][0])
    monkeypatch.setenv("LICSERVER_IPV6_PREFIX", "no number")
    assert "LICSERVER_IPV6_PREFIX" in _fails(bare_cli)


def _fails(cli: Any) -> str:
    with pytest.raises(AssertionError) as caught:  # the fixture shows what was printed when a command fails
        cli("check")
    return str(caught.value)
