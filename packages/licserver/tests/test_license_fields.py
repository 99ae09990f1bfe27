"""No field of a license is forgotten: in database, files, backups, admin API, command line and console."""

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import Any

import click
import pytest

import licserver
from harness.engines import sqlite_only
from harness.transfer import ASSUMED
from licserver.cli.licenses import change, issue
from licserver.cli.sources import map_product
from licserver.database.repositories.sales import SourceMapping
from licserver.database.staging import COMPARED
from licserver.database.tables.licenses import licenses
from licserver.database.tables.sales import sale_mappings
from licserver.domain.records import TERMS, IssuedLicense, LicenseTerms
from licserver.protocol import license_files
from licserver.protocol.license_files import FORMATS, read_rows, to_line, write_head, write_row
from licserver.services.backup import write_backup
from licserver.services.installation import open_services
from licserver.services.license_imports import Existing
from licserver.services.restore import restore_backup
from licserver.settings import Settings
from licserver.shops import changes as shops_changes
from licserver.web.admin import schemas
from licserver.web.console.formatting import FIELDS

BY_TYPE = {
    int | None: 7,
    date | None: date(2031, 1, 2),
    tuple[str, ...]: ("*.example.org",),
    bool: False,  # a lifetime excludes a last day
    Mapping[str, Any] | None: {
        "export": False,
        "projects": 50,
        "region": "50",
        "sync": None,
        "scans": {"limit": 9, "per": "day"},
    },
}
TERMS_OF_ALL_KINDS = replace(
    LicenseTerms(
        **{field.name: BY_TYPE.get(field.type, f"the {field.name}") for field in fields(LicenseTerms)}
    ),
    customer_email="jo@example.com",
    customer_language="de",
    plan="pro",
    channels=("beta", "nightly"),
)
ELSEWHERE = {"id", "encrypted_key", "product_id", "slots_used"}
"""Of a license in another database: its own, or made there."""
API_NAMES = {"subscription_id": "subscription", "product_slug": "product"}
NOT_SHOWN = {"encrypted_key", "product_id"}
NOT_IN_CONSOLE = {"lifetime", "subscription_id", "allowed", "trial"}
"""Not in the form: shown on the page; the allow-list has forms of its own, and a trial is converted."""


NOT_ON_THE_ACCOUNT_PAGE = {
    *("allowed", "customer_email", "customer_language", "note", "plan", "overrides"),
    *("expires_on", "trial"),  # in the sentence of `find_term`
}
"""What customers do not see of their licenses, and what the page shows in another form."""
NOT_IN_MAILS = {
    *("slots", "lifetime", "support_until", "subscription_id", "allowed", "customer_email", "note"),
    *("customer_language", "plan", "overrides", "trial", "floating_seats", "channels"),
}
"""What only templates of the vendor use: they get the whole record."""
NOT_MAPPED = {
    *("customer_email", "customer_language", "note", "subscription_id"),  # come with the sale
    *("allowed", "channels", "overrides", "trial"),
}
"""What a mapping of a shop does not decide: licenses that are sold have the default."""
MAPPED_AS = {"expires_on": "expires_in", "support_until": "support"}
DOCS = Path(__file__).parents[3] / "docs"
SOURCE = Path(licserver.__file__).parent


def read(*paths: str) -> str:
    """The text of files of the package."""
    return "".join(path.read_text("utf-8") for pattern in paths for path in sorted(SOURCE.glob(pattern)))


def options(command: click.Command) -> set[str]:
    """The parameters of a command."""
    return {str(parameter.name) for parameter in command.params}


def places() -> dict[str, set[str]]:
    """Each place that a term is added to by hand, with what it has, or leaves out on purpose."""
    names = "|".join(TERMS)
    template = read("web/console/templates/license.html")
    account = read("web/account/pages.py", "web/account/app.py")
    mapped = {name: MAPPED_AS.get(name, name) for name in shops_changes.TERMS}
    unmapped = {*TERMS} - {*shops_changes.TERMS}
    return {
        "database/tables/licenses.py: a column": set(licenses.columns.keys()),
        "database/migrations/versions: a step that adds the column": set(
            re.findall(rf"Column\(\s*\"({names})\"", read("database/migrations/versions/*.py"))
        ),
        "web/admin/schemas.py, LicenseTermFields: what is sent": {
            *schemas.LicenseTermFields.model_fields,
            "subscription_id",
        },
        "web/admin/schemas.py, LicenseResponse: what is returned": {
            *schemas.LicenseResponse.model_fields,
            "subscription_id",
        },
        "cli/licenses.py: an option of `license issue`": options(issue),
        "cli/licenses.py: an option of `license change`": options(change) | {"subscription_id", "allowed"},
        "web/console/formatting.py, FIELDS: the forms": {field.term for field in FIELDS} | NOT_IN_CONSOLE,
        "web/console/templates/license.html: the page": set(re.findall(rf"license\.({names})\b", template)),
        "web/account/pages.py: the customer's page, or NOT_ON_THE_ACCOUNT_PAGE here": set(
            re.findall(rf"license_\.({names})\b", account)
        )
        | NOT_ON_THE_ACCOUNT_PAGE,
        "shops/contract.py, Terms: what a mapping decides, or NOT_MAPPED here": {
            *shops_changes.TERMS,
            *NOT_MAPPED,
        },
        "database/repositories/sales.py, SourceMapping": {
            name
            for name, field in mapped.items()
            if field in {field_.name for field_ in fields(SourceMapping)}
        }
        | unmapped,
        "database/tables/sales.py, sale_mappings": {
            name for name, field in mapped.items() if field in sale_mappings.columns
        }
        | unmapped,
        "cli/sources.py: an option of `source map`": {
            name for name, field in mapped.items() if field in options(map_product)
        }
        | unmapped,
        "services/mail_templates: our texts, or NOT_IN_MAILS here": set(
            re.findall(rf"license\.({names})\b", read("services/mail_templates/*/*.txt"))
        )
        | NOT_IN_MAILS,
        "docs/deploy.md, `import`: the field of a file": set(
            re.findall(rf"`({names})`", (DOCS / "deploy.md").read_text("utf-8"))
        )
        | {"subscription_id"},
        "docs/admin-api.md: the field": set(
            re.findall(rf"`({names})`", (DOCS / "admin-api.md").read_text("utf-8"))
        )
        | {"subscription_id"},
    }


def derived() -> dict[str, set[str]]:
    """Each place that follows from the record; here nothing is to be written."""
    return {
        "protocol/license_files.py: import and export": {*license_files.FIELDS, "subscription_id"},
        "database/staging.py: what an import compares": set(COMPARED),
    }


def test_each_term_is_in_each_place():
    """All that a new term needs, in one message."""
    missing = [
        f"{place}: {', '.join(left)}"
        for place, present in (places() | derived()).items()
        if (left := sorted(set(TERMS) - present))
    ]
    assert not missing, "\n".join(["these places lack a term", *missing])


def columns(record: IssuedLicense) -> dict[str, object]:
    """Every field of a license that is the same wherever it is."""
    return {
        field.name: getattr(record, field.name) for field in fields(record) if field.name not in ELSEWHERE
    }


@pytest.fixture
def license_(world):
    """A license whose fields all hold something."""
    world.services.plans.add("app", "pro", {"export": True})
    issued, _ = world.services.licenses.issue("app", TERMS_OF_ALL_KINDS)
    world.services.subscriptions.end(TERMS_OF_ALL_KINDS.subscription_id)
    return world.services.licenses.revoke(issued.id.hex(), "refund")


def test_each_field_has_its_column(license_):
    """The record has the table's columns and two values more, and what was issued is what is stored."""
    names = {field.name for field in fields(IssuedLicense)}
    assert names - {"product_slug", "slots_used"} == set(licenses.columns.keys())
    assert {name: getattr(license_, name) for name in TERMS} == {
        name: getattr(TERMS_OF_ALL_KINDS, name) for name in TERMS
    }
    assert [name for name in names if getattr(license_, name) is None] == []


def test_no_text_of_a_license_is_in_the_audit_log(world, license_):
    """A text may be personal data: the log has that it was changed, and neither its old nor its new value."""
    texts = {name: "other@example.com" for name in TERMS if isinstance(getattr(license_, name), str)}
    del texts["subscription_id"], texts["plan"]  # never changes, and is no text about a person
    texts["customer_language"] = "fr"
    world.services.licenses.change(license_.id.hex(), **texts)
    changed = world.services.audit.list_page().items[0].details
    assert changed == dict.fromkeys(texts, "changed")


@pytest.mark.parametrize("form", FORMATS)
def test_each_field_is_exported_and_imported(world, make_world, license_, form):
    """What another server imports is what this one has exported."""
    text = write_head(form) + "".join(write_row(form, row) for row in world.services.transfer.export())
    other = make_world().services
    other.plans.add("app", "pro", {})
    with other.transfer.start_import() as incoming:
        incoming.read(read_rows(form, io.StringIO(text)))
        assert incoming.problems == []
        incoming.commit()
    (imported,) = other.licenses.list_all()
    assert columns(imported) == columns(license_)


CHANGES = {name: getattr(TERMS_OF_ALL_KINDS, name) for name in TERMS} | {"lifetime": True, "trial": True}


def import_row(services, form, row, existing, leave_out=()):
    """Import a file of one row, maybe without some of its columns; return the changed names and problems."""
    names = [name for name in license_files.FIELDS if name not in leave_out]
    lines = (write_head(form) + write_row(form, row)).splitlines(keepends=True)
    if form == "csv":
        rows = [[line[name] for name in names] for line in csv.DictReader(lines)]
        text = "".join(map(to_line, [names, *rows]))
    else:
        text = json.dumps({name: value for name, value in json.loads(lines[0]).items() if name in names})
    with services.transfer.start_import() as incoming:
        incoming.read(read_rows(form, io.StringIO(text, newline=""), ASSUMED), existing)
        changed = {name for _, different in incoming.changes.values() for name in different}
        if not incoming.problems:
            assert incoming.commit() == 0
        return changed, [problem.message for problem in incoming.problems]


@pytest.mark.sampled(3, "form")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("term", TERMS)
def test_each_term_is_compared_and_changed_by_an_import(world, form, term):
    """Another value is a difference; `change` stores it, and a file without the column keeps it."""
    services = world.services
    services.plans.add("app", "pro", {})
    key = world.key(slots=2)
    (exported,) = services.transfer.export()
    row = replace(exported, **{term: CHANGES[term]})
    message = f"license_key: is in the database already, with other terms: {API_NAMES.get(term, term)}"
    assert import_row(services, form, row, Existing.REFUSE) == (set(), [message])
    changed, problems = import_row(services, form, row, Existing.CHANGE)
    if term == "subscription_id":
        assert problems == ["license_key: is in the database already; cannot change subscription"]
        return
    assert (changed, problems) == ({term}, [])
    assert getattr(services.licenses.get(key), term) == CHANGES[term]
    assert import_row(services, form, row, Existing.REFUSE) == (set(), [])  # again: nothing to do
    assert import_row(services, form, exported, Existing.CHANGE, {term}) == (set(), [])
    assert getattr(services.licenses.get(key), term) == CHANGES[term]
    assert import_row(services, form, exported, Existing.CHANGE) == ({term}, [])
    assert getattr(services.licenses.get(key), term) == getattr(exported, term)


@pytest.mark.parametrize("form", FORMATS)
def test_each_end_of_a_license_is_compared_and_changed_by_an_import(world, form):
    """A revocation comes with its reason, the end of a subscription for all of its licenses."""
    services = world.services
    key, other = world.key(subscription_id="sub-1"), world.key(subscription_id="sub-1")
    exported = next(row for row in services.transfer.export() if row.license_key == key)
    ended = replace(exported, subscription_ended_at=world.clock())
    assert import_row(services, form, ended, Existing.REFUSE)[1][0].endswith("terms: subscription_ended_at")
    assert import_row(services, form, ended, Existing.CHANGE) == ({"subscription_ended_at"}, [])
    assert [services.licenses.get(key_).subscription_ended_at for key_ in (key, other)] == [world.clock()] * 2
    assert import_row(services, form, exported, Existing.REFUSE) == (set(), [])  # blank: as the subscription
    revoked = replace(exported, revoked_at=world.clock(), revoked_reason="refund")
    assert import_row(services, form, revoked, Existing.CHANGE) == ({"revoked_at", "revoked_reason"}, [])
    assert services.licenses.get(key).revoked_reason == "refund"
    assert import_row(services, form, exported, Existing.CHANGE, {"revoked_at", "revoked_reason"}) == (
        set(),
        [],
    )
    assert services.licenses.get(key).revoked_at is not None
    assert import_row(services, form, exported, Existing.CHANGE) == ({"revoked_at"}, [])
    assert services.licenses.get(key).revoked_at is None


@pytest.mark.parametrize("form", FORMATS)
def test_an_end_replaces_the_other_one(world, form):
    """A file that has only one of the two columns changes a license that has the other one."""
    services = world.services
    key = world.key(lifetime=True)
    (exported,) = services.transfer.export()
    ends = replace(exported, expires_on=date(2031, 1, 2), lifetime=False)
    assert import_row(services, form, ends, Existing.CHANGE, {"lifetime"}) == ({"expires_on"}, [])
    assert (services.licenses.get(key).expires_on, services.licenses.get(key).lifetime) == (
        date(2031, 1, 2),
        False,
    )
    assert import_row(services, form, exported, Existing.CHANGE, {"expires_on"}) == ({"lifetime"}, [])
    assert (services.licenses.get(key).expires_on, services.licenses.get(key).lifetime) == (None, True)


@pytest.mark.slow
def test_each_field_is_backed_up(world, license_, tmp_path):
    """What is restored is what was there."""
    held = io.BytesIO()
    write_backup(world.services, held, world.clock())
    held.seek(0)
    settings = Settings(data_dir=tmp_path / "anew")
    restore_backup(held, settings)
    restored = open_services(settings, world.clock)
    assert [columns(issued) for issued in restored.licenses.list_all()] == [columns(license_)]
    restored.close()


async def test_each_field_is_in_the_admin_api(api, world):
    """It can be sent, changed and read."""
    world.services.plans.add("app", "pro", {})
    given = {API_NAMES.get(name, name): getattr(TERMS_OF_ALL_KINDS, name) for name in TERMS}
    sent = json.loads(json.dumps({"product": "app", **given}, default=date.isoformat))
    status, issued = await api("POST", "/licenses", sent)
    assert status == 201, issued
    assert {name: issued.get(name) for name in sent} == sent
    changed = {name: sent[name] for name in sent if name not in {"product", "subscription"}}
    assert schemas.LicenseChange.model_fields.keys() == changed.keys()
    status, after = await api("PATCH", f"/licenses/{issued['id']}", changed)
    assert (status, {name: after[name] for name in changed}) == (200, changed)
    names = {API_NAMES.get(field.name, field.name) for field in fields(IssuedLicense)} - NOT_SHOWN
    assert names <= issued.keys()


@sqlite_only
def test_each_field_is_on_the_command_line(cli):
    """It is shown, and there are options to issue and to change it."""
    cli("product", "add", "app", "--name", "App")
    issue, change = (cli("license", command, "--help") for command in ("issue", "change"))
    options = {"expires_on": "expires", "subscription_id": "subscription", "customer_email": "email"}
    options |= {"overrides": "grant", "customer_language": "language"}
    names = {name: options.get(name, name).replace("_", "-") for name in TERMS}
    names["allowed"] = "allow"
    assert [name for name, option in names.items() if f"--{option}" not in issue] == []
    unchangeable = [name for name, option in names.items() if f"--{option}" not in change]
    assert unchangeable == ["subscription_id", "allowed"]
    key = cli("license", "issue", "app").strip()
    shown = json.loads(cli("license", "show", key, "--json"))
    expected = (
        {API_NAMES.get(field.name, field.name) for field in fields(IssuedLicense)}
        - NOT_SHOWN
        - {"masked_key"}
    )
    assert expected - shown.keys() == set()


async def test_each_field_is_in_the_console(world, alice, license_):
    """It is in the forms, on the page and in the file."""
    assert {*TERMS} - {field.term for field in FIELDS} == NOT_IN_CONSOLE
    issue = await alice.get("/console/licenses/issue")
    page = await alice.get(f"/console/licenses/{license_.id.hex()}")
    listed = await alice.get("/console/licenses.csv")
    assert [field.name for field in FIELDS if f'name="{field.name}"' not in issue] == []
    assert [field.name for field in FIELDS if f'name="{field.name}"' not in page] == []
    texts = {name: text for name in TERMS if isinstance(text := getattr(license_, name), str)}
    assert [
        name for name, text in texts.items() if f"{text}</dd>" not in page and f"{text}, " not in page
    ] == []
    assert [name for name, text in texts.items() if text not in listed] == []
    (row,) = csv.DictReader(io.StringIO(listed.lstrip("\ufeff")))
    assert (row["floating seats"], row["allowed"], row["trial"]) == ("7", "*.example.org", "no")
