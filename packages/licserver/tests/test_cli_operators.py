"""The command line in an operator's hands: what is mistyped, what is read, what a program gets."""

import json
import re

import click
import pytest

from licserver.cli import licserver


@pytest.fixture
def shop(cli):
    """A vendor with the product `app`."""
    cli("product", "add", "app", "--name", "App")
    return cli


def parsed(record):
    """Parse what a command printed as JSON."""
    return json.loads(record)


def test_lists_of_commands_are_whole_sentences(bare_cli):
    """The help of a group of commands cuts no sentence off."""
    groups = [name for name in licserver.commands if hasattr(licserver.get_command(None, name), "commands")]
    assert len(groups) >= 9
    for group in groups:
        _, heading, commands = bare_cli(group, "--help").partition("Commands:")
        assert heading, group
        assert "..." not in commands, group


def list_commands(command):
    """Return a command, and all below it."""
    names = command.list_commands(None) if isinstance(command, click.Group) else []
    below = [list_commands(command.get_command(None, name)) for name in names]
    return [command, *(found for commands in below for found in commands)]


def test_an_argument_with_a_choice_has_a_name():
    """The error of a wrong one was `Invalid value for '{follow|leave|issued}'`."""
    arguments = [
        argument
        for command in list_commands(licserver)
        for argument in command.params
        if isinstance(argument, click.Argument) and isinstance(argument.type, click.Choice)
    ]
    assert {argument.metavar for argument in arguments} == {"ANSWER", "ROLE", "TEMPLATE"}


def test_an_empty_folder_name_is_no_folder(bare_cli, tmp_path, monkeypatch):
    """`--data-dir "$UNSET"` would make an installation, with secrets, in whatever folder one stands in."""
    monkeypatch.chdir(tmp_path)
    assert "the name is empty" in bare_cli("product", "list", "--data-dir", "", expect=2)
    assert list(tmp_path.iterdir()) == []


def test_words_are_taken_as_help_shows_them(shop):
    """Help writes `N|UNLIMITED` and `YYYY-MM-DD|NEVER`; so it may be typed."""
    key = shop("license", "issue", "app", "--slots", "UNLIMITED", "--expires", "2027-01-31").strip()
    shop("license", "change", key, "--expires", "NEVER")
    shown = parsed(shop("license", "show", key, "--json"))
    assert (shown["slots"], shown["expires_on"]) == ("unlimited", None)


def test_the_audit_log_says_what_was_changed(shop):
    """For people each detail has its name; a bare `[1, 3]` would be of anything."""
    key = shop("license", "issue", "app").strip()
    shop("license", "change", key, "--slots", "3")
    text = shop("audit", "--license", key)
    assert "slots: 1 → 3" in text
    assert "product: app" in text
    latest, *_ = parsed(shop("audit", "--license", key, "--json"))
    assert latest["details"] == {"slots": [1, 3]}


def test_a_list_names_the_customer_and_has_one_kind_of_value(shop):
    """Who is found by a mail address is shown with it; for programs `expires_on` is a day or null."""
    terms = ("--lifetime", "--email", "ann@shop.example")
    shop("license", "issue", "app", *terms)
    text = shop("license", "find", "ann")
    assert "ann@shop.example" in text
    assert "lifetime" in text
    (found,) = parsed(shop("license", "find", "ann", "--json"))
    (listed,) = parsed(shop("license", "list", "--json"))
    assert found == listed
    assert (found["expires_on"], found["lifetime"]) == (None, True)
    assert found["customer_email"] == "ann@shop.example"


def test_a_product_added_with_the_wrong_policy_is_mended(shop):
    """`domain` is the default, and `strict` is for web sites: it is changed later, and the rest stays."""
    output = shop("product", "change", "app", "--environment", "strict")
    assert output == "changed app: App\n"
    changed = parsed(
        shop("product", "change", "app", "--support-policy", "--name", "App II", "--yes", "--json")
    )
    assert (changed["environment"], changed["support_policy"]) == ("strict", True)
    assert changed["name"] == "App II"
    shop("product", "change", "app", "--no-support-policy")
    (product,) = parsed(shop("product", "list", "--json"))
    assert (product["environment"], product["support_policy"]) == ("strict", False)
    assert "environment: domain → strict" in shop("audit")
    assert "there is nothing to change" in shop("product", "change", "app", expect=2)
    assert "no product 'nope'" in shop("product", "change", "nope", "--name", "X", expect=2)


def test_a_password_needs_a_terminal_or_a_pipe_that_was_asked_for(shop, recwarn):
    """In a script the way out is named, instead of a warning that what is typed can be seen."""
    assert "--password-stdin" in shop("user", "add", "alice", expect=2)
    assert not recwarn.list
    shop("user", "add", "alice", "--password-stdin", stdin="four words of it\n")
    (user,) = parsed(shop("user", "list", "--json"))
    assert set(user) == {"user", "role", "added_at", "password_changed_at", "second_factor"}


@pytest.mark.sampled(5, "way", "text")
@pytest.mark.parametrize(
    "text",
    [
        "\ufeffproduct,slots,expires_on\r\napp,3,\r\n",
        "\ufeffproduct;slots;expires_on\r\napp;3;\r\n",
        "product\tslots\texpires_on\napp\t3\t\n",
        '"product";"slots";"expires_on"\r\n"app";"3";""\r\n',
    ],
    ids=["comma", "semicolon", "tab", "quoted"],
)
@pytest.mark.parametrize("way", ["file", "pipe"])
def test_what_a_spreadsheet_saves_is_taken(shop, tmp_path, way, text):
    """With its byte order mark, its line ends and its country's separator; from a file and from a pipe."""
    sheet = tmp_path / "sheet.csv"
    sheet.write_bytes(text.encode())
    if way == "file":
        shop("import", str(sheet))
    else:
        shop("import", "-", "--format", "csv", stdin=text)
    (license_,) = parsed(shop("license", "list", "--json"))
    assert license_["slots"] == 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "line 1: the first line must name the fields"),
        (
            "product,slots,expires_on,subscription_ended_at\napp,,,2026-01-01\n",
            "subscription_ended_at: needs subscription",
        ),
        ("product,slots,expires_on,revoked_reason\napp,,,refund\n", "revoked_reason: needs revoked_at"),
        ("product,slots,lifetime\napp,,\nnope,,\n", "1 line with errors"),
        ("product,slots,lifetime\nx,,\nnope,,\n", "2 lines with errors"),
    ],
)
def test_what_means_nothing_is_not_imported(shop, tmp_path, text, complaint):
    """An empty file is a slip; half of a pair would be dropped, or be an end that nobody can take back."""
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(text, "utf-8")
    assert complaint in shop("import", str(sheet), expect=2)
    assert parsed(shop("license", "list", "--json")) == []


def test_a_strange_header_is_answered_with_the_way_out(shop, tmp_path):
    """The columns that the file has, and the options that map them; a license is not taken for a header."""
    sheet = tmp_path / "sheet.csv"
    for header in ("Produkt;Lizenzschlüssel;Kunde", "Product name,License Key"):
        sheet.write_text(f"{header}\nFoto Labor,abc\n", "utf-8")
        refused = shop("import", str(sheet), expect=2)
        assert "--map COLUMN=FIELD" in refused
        assert all(repr(column) in refused for column in re.split("[;,]", header))
    for line in ("foto,abcd-efgh-ijkl-mnop", "foto,XKCDABC,ann@example.com", "foto,slartibartfast"):
        sheet.write_text(f"{line}\n", "utf-8")
        refused = shop("import", str(sheet), expect=2)
        assert "--map COLUMN=FIELD" in refused
        assert not any(cell in refused for cell in line.split(","))
    sheet.write_text("product,slots,lifetime,Serial\nFoto Labor,1,no,x\n", "utf-8")
    assert "'Serial'; map other names with --map COLUMN=FIELD" in shop("import", str(sheet), expect=2)
    sheet.write_text("license_key,slots,lifetime\n,1,no\n", "utf-8")
    assert "add --product SLUG" in shop("import", str(sheet), expect=2)
    sheet.write_text("product,slots,lifetime\nFoto Labor,1,no\n", "utf-8")
    assert "add --product 'Foto Labor'=SLUG" in shop("import", str(sheet), expect=2)
    shop("import", str(sheet), "--product", "Foto Labor=app")


def test_lines_without_a_key_are_warned_of(shop, tmp_path):
    """Imported again, they would be new licenses again; lines with a key are not."""
    sheet = tmp_path / "sheet.jsonl"
    sheet.write_text('{"product": "app"}\n' * 2)
    terms = ("--slots", "1", "--expires", "never")
    shop("import", str(sheet), *terms, "--dry-run")
    assert "warning: 2 lines have no key: each import issues new licenses for them\n" in shop.errors
    keys = shop("import", str(sheet), *terms).split()
    assert "warning: 2 lines have no key" in shop.errors
    sheet.write_text('{"product": "app"}\n')
    assert parsed(shop("import", str(sheet), *terms, "--dry-run", "--json"))["without_key"] == 1
    assert "warning: 1 line has no key: each import issues a new license for it\n" in shop.errors
    sheet.write_text("".join(f'{{"product": "app", "license_key": "{key}"}}\n' for key in keys))
    shop("import", str(sheet), *terms)
    assert "no key" not in shop.errors


def test_one_is_one(shop, tmp_path):
    """Sentences count as people do."""
    sheet = tmp_path / "sheet.csv"
    sheet.write_text("product,slots,lifetime\napp,1,no\n", "utf-8")
    assert "\n1 license can be imported; nothing" in shop("import", str(sheet), "--dry-run")
    shop("import", str(sheet))
    out = tmp_path / "out.csv"
    assert "exported 1 license into" in shop("export", str(out))
    out.unlink()  # it holds a key
    assert "backed up 1 product, 1 license, 0 activations, 0 files;" in shop(
        "backup", str(tmp_path / "all.backup")
    )
