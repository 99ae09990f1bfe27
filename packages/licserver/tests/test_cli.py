"""The vendor's command line: every command, for people and as JSON, and the messages for wrong use."""

import json
import os
import re
from datetime import UTC, datetime

import pytest

from harness.engines import Meddler, both_engines
from licserver.domain.decisions import is_license_key, mask_key
from licserver.domain.records import SYSTEM


@pytest.fixture
def shop(cli, tmp_path):
    """A vendor with the product `app` and a file to publish."""
    cli("product", "add", "app", "--name", "My App")
    (tmp_path / "app.zip").write_bytes(b"zip")
    cli.file = str(tmp_path / "app.zip")
    return cli


@pytest.mark.parametrize("command", ["rename", "change"])
def test_a_rename_asks_first_as_apps_compare_the_name(shop, command, monkeypatch):
    """The effect on apps in the field is printed before anything changes; the same name asks nothing."""
    refused = shop("product", command, "app", "--name", "My App Pro", expect=2)
    assert 'product="My App"' in refused
    assert "add --yes" in refused
    assert json.loads(shop("product", "list", "--json"))[0]["name"] == "My App"
    assert shop("product", command, "app", "--name", "My App") == f"{command}d app: My App\n"
    shop("product", command, "app", "--name", "My App Pro", "--yes")
    assert "refuses every new license" in shop.errors
    assert json.loads(shop("product", "list", "--json"))[0]["name"] == "My App Pro"


def issue(cli, *terms: str) -> str:
    """Issue one key."""
    key: str = cli("license", "issue", "app", *terms).strip()
    assert is_license_key(key)
    return key


def shown(cli, key, *more: str):
    """A license as JSON."""
    return json.loads(cli("license", "show", key, "--json", *more))


def test_products_are_added_listed_and_renamed(cli):
    """What was typed is what is listed, for people and for programs."""
    assert cli("product", "list") == "no products yet\n"
    assert json.loads(cli("product", "list", "--json")) == []
    assert cli("product", "add", "app", "--name", "My App") == "added app: My App\n"
    added = cli(
        "product", "add", "pro", "--name", "Pro", "--environment", "domain", "--support-policy", "--json"
    )
    record = {"slug": "pro", "environment": "domain", "support_policy": True, "accept_imported_keys": False}
    record |= {"customer_moves": 3, "trial_days": 0, "public_feed": False, "minimum_version": None}
    record |= {"after_support": "none", "idle_days": 0}
    record |= {"latest": None, "name": "Pro"}
    assert json.loads(added) == record
    assert cli("product", "rename", "app", "--name", "App II", "--yes") == "renamed app: App II\n"
    assert [product["name"] for product in json.loads(cli("product", "list", "--json"))] == ["App II", "Pro"]
    header, *rows = cli("product", "list").splitlines()
    assert header.split() == [
        "SLUG",
        "ENVIRONMENT",
        "SUPPORT",
        "POLICY",
        "ACCEPT",
        "IMPORTED",
        "KEYS",
        "AFTER",
        "SUPPORT",
        "IDLE",
        "DAYS",
        "CUSTOMER",
        "MOVES",
        "TRIAL",
        "DAYS",
        "PUBLIC",
        "FEED",
        "MINIMUM",
        "VERSION",
        "LATEST",
        "NAME",
    ]
    assert [row.split()[0] for row in rows] == ["app", "pro"]


def test_releases_are_published_listed_and_withdrawn(shop, tmp_path):
    """Version, size, digest and dates are printed; the changelog may come from a file of any editor."""
    assert shop("release", "list", "app") == "no versions yet\n"
    text = shop("release", "publish", "app", "1.0", shop.file, "--changelog", "First")
    warning = "The file cannot be unpacked as a zip: build or copy it again."
    assert re.fullmatch(rf"published app 1\.0: 3 bytes, sha256 [0-9a-f]{{64}}\n{warning}\n", text)
    notes = tmp_path / "notes.html"
    notes.write_bytes(b"\xef\xbb\xbf<b>Zweite</b>\r\n")
    shop("release", "publish", "app", "1.1", shop.file, "--changelog-file", str(notes), "--json")
    withdrawn = json.loads(shop("release", "withdraw", "app", "1.1", "--json"))
    assert withdrawn["withdrawn_at"].endswith("Z")
    assert shop("release", "withdraw", "app", "1.0") == "withdrew app 1.0\n"
    assert [release["version"] for release in json.loads(shop("release", "list", "app", "--json"))] == [
        "1.0",
        "1.1",
    ]
    assert "app.zip" in shop("release", "list", "app")


def test_a_key_is_issued_with_its_terms(shop):
    """Every option of `license issue` is kept; one slot is the default, and past days are fine."""
    assert shown(shop, issue(shop))["slots"] == 1
    key = issue(
        shop,
        *("--slots", "unlimited", "--expires", "2020-02-29", "--support-until", "2027-01-01"),
        *("--subscription", "s-1", "--allow", "A.example", "--allow", "10.0.0.0/8"),
    )
    record = shown(shop, key)
    assert record["slots"] == "unlimited"
    assert (record["expires_on"], record["support_until"]) == ("2020-02-29", "2027-01-01")
    assert (record["subscription"], record["allowed"]) == ("s-1", ["a.example", "10.0.0.0/8"])
    assert shown(shop, issue(shop, "--lifetime", "--slots", "0"))["lifetime"] is True


def test_a_license_that_no_app_accepts_is_issued_with_a_warning(shop):
    """A mistyped year, or no slot at all, is probably a slip; the key on standard output stays alone."""
    issue(shop, "--expires", "2020-02-29")
    assert shop.errors == "warning: 2020-02-29 has passed, so the license is expired\n"
    issue(shop, "--slots", "0")
    assert shop.errors == "warning: without slots and an allow-list no computer can use the license\n"
    issue(shop, "--slots", "0", "--allow", "10.0.0.0/8")
    assert shop.errors == ""


def test_a_license_that_no_app_accepts_after_a_change_is_changed_with_a_warning(shop):
    """The same slips as at issue; a change of something else repeats nothing."""
    key = issue(shop)
    shop("license", "change", key, "--expires", "2020-02-29")
    assert shop.errors == "warning: 2020-02-29 has passed, so the license is expired\n"
    shop("license", "change", key, "--slots", "0")
    assert shop.errors == "warning: without slots and an allow-list no computer can use the license\n"
    shop("license", "change", key, "--note", "order 7")
    assert shop.errors == ""
    trial = issue(shop, "--trial")
    shop("license", "convert", trial, "--expires", "2020-02-29")
    assert shop.errors == "warning: 2020-02-29 has passed, so the license is expired\n"


def test_a_masked_key_is_for_the_search(shop):
    """What lists and customers show of a key is no key; the message has the command that takes it."""
    key = issue(shop)
    for masked in (mask_key(key), mask_key(key).replace("…", "...")):
        assert "`licserver license find` finds licenses by it" in shop("license", "show", masked, expect=2)
        assert mask_key(key) in shop("license", "find", masked)


def test_a_product_in_the_place_of_an_option(shop):
    """The message names the option, of each command that has it."""
    for command in ("source map shop photo-pro app", "license list app"):
        assert "a product is given as --product SLUG" in shop(*command.split(), expect=2)


def test_an_end_of_support_without_a_policy_is_named(shop):
    """At each command that sets one; the license has it, in case the product gets a policy."""
    support = ("--support-until", "2030-01-31")
    key = issue(shop, *support)
    assert "has no support policy, so the end of support has no effect" in shop.errors
    shop("license", "change", key, *support)
    assert "has no support policy" in shop.errors
    shop("license", "convert", issue(shop, "--trial"), *support)
    assert "has no support policy" in shop.errors
    shop("license", "change", key, "--support-until", "never")
    assert shop.errors == ""


def test_many_keys_are_printed_one_a_line_or_as_one_document(shop):
    """`--count` prints whole keys: they exist nowhere else in the clear."""
    keys = shop("license", "issue", "app", "--count", "25").split()
    assert len(set(keys)) == 25
    assert all(map(is_license_key, keys))
    document = json.loads(shop("license", "issue", "app", "--count", "3", "--json"))
    assert document["product"] == "app"
    assert len(document["license_keys"]) == 3


def test_a_key_can_come_from_standard_input_or_be_named_by_its_id(shop):
    """`-` keeps a key out of the shell's history; the id of the list does as well."""
    key = issue(shop)
    record = json.loads(shop("license", "show", "-", "--json", stdin=f"  {key}\r\nmore\n"))
    assert record == shown(shop, record["id"])
    assert record == shown(shop, key.lower()), "as a customer writes it in a mail"
    assert "no license" not in shop("license", "list")


def test_revoking_and_reinstating_are_confirmed(shop):
    """Date and reason are kept, and taken back."""
    key = issue(shop)
    assert shop("license", "revoke", key, "--reason", "refund").startswith("revoked CP-")
    assert shown(shop, key)["revoked_reason"] == "refund"
    assert shop("license", "reinstate", key).startswith("reinstated CP-")
    assert shown(shop, key)["revoked_at"] is None


def test_a_subscription_ends_now_or_at_an_instant(shop):
    """An instant without a zone is UTC, and one with a zone is turned into it."""
    key = issue(shop, "--subscription", "s-1")
    done = shop("subscription", "end", "s-1", "--at", "2030-01-01T02:00+02:00")
    assert done == "s-1 ends on 2030-01-01 00:00 UTC: 1 license expires with it\n"
    assert shown(shop, key)["subscription_ended_at"] == "2030-01-01T00:00:00Z"
    assert listed(shop)[0]["subscription_ended_at"] == "2030-01-01T00:00:00Z"
    assert "2030-01-01" in shop("license", "list")
    assert json.loads(shop("subscription", "end", "s-1", "--at", "2030-01-01", "--json"))["licenses"] == 1
    assert shown(shop, key)["subscription_ended_at"] == "2030-01-01T00:00:00Z"
    before = datetime.now(UTC)
    assert shop("subscription", "end", "s-1") == "ended s-1: 1 license expires with it\n"
    assert datetime.fromisoformat(shown(shop, key)["subscription_ended_at"]) >= before


WRONG = {
    "": "Usage",
    "licence list": "No such command 'licence'. Did you mean 'license'?",
    "lisence list": "No such command 'lisence'. Did you mean 'license'?",
    "xyz": "No such command 'xyz'. See `licserver --help`.",
    "license shwo app": "No such command 'shwo'. Did you mean 'show'?",
    "license issue app --slot 2": "--slots",
    "license show": "Missing argument 'KEY'. See `licserver license show --help`.",
    "product add x": "Missing option '--name'. See `licserver product add --help`.",
    "product add x --name": "requires an argument",
    "product list x": "unexpected extra argument (x). See `licserver product list --help`.",
    "--data-dir x product list": "No such option '--data-dir' here: place it after the command, as in",
    "--json product list": "`licserver product list --json`",
    "product --json list": "`licserver product list --json`",
    "--verion": "Did you mean '--version'?",
    "license change KEY --floating-seats many": "'many' is not a whole number or 'none'",
    "license change KEY --floating-seats -1": "not a whole number or 'none'",
    "mail preview licence_key": "Invalid value for 'TEMPLATE': 'licence_key' is not one of",
    "plan add app pro --grant exports=100/week": "per day, month or year, like 100/month",
    "license issue nope": "there is no product 'nope'; there are: app",
    "product add My_App --name x": "lower-case",
    "product add app --name x": "already",
    "product add x --name x --environment none": "strict",
    "license issue app --slots many": "not a whole number",
    "license issue app --slots -1": "not a whole number",
    "license issue app --slots 1.5": "not a whole number",
    "license issue app --slots 99999999999": "not a whole number",
    "license issue app --expires tomorrow": "write it like 2027-01-31",
    "license issue app --expires 0027-01-31": "write the year with four digits",
    "license issue app --support-until 0207-01-31": "write the year with four digits",
    "license issue app --expires 2027-02-29": "write it like 2027-01-31",
    "license issue app --lifetime --expires 2027-01-01": "not both",
    "license issue app --count 0": "--count",
    "license issue app --count ten": "'ten' is not a whole number.",
    "product change app --trial-days ten": "'ten' is not a whole number.",
    "license issue app --allow a.*.b": "pattern",
    "license show rubbish": "neither a license key",
    "license revoke CP-000000-000000-000000-000000-000000": "no such license",
    "license show 00000000000000000000000000000000": "no such license",
    "license show -": "neither a license key",
    "subscription end s-9": "no license is linked",
    "subscription end s-9 --at noon": "write it like 2027-01-31T12:00Z",
    "subscription end s-9 --at 0001-01-01T00:00+14:00": "write it like",
    "release publish app banana FILE": "PEP 440",
    "release publish app 1.0 /nowhere": "is not a file",
    "release publish app 1.0 FILE --changelog x --changelog-file FILE": "not both",
    "release publish app 1.0 FILE --changelog-file /nowhere": "cannot read",
    "release withdraw app 7.0": "no version",
    "serve --port 70000": "70000",
    "serve --workers 0": "--workers",
}


@pytest.mark.slow
def test_wrong_use_is_one_clear_line_and_changes_nothing(shop):
    """Exit code 2, one line that helps, and no row is changed."""

    def rows():
        return shop("product", "list"), shop("release", "list", "app"), shop("license", "list")

    before = rows()
    for line, message in WRONG.items():
        err = shop(*line.replace("FILE", shop.file).split(), expect=2)
        assert message in err, line
        assert line == "" or (err.count("\n"), err[:11]) == (1, "licserver: "), line
        assert rows() == before, line


def test_what_is_no_text_is_wrong_use_and_no_failure(shop):
    """Bytes that are not valid in the terminal's encoding are wrong use, with exit code 2."""
    for line in (
        "license list --product \udcff",
        "subscription end \udcff",
        "product rename \udcff --name x",
        "product add x --name \udcff",
        f"release publish app {'9' * 5000} {shop.file}",
        "license show \udcff",
    ):
        shop(*line.split(" "), expect=2)


def test_settings_are_checked_before_anything_is_made(bare_cli, monkeypatch):
    """A misspelt or impossible variable is exit code 2, and no folder is made."""
    monkeypatch.setenv("LICSERVER_BASEURL", "x")
    assert "did you mean LICSERVER_BASE_URL?" in bare_cli("product", "list", expect=2)
    monkeypatch.delenv("LICSERVER_BASEURL")
    monkeypatch.setenv("LICSERVER_IPV6_PREFIX", "129")
    assert "LICSERVER_IPV6_PREFIX" in bare_cli("product", "list", expect=2)
    assert not bare_cli.folder.exists()


DATABASES = [
    *("nonsense", "oracle://x", "sqlite://", "sqlite:///:memory:", "sqlite:////nowhere/x"),
    *("sqlite+nope:////tmp/x", "sqlite+aiosqlite:////tmp/x", "sqlite:////tmp/x?timeout=soon"),
    "sqlite:////tmp/x?foo=bar",
]


def test_an_invalid_database_address_is_reported_with_its_variable(cli, monkeypatch):
    """Wrong use, in one line that names LICSERVER_DATABASE_URL."""
    for url in DATABASES:
        monkeypatch.setenv("LICSERVER_DATABASE_URL", url)
        assert cli("product", "list", expect=2).startswith("licserver: LICSERVER_DATABASE_URL"), url


def test_the_option_wins_over_the_variable(shop, tmp_path):
    """`--data-dir` names another vendor's folder, whatever the environment says."""
    assert shop("product", "list", "--data-dir", str(tmp_path / "other")) == "no products yet\n"
    assert (tmp_path / "other" / "licserver.sqlite3").exists()


def test_a_folder_that_cannot_be_used_is_reported(cli, tmp_path):
    """A file in the folder's place is wrong use; one above it is a failure; both in one line."""
    (tmp_path / "file").write_text("")
    assert "is a file" in cli("product", "list", "--data-dir", str(tmp_path / "file"), expect=2)
    assert str(tmp_path / "file") in cli(
        "product", "list", "--data-dir", str(tmp_path / "file" / "x"), expect=1
    )


def test_lost_secrets_are_reported(shop):
    """Without its secrets a database is not opened, and no fresh ones are left beside it."""
    (shop.folder / "secrets.json").unlink()
    before = sorted(path.name for path in shop.folder.iterdir())
    assert "secrets.json is lost" in shop("product", "list", expect=1)
    assert sorted(path.name for path in shop.folder.iterdir()) == before


@both_engines
def test_one_altered_row_does_not_hide_the_others(shop):
    """A key that cannot be decrypted is listed as unreadable; it can be revoked, and never be revealed."""
    altered, whole = shop("license", "issue", "app", "--count", "2").split()
    license_id = shown(shop, altered)["id"]
    meddler = Meddler(os.environ.get("LICSERVER_DATABASE_URL"), shop.folder / "licserver.sqlite3")
    change = "UPDATE licenses SET sealed_key = {} WHERE id = {}"
    meddler.do(change.format("x'00'", f"x'{license_id}'"), change.format("'\\x00'", f"'\\x{license_id}'"))
    meddler.close()
    assert {record["license_key"] for record in listed(shop)} == {"unreadable", mask_key(whole)}
    assert "unreadable" in shop("license", "show", altered)
    assert "was altered" in shop("license", "show", altered, "--reveal", expect=1)
    assert shop("license", "revoke", altered) == "revoked unreadable\n"


def listed(shop):
    """What `license list` prints for programs."""
    return json.loads(shop("license", "list", "--json"))


COMMANDS = [
    "serve",
    "demo",
    "product add",
    "product list",
    "product rename",
    "release publish",
    "release list",
]
COMMANDS += ["release withdraw", "license issue", "license show", "license list", "license revoke"]
COMMANDS += ["license reinstate", "license deactivate", "license allow", "subscription end"]
COMMANDS += ["db upgrade", "db check", "db status"]


def test_every_command_has_help_and_the_common_options(bare_cli):
    """`--help` creates nothing; every command that uses the database takes `--data-dir` and `--json`."""
    for command in COMMANDS:
        text = bare_cli(*command.split(), "--help")
        assert text.startswith(f"Usage: licserver {command} ")
        assert command == "demo" or ("--data-dir" in text and "--json" in text), command
    assert not bare_cli.folder.exists()


def test_the_version_is_printed(cli):
    """`--version` names the program and its version."""
    assert re.fullmatch(r"licserver, version \d+\.\d+\.\d+\n", cli("--version"))


def test_what_a_server_does_by_itself_is_nobodys_at_the_command_line(bare_cli, monkeypatch):
    """The audit log had `cli:root` beside a wrong password at the console, since root had started `serve`."""
    actors = []

    async def serve(services, _sockets, _announce, _admin_sockets):
        actors.append(services.actor)

    monkeypatch.setattr("licserver.serving.server.serve", serve)
    bare_cli("serve", "--port", "0")
    assert actors == [SYSTEM]


def test_what_changes_nothing_does_not_say_that_it_did(shop):
    """A license that is revoked already stays with its day and reason; one that is not is not reinstated."""
    key = issue(shop)
    assert shop("license", "reinstate", key).startswith("not revoked, and not changed: CP-")
    shop("license", "revoke", key, "--reason", "first")
    again = shop("license", "revoke", key, "--reason", "second")
    assert again.startswith("revoked before, on 20")
    assert "and not changed: CP-" in again
    assert shown(shop, key)["revoked_reason"] == "first"
    assert shop("license", "reinstate", key).startswith("reinstated CP-")


def test_a_key_for_a_lifetime_that_is_to_expire(shop):
    """The message names the option that ends the lifetime."""
    key = issue(shop, "--lifetime")
    assert "add --no-lifetime" in shop("license", "change", key, "--expires", "2027-01-01", expect=2)
    shop("license", "change", key, "--expires", "2027-01-01", "--no-lifetime")
    assert shown(shop, key)["expires_on"] == "2027-01-01"


def test_an_import_whose_columns_have_other_names(shop, tmp_path):
    """The product was given, and the message asked for it; it names the option that maps columns."""
    sheet = tmp_path / "keys.csv"
    sheet.write_text("key,email\nABCD-1,ann@example.com\n", "utf-8")
    shop("import", str(sheet), "--product", "app", expect=2)
    assert "'product'" not in shop.errors
    assert "--map key=license_key" in shop.errors


def test_root_learns_that_the_owner_cannot_read_its_python(bare_cli, monkeypatch):
    """Root's Python is in root's home: the reason, and no traceback about some module."""
    users = iter([0, 65534, 65534])

    def get_command(*_: object):
        raise ModuleNotFoundError("No module named 'tty'")

    monkeypatch.setattr("licserver.cli._user_id", lambda: next(users))
    monkeypatch.setattr("licserver.cli.LazyCommands.get_command", get_command)
    printed = bare_cli("license", "list", expect=1)
    assert "who cannot read this Python below" in printed
    assert len(printed.splitlines()) == 1
