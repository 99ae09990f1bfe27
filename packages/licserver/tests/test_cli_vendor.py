"""The commands of the vendor's side: tokens, changes, searches, the audit log."""

import getpass
import json

import pytest

from harness.fetching import fetch
from licserver.domain.decisions import mask_key


@pytest.fixture
def key(cli):
    """A key of a product `app`."""
    cli("product", "add", "app", "--name", "App")
    terms = ("--email", "ann@shop.example", "--note", "order 17", "--slots", "2")
    return cli("license", "issue", "app", *terms).strip()


def test_tokens_are_made_listed_and_revoked(cli):
    """The text is printed once, alone on its line, and never again."""
    assert cli("token", "list") == "no tokens yet\n"
    text = cli("token", "create", "shop", "--scope", "write", "--expires", "2099-01-01").strip()
    assert text.startswith("lsv_")
    made = json.loads(cli("token", "create", "ci", "--scope", "read", "--json"))
    assert (made["scope"], made["expires_on"], made["token"][:4]) == ("read", None, "lsv_")
    assert cli("token", "revoke", "ci") == "revoked ci\n"
    listed = cli("token", "list", "--json")
    assert text not in listed
    assert [(load["name"], load["revoked_at"] is None) for load in json.loads(listed)] == [
        ("ci", False),
        ("shop", True),
    ]
    assert "there is no token 'x'" in cli("token", "revoke", "x", expect=2)
    assert "--scope" in cli("token", "create", "x", expect=2)


@pytest.mark.slow
def test_a_license_is_changed_and_found(cli, key):
    """What is named changes, the rest stays; it is found by what the vendor noted."""
    shown = json.loads(cli("license", "show", key, "--json"))
    assert (shown["customer_email"], shown["note"]) == ("ann@shop.example", "order 17")
    cli("license", "change", key, "--slots", "unlimited", "--expires", "2027-01-31", "--note", "")
    shown = json.loads(cli("license", "show", key, "--json"))
    assert (shown["slots"], shown["expires_on"], shown["note"]) == ("unlimited", "2027-01-31", None)
    cli("license", "change", key, "--lifetime", "--expires", "never")
    cli("license", "allow", key, "b.example")
    cli("license", "disallow", key, "B.example")
    shown = json.loads(cli("license", "show", key, "--json"))
    assert (shown["lifetime"], shown["expires_on"], shown["allowed"]) == (True, None, [])
    assert "there is nothing to change" in cli("license", "change", key, expect=2)
    assert mask_key(key) in cli("license", "find", "ann@sh")
    assert cli("license", "find", "order") == "no licenses found\n"


def test_the_audit_log_names_who_did_it(cli, key):
    """The operating system's user; a revealed key is recorded, and no key stands in the log."""
    cli("license", "show", key, "--reveal")
    cli("license", "revoke", key, "--reason", f"{key} came back")
    lines = json.loads(cli("audit", "--license", key, "--json"))
    assert [line["action"] for line in lines] == ["license.revoke", "license.reveal", "license.issue"]
    assert {line["actor"] for line in lines} == {f"cli:{getpass.getuser()}"}
    everything = cli("audit") + cli("audit", "--json")
    assert key not in everything
    assert mask_key(key) in everything


def test_subscriptions_are_ended_and_resumed(cli):
    """The end is noted and taken back."""
    cli("product", "add", "app", "--name", "App")
    cli("license", "issue", "app", "--subscription", "s")
    cli("subscription", "end", "s")
    assert cli("subscription", "resume", "s") == "resumed s: 1 license\n"
    assert "no license is linked" in cli("subscription", "resume", "t", expect=2)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_the_admin_api_has_an_address_of_its_own(cli, program, workers):
    """It is printed, it serves the admin API, and the public address does not."""
    cli("product", "add", "app", "--name", "App")
    text = cli("token", "create", "shop", "--scope", "read").strip()
    program.environ["LICSERVER_ADMIN_LISTEN"] = "127.0.0.1:0"
    with program.serve("--workers", workers) as (process, public):
        line = process.stdout.readline()
        assert line.startswith("admin API on http://127.0.0.1:")
        admin = line.removeprefix("admin API on ").strip()
        path, headers = "/admin/api/v1/products", {"Authorization": f"Bearer {text}"}
        status, body = fetch(admin + path, headers=headers)
        assert (status, [license_["slug"] for license_ in json.loads(body)["items"]]) == (200, ["app"])
        assert fetch(public + path, headers=headers)[0] == 404
        assert fetch(admin + "/api/v1/update-check")[0] == 404
