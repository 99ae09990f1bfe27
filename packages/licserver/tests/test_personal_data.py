"""One person's data: found in every table, exported as one document, and erased for good."""

import io
import json
import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa

from harness import sales, shops
from harness.engines import both_engines
from licserver.cli.common import confirm
from licserver.database import engine
from licserver.database.engine import Database
from licserver.database.repositories import erasure
from licserver.database.repositories.personal_columns import OTHERS, PERSON, is_text, person_columns
from licserver.database.repositories.personal_data import PersonalDataRepository
from licserver.database.repositories.tokens import IdempotencyKey
from licserver.database.tables import metadata
from licserver.database.tables.access import account_codes, idempotency_keys
from licserver.database.tables.events import jobs, webhook_events
from licserver.database.tables.licenses import activations, audit, license_words, licenses, slot_moves, trials
from licserver.database.tables.sales import sale_events
from licserver.domain.personal_data import AddressPattern, find_addresses, fold_address, is_address
from licserver.domain.records import ActorKind, LicenseTerms
from licserver.errors import LicserverError, NotFoundError
from licserver.services import personal_data
from licserver.services.personal_data import FILE
from licserver.services.tokens import Response

ANN = "Ann.Jones@example.com"
BOB = "bob@example.com"
TERMS = LicenseTerms(customer_email=ANN, slots=3)

# --- the list of places -----------------------------------------------------------------------


def test_each_column_with_text_is_classed() -> None:
    """A column that is added is named as one that may hold a person, or as one that holds none."""
    unclassed, both = [], []
    for table in metadata.tables.values():
        person, others = (names.get(table.name, "").split() for names in (PERSON, OTHERS))
        texts = [column.name for column in table.columns if is_text(column)]
        both += [f"{table.name}.{name}" for name in set(person) & set(others)]
        if not table.name.startswith("sale_"):  # there, whatever is not named may hold a person
            unclassed += [f"{table.name}.{name}" for name in texts if name not in {*person, *others}]
        assert {*person, *others} <= {*texts}, table.name
    assert (unclassed, both) == ([], [])


COLUMNS = [(table.name, column.name) for table in metadata.sorted_tables for column in person_columns(table)]


def fill(column: sa.Column[Any], world: Any, number: int) -> Any:
    """Return a value for a column of a row that a test makes."""
    type_ = column.type.impl_instance if isinstance(column.type, sa.types.TypeDecorator) else column.type
    for key in column.foreign_keys:
        with world.services.database.reading() as connection:
            return connection.scalar(sa.select(key.column).limit(1))
    match type_:
        case sa.DateTime():
            return world.clock() + timedelta(microseconds=number if column.primary_key else 0)
        case sa.Date():
            return world.clock().date()
        case sa.Boolean():
            return False
        case sa.Integer() | sa.BigInteger():
            return number
        case sa.LargeBinary():
            return number.to_bytes(16)
        case _:
            return f"t{number}"[: type_.length or 100]


CHOICES = {
    ("audit", "actor_kind"): "cli",
    ("jobs", "state"): "done",
    ("jobs", "due_at"): None,
    ("sale_events", "state"): "done",
    ("receipts", "user_id"): None,
    ("audit", "details"): "{}",
    ("jobs", "payload"): "{}",
}


def plant(world: Any, table: str, column: str, text: str, number: int = 1007) -> None:
    """Add a row with a text to a table; of a license that belongs to nobody, with all that it refers to."""
    target = metadata.tables[table]
    _make_parents(world)
    row = {}
    for column_ in target.columns:
        if column_.name == column:
            row[column_.key] = text
        elif (table, column_.name) in CHOICES:
            row[column_.key] = CHOICES[table, column_.name]
        elif not column_.nullable or column_.primary_key or (table, column_.name) == ("receipts", "token_id"):
            row[column_.key] = fill(column_, world, number)
    with world.services.database.writing() as connection:
        connection.execute(target.insert().values(row))


def _make_parents(world: Any) -> None:
    with world.services.database.reading() as connection:
        if connection.scalar(sa.select(sa.func.count()).select_from(metadata.tables["webhook_endpoints"])):
            return
    world.key(customer_email="nobody@example.org")
    world.services.webhooks.add("https://hooks.example/in")
    with world.services.database.writing() as connection:
        for name in ("sale_sources", "webhook_events", "jobs", "tokens"):
            target = metadata.tables[name]
            if connection.scalar(sa.select(sa.func.count()).select_from(target)):
                continue
            row = {
                column.key: CHOICES.get((name, column.name), _simple(column, world))
                for column in target.columns
                if not column.nullable or (name, column.name) in CHOICES
            }
            row |= {"scope": "write"} if name == "tokens" else {}
            connection.execute(target.insert().values(row))


def _simple(column: sa.Column[Any], world: Any) -> Any:
    type_ = column.type.impl_instance if isinstance(column.type, sa.types.TypeDecorator) else column.type
    if isinstance(type_, sa.DateTime):
        return world.clock()
    if isinstance(type_, sa.Boolean):
        return False
    if isinstance(type_, sa.Integer | sa.BigInteger):
        return 1
    return b"x" if isinstance(type_, sa.LargeBinary) else "x"


def all_texts(world: Any) -> Iterator[tuple[str, str]]:
    """Yield every text of the database, with its place."""
    with world.services.database.reading() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(sa.select(table)).mappings():
                for column in table.columns:
                    value = row[column]
                    if isinstance(value, bytes):
                        value = value.decode("latin-1")
                    if isinstance(value, str):
                        yield f"{table.name}.{column.name}", value


def holding(world: Any, email: str) -> list[str]:
    """Return where an address still is."""
    pattern = AddressPattern(email)
    return sorted({place for place, text in all_texts(world) if pattern.is_in(text)})


@both_engines
@pytest.mark.parametrize("keep", [False, True], ids=["all", "keep"])
def test_an_address_in_any_column_is_exported_and_erased(world, keep):
    """Planted in each column that may hold a person, beside one that only ends like it."""
    for number, (table, column) in enumerate(COLUMNS, 1007):
        key = next(column_ for column_ in metadata.tables[table].columns if column_.name == column)
        limit = getattr(key.type, "length", None)
        if limit is not None and limit < 40:  # no address fits
            continue
        text = f"bo{ANN} {ANN.upper()}, of {BOB}"
        is_json = (table, column) in {("audit", "details"), ("jobs", "payload"), ("webhook_events", "body")}
        plant(world, table, column, json.dumps({"x": text}) if is_json else text, number)
    document = world.services.personal_data.export(ANN)
    exported = {
        (table, name)
        for table, rows in document["records"].items()
        for row in rows
        for name, value in row.items()
        if ANN.casefold() in json.dumps(value, ensure_ascii=False).casefold()
    }
    planted = {(table, column) for table, column in COLUMNS if exported & {(table, column)}}
    missing = {name_ for name_ in COLUMNS if name_ not in planted}
    assert missing <= {("licenses", "customer_language")}
    json.loads(json.dumps(document))
    world.services.personal_data.erase(ANN, keep_licenses=keep)
    assert holding(world, ANN) == []
    assert holding(world, f"bo{ANN}") != []
    assert holding(world, BOB) != []
    with pytest.raises(NotFoundError):
        world.services.personal_data.export(ANN)
    with pytest.raises(NotFoundError):
        world.services.personal_data.erase(ANN)


# --- what belongs to a license -----------------------------------------------------------------


@pytest.fixture
def sold(world, activate):
    """Two licenses of Ann's, one of Bob's, and what they have caused."""
    world.services.webhooks.add("https://hooks.example/in")
    keys = [
        world.key(customer_email=address, slots=3, note=f"call {address}")
        for address in (ANN, ANN.lower(), BOB)
    ]
    for key in keys:
        activate(key, "laptop.example", "192.0.2.7")
        activate(key, "desk.example", "192.0.2.8")
        license_ = world.services.licenses.get(key)
        world.services.moves.deactivate(license_, "desk.example")
    return world, keys


def rows_of(world: Any, table: sa.Table, *where: Any) -> list[Any]:
    """Return the rows of a table."""
    with world.services.database.reading() as connection:
        return list(connection.execute(sa.select(table).where(*where)).mappings())


@both_engines
def test_licenses_stay_as_numbers_without_a_person(sold):
    """They go on working with their slots; nothing names the person, and Bob's are as they were."""
    world, (first, second, other) = sold
    ids = [world.services.licenses.get(key).id for key in (first, second)]
    before = world.services.licenses.get(other)
    world.services.personal_data.erase(ANN, keep_licenses=True)
    for key, license_id in zip((first, second), ids, strict=True):
        found = world.services.licenses.get(key)
        assert (found.id, found.customer_email, found.note, found.revoked_at) == (
            license_id,
            None,
            None,
            None,
        )
        assert found.slots_used == 1
    assert rows_of(world, license_words, license_words.c.license_id.in_(ids)) == []
    lines = rows_of(world, audit, audit.c.object_id.in_([id_.hex() for id_ in ids]))
    assert {row["details"] for row in lines} == {"{}"}
    assert not any(id_.hex() in row["body"] for row in rows_of(world, webhook_events) for id_ in ids)
    assert not any(id_.hex() in row["payload"] for row in rows_of(world, jobs) for id_ in ids)
    assert world.services.licenses.get(other) == before
    assert world.services.personal_data.export(BOB)["records"]["licenses"][0]["license_key"] == other
    (line,) = rows_of(world, audit, audit.c.action == "customer.erase")
    assert ANN not in line["details"]


def test_a_license_of_another_customer_that_names_the_address_is_not_handed_out(world, activate):
    """A note about a gift, and a computer with her address as its name: only that text, and no key of his."""
    own, other = (
        world.key(customer_email=ANN),
        world.key(customer_email=BOB, note=f"a gift of {ANN}", slots=2),
    )
    activate(other, ANN, "192.0.2.7")
    records = world.services.personal_data.export(ANN)["records"]
    license_id = world.services.licenses.get(other).id.hex()
    by_id = {record["id"]: record for record in records["licenses"]}
    assert by_id.pop(license_id) == {"id": license_id, "note": f"a gift of {ANN}"}
    assert [record["license_key"] for record in by_id.values()] == [own]
    assert records["activations"] == [{"license_id": license_id, "domain": ANN}]
    assert not {BOB, other, "192.0.2.7"} & set(re.split(r'["\s]', json.dumps(records)))


D = "d@corp.example"
END_ALIKE = [f"{before}{D}" for before in ("r&", "x/", "q=", "a!", "d'", "o\u0301", "m\u200d", "R&")]


@both_engines
def test_customers_whose_addresses_end_alike_are_others(world):
    """The key of r&d@ was handed to d@, and deleted with it (found by an attack)."""
    others = {email: world.key(customer_email=email, note=f"for {email}") for email in END_ALIKE}
    own = world.key(customer_email=D)
    shared = world.key()
    is_it = licenses.c.id == world.services.licenses.get(shared).id
    with world.services.database.writing() as connection:  # as a shop sends it
        connection.execute(licenses.update().where(is_it).values(customer_email=f"{D},{BOB}"))
    records = world.services.personal_data.export(D)["records"]["licenses"]
    assert [record["license_key"] for record in records if "license_key" in record] == [own]
    world.services.personal_data.erase(D)
    with pytest.raises(NotFoundError):
        world.services.licenses.get(own)
    for email, key in others.items():
        assert world.services.licenses.get(key).customer_email == email
    assert world.services.licenses.get(shared).customer_email.endswith(f",{BOB}")  # hers alone it is not
    assert D not in world.services.licenses.get(shared).customer_email


@both_engines
def test_each_spelling_of_a_domain_is_the_same_customer(world):
    """Mail to all of them goes to one mailbox; a restore erased what an erasure had left."""
    spellings = [
        "cara@bücher.example",
        "Cara@BÜCHER.example",
        "cara@b\u00fccher.\uff45xample",
        "cara@xn--bcher-kva.example",
    ]
    keys = [world.key(customer_email=email, note=f"of {email}") for email in spellings]
    records = world.services.personal_data.export(spellings[0])["records"]["licenses"]
    assert {record["license_key"] for record in records} == {*keys}
    world.services.personal_data.erase(spellings[3])
    assert not [text for _, text in all_texts(world) if "cara@" in text.casefold()]


def test_no_spelling_is_left_in_the_files(world, monkeypatch):
    """They are searched for each one that was stored, in capitals that are not of ASCII as well."""
    searched = list[set[bytes]]()
    monkeypatch.setattr(Database, "holds", lambda _, texts: searched.append({*texts}))
    world.key(customer_email="cara@BÜCHER.example")
    world.services.personal_data.erase("cara@bücher.example")
    stored = "cara@BÜCHER.example".encode().lower()
    assert [stored in texts for texts in searched] == [True]


@both_engines
def test_licenses_are_deleted_with_all_that_belongs_to_them(sold):
    """Verify does not know them any more; what a shop has sold stays as a number, revoked."""
    world, (first, second, other) = sold
    ids = {key: world.services.licenses.get(key).id for key in (first, second, other)}
    with world.services.database.writing() as connection:
        position = {"source": "shop", "order_id": "4711", "item": "app", "number": 0}
        connection.execute(
            metadata.tables["sale_licenses"].insert().values(**position, license_id=ids[second])
        )
        connection.execute(
            trials.insert().values(
                product_id=world.services.licenses.get(first).product_id,
                machine=b"m" * 16,
                license_id=ids[first],
                address=b"",
                started_at=world.clock(),
            )
        )
    world.services.personal_data.erase(ANN)
    assert rows_of(world, licenses, licenses.c.id == ids[first]) == []
    for table in (activations, slot_moves, license_words):
        assert rows_of(world, table, table.c.license_id == ids[first]) == []
    (machine,) = rows_of(world, trials)
    assert machine["license_id"] is None
    kept = world.services.licenses.get(second)
    assert (kept.customer_email, kept.note) == (None, None)
    assert kept.revoked_at is not None
    assert world.services.licenses.get(other).customer_email == BOB


@both_engines
def test_what_is_encrypted_is_found_as_well(make_world):
    """Codes that were asked for, mails, and responses that are kept for a day."""
    world = make_world(mail_host="mail.example", mail_sender="a@example.com")
    world.key(customer_email=ANN)
    world.services.customer_sign_in.send_code(ANN, "192.0.2.1")
    world.services.mail.send_test(ANN)
    _make_parents(world)
    with world.services.database.reading() as connection:
        token_id = connection.scalar(sa.select(metadata.tables["tokens"].c.id))
    key = IdempotencyKey(ActorKind.TOKEN, token_id, "order", b"d" * 32)
    world.services.run_once(key, lambda: None, lambda *_: Response(201, json.dumps({"email": ANN}).encode()))
    world.services.personal_data.erase(ANN, keep_licenses=True)
    assert rows_of(world, account_codes) == []
    assert rows_of(world, idempotency_keys) == []
    assert [row for row in rows_of(world, jobs) if "encrypted" in row["payload"]] == []


@both_engines
def test_a_delivery_of_a_shop_is_not_processed_any_more(world):
    """One that waits is ignored; one that was done stays known, so that it is not taken a second time."""
    _make_parents(world)
    for number, state in enumerate(("waiting", "done"), 1020):
        plant(world, "sale_events", "content", json.dumps({"email": ANN}), number)
        with world.services.database.writing() as connection:
            connection.execute(sa.update(sale_events).where(sale_events.c.id == number).values(state=state))
    world.services.personal_data.erase(ANN)
    states = {row["id"]: row["state"] for row in rows_of(world, sale_events) if row["id"] >= 1020}
    assert states == {1020: "ignored", 1021: "done"}
    assert all(json.loads(row["content"]) for row in rows_of(world, sale_events) if row["id"] >= 1020)


# --- restores ----------------------------------------------------------------------------------


ODD = [
    *(
        "हिन्दी@example.com",
        "hans@हिन्दी.example",
        "lo\u200dve@example.com",
        'o"brien@example.com',
        "a(b)@example.com",
    ),
    *("x:y@example.com", "[z]@example.com", "l" * 140 + "@example.com"),
]


@pytest.mark.slow
def test_a_restore_erases_again(bare_cli, tmp_path):
    """By hashes that need the secrets; what came after the erasure stays."""
    bare_cli("product", "add", "app", "--name", "App")
    for email in (ANN, BOB, *ODD):
        bare_cli("license", "issue", "app", "--email", email)
    bare_cli("backup", str(tmp_path / "old.tar"))
    for email in ODD:
        bare_cli("customer", "erase", email, "--yes")
    result = json.loads(bare_cli("customer", "erase", ANN, "--yes", "--json"))
    assert result["tables"]["licenses"] == 1
    assert ANN.casefold() not in (bare_cli.folder / FILE).read_text("utf-8").casefold()
    assert "no data is stored" in bare_cli("customer", "export", ANN, expect=2)
    bare_cli("license", "issue", "app", "--email", ANN)
    bare_cli("backup", str(tmp_path / "new.tar"))
    bare_cli("restore", str(tmp_path / "old.tar"), "--force")
    assert f"erased again: {1 + len(ODD)} addresses" in bare_cli.errors
    assert "no data is stored" in bare_cli("customer", "export", ANN, expect=2)
    assert json.loads(bare_cli("customer", "export", BOB))["records"]["licenses"]
    bare_cli("restore", str(tmp_path / "new.tar"), "--force")
    assert "erased again" not in bare_cli.errors
    assert len(json.loads(bare_cli("customer", "export", ANN))["records"]["licenses"]) == 1
    (bare_cli.folder / FILE).unlink()
    bare_cli("restore", str(tmp_path / "old.tar"), "--force")
    assert f"erased again: {1 + len(ODD)} addresses" in bare_cli.errors
    for file in tmp_path.glob("*.tar"):
        file.unlink()


@pytest.mark.slow
def test_a_restore_elsewhere_names_the_list(bare_cli, tmp_path):
    """On a new machine nothing tells which customers have been erased since the backup."""
    hint = f"to erase them again, copy {FILE}"
    bare_cli("product", "add", "app", "--name", "App")
    bare_cli("license", "issue", "app", "--email", ANN)
    bare_cli("backup", str(tmp_path / "old.tar"))
    bare_cli("customer", "erase", ANN, "--yes")
    erased = (bare_cli.folder / FILE).read_text("utf-8")
    bare_cli("restore", str(tmp_path / "old.tar"), "--force")
    assert hint not in bare_cli.errors
    elsewhere = tmp_path / "elsewhere"
    bare_cli("restore", str(tmp_path / "old.tar"), "--data-dir", str(elsewhere))
    assert hint in bare_cli.errors
    (elsewhere / FILE).write_text(erased, "utf-8")
    assert "1 address" in bare_cli("customer", "erase-again", "--data-dir", str(elsewhere))
    assert "no data is stored" in bare_cli("customer", "export", ANN, "--data-dir", str(elsewhere), expect=2)
    (tmp_path / "old.tar").unlink()


def test_a_damaged_list_is_named(bare_cli, tmp_path):
    """Nothing is restored that may have to be erased."""
    bare_cli("product", "add", "app", "--name", "App")
    bare_cli("backup", str(tmp_path / "old.tar"))
    (bare_cli.folder / FILE).write_text("[", "utf-8")
    assert FILE in bare_cli("restore", str(tmp_path / "old.tar"), "--force", expect=2)
    (tmp_path / "old.tar").unlink()


@pytest.mark.slow
def test_the_document_can_be_a_file(bare_cli, tmp_path):
    """Nobody else may read it; it is never overwritten."""
    bare_cli("product", "add", "app", "--name", "App")
    bare_cli("license", "issue", "app", "--email", ANN)
    bare_cli("customer", "export", ANN, "--out", str(tmp_path / "ann.json"))
    assert json.loads((tmp_path / "ann.json").read_text("utf-8"))["email"] == ANN
    assert (tmp_path / "ann.json").stat().st_mode & 0o77 == 0
    bare_cli("customer", "export", ANN, "--out", str(tmp_path / "ann.json"), expect=2)
    assert json.loads(bare_cli("customer", "export", ANN, "--out", "-"))["email"] == ANN
    (tmp_path / "ann.json").unlink()
    assert "not a valid email address" in bare_cli("customer", "erase", "ann", "--yes", expect=2)


def test_erasing_asks_first(bare_cli):
    """Without a terminal nothing is erased: a script says that it means it."""
    bare_cli("product", "add", "app", "--name", "App")
    bare_cli("license", "issue", "app", "--email", ANN)
    assert "add --yes" in bare_cli("customer", "erase", ANN, expect=2)
    assert json.loads(bare_cli("customer", "export", ANN))["records"]["licenses"]


@pytest.mark.parametrize(("typed", "done"), [("n\n", False), ("\n", False), ("y\n", True)])
def test_who_does_not_agree_is_told_that_nothing_was_changed(typed, done, monkeypatch, capsys):
    """It was no interruption."""
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    if done:
        confirm("Erase?", "")
    else:
        with pytest.raises(LicserverError, match="nothing was changed"):
            confirm("Erase?", "")
    assert "Erase? [y/N]" in capsys.readouterr().err


# --- addresses in text --------------------------------------------------------------------------

JOERG = "jörg@exämple.org"


@pytest.mark.parametrize(
    "text",
    [
        *(
            ANN,
            f"<{ANN}>",
            f"'{ANN}'",
            f"mailto:{ANN}.",
            f"({ANN.upper()})",
            f"{ANN}, x",
            "q=ann.jones%40example.com&",
        ),
        *("to%3Dann.jones%40example.com", json.dumps(f"x\n{ANN}\ty"), json.dumps({"email": ANN})),
    ],
)
def test_an_address_is_found_in_text(text):
    """As it stands in mails, URLs and JSON, which stays JSON."""
    pattern = AddressPattern(ANN)
    assert pattern.is_in(text)
    erased = pattern.erase(text)
    assert not pattern.is_in(erased)
    assert "[erased]" in erased
    if text[0] in '{"':
        json.loads(erased)
    assert any(fold_address(address) == fold_address(ANN) for address in find_addresses(text))


@pytest.mark.parametrize(
    "text",
    [
        "bo" + ANN,
        "x." + ANN,
        "x+" + ANN,
        ANN + ".au",
        ANN + "mon",
        ANN + "-x",
        "o'" + ANN,
        "ann.jones@example.org",
        "",
        None,
    ],
)
def test_another_address_is_left(text):
    """It belongs to another owner."""
    assert not AddressPattern(ANN).is_in(text)


@pytest.mark.parametrize(
    "text", [JOERG, "jörg@xn--exmple-cua.org", json.dumps(JOERG), "j%C3%B6rg@ex%C3%A4mple.org"]
)
def test_an_international_address_is_found_in_each_form(text):
    """With letters or A-labels, in JSON and in URLs."""
    assert AddressPattern(JOERG).is_in(text)
    assert AddressPattern("jörg@xn--exmple-cua.org").is_in(text)
    assert fold_address("jörg@xn--exmple-cua.org") == fold_address(JOERG)


def test_an_address_of_anything_is_no_pattern():
    """Lengths are bounded, and what has no domain is refused."""
    assert is_address("x" * 60 + "@example.com")
    for text in (
        "x" * 300 + "@example.com",
        "ann",
        "@example.com",
        "ann@",
        "a b@example.com",
        "a\n@example.com",
    ):
        assert not is_address(text)
    assert AddressPattern("a@" + "ä" * 60 + ".example").is_in("a@" + "ä" * 60 + ".example")


# --- admin API and console ------------------------------------------------------------------------


async def test_the_admin_api_exports_and_erases(site, world, api):
    """With a token that may write; the address is in no path."""
    key = world.key(customer_email=ANN)
    status, document = await api("POST", "/customers/export", {"email": ANN.upper()})
    assert (status, document["records"]["licenses"][0]["license_key"]) == (200, key)
    status, erased = await api("POST", "/customers/erase", {"email": ANN, "keep_licenses": True})
    assert (status, erased["keep_licenses"], erased["tables"]["licenses"]) == (200, True, 1)
    status, problem = await api("POST", "/customers/export", {"email": ANN})
    assert (status, "o data is stored" in problem["detail"]) == (404, True)
    assert (await api("POST", "/customers/erase", {"email": "ann"}))[0] == 422


async def test_the_console_asks_before_it_erases(world, alice):
    """What would be erased is counted; the file is saved, and only then."""
    world.key(customer_email=ANN)
    await alice.get(f"/console/customers?email={ANN}")
    text = await alice.post("/console/customers/export", email=ANN)
    assert json.loads(text)["email"] == ANN
    await alice.get(f"/console/customers?email={ANN}")
    text = await alice.post("/console/customers/erase", email=ANN)
    assert "cannot be undone" in text
    assert holding(world, ANN) != []
    text = await alice.post("/console/customers/erase", email=ANN, sure="yes")
    assert "All data of the customer is erased." in text
    assert holding(world, ANN) == []


@both_engines
def test_sales_that_are_called_by_an_address_stay_apart(world, monkeypatch):
    """A shop of one's own may take the address as the number of an order or a subscription.

    Erased by the same word, a second order of the kind could not be erased at all, and the subscriptions of
    two people became one: its end ended both.
    """
    monkeypatch.setenv("STANDARD_SECRET", shops.SECRETS["standard"])
    sales.add(world, "standard")
    people = ("ka@zed.example", "kb@zed.example")
    for person in people:
        names = {"customer_email": person, "external_id": "app", "subscription_id": person}
        for order in (person, f"{person}-2"):
            body = shops.standard("purchase.completed", order_id=order, **names)
            sales.process(world, "standard", body)
    assert len(sales.licenses(world)) == 4
    for person in people:
        assert world.services.personal_data.erase(person, keep_licenses=True)
    by_subscription = {}
    for license_ in sales.licenses(world):
        by_subscription.setdefault(license_.subscription_id, []).append(license_)
    assert sorted(map(len, by_subscription.values())) == [2, 2]


@both_engines
def test_an_order_that_is_called_by_an_erased_address_issues_no_second_key(world, monkeypatch):
    """Also one of another customer: the shop delivers it again, and it is still the same order."""
    monkeypatch.setenv("STANDARD_SECRET", shops.SECRETS["standard"])
    sales.add(world, "standard")
    ordered = {"order_id": f"gift for {ANN}", "external_id": "app"}
    sales.process(world, "standard", shops.standard("purchase.completed", **ordered, customer_email=BOB))
    (before,) = sales.licenses(world)
    world.services.personal_data.erase(ANN)
    again = shops.standard("purchase.completed", **ordered, customer_email=BOB, customer_language="de")
    sales.process(world, "standard", again)
    sales.process(world, "standard", shops.standard("purchase.refunded", order_id=ordered["order_id"]))
    (after,) = sales.licenses(world)
    assert (after.id, after.revoked_at is not None) == (before.id, True)
    assert holding(world, ANN) == []


# --- many licenses -------------------------------------------------------------------------------


class KilledError(Exception):
    """The process ends."""


@pytest.fixture
def small_batches(monkeypatch):
    """Three rows, and two licenses, in each transaction."""
    monkeypatch.setattr(erasure, "BATCH", 3)
    monkeypatch.setattr(personal_data, "BATCH", 3)
    monkeypatch.setattr(personal_data, "_LICENSES", 2)


def _kill_at(monkeypatch: pytest.MonkeyPatch, kill: int, *, is_committed: bool) -> None:
    """End the process within or after one of the transactions that write."""
    calls, writing = count(), Database.writing

    @contextmanager
    def dying(database: Database) -> Iterator[sa.Connection]:
        is_last = next(calls) == kill
        with writing(database) as connection:
            yield connection
            if is_last and not is_committed:
                raise KilledError
        if is_last:
            raise KilledError

    monkeypatch.setattr(Database, "writing", dying)


@pytest.mark.slow
@both_engines
@pytest.mark.parametrize("keep", [False, True], ids=["all", "keep"])
def test_an_erasure_that_is_killed_anywhere_goes_on(sold, monkeypatch, small_batches, keep):
    """Within and after each of its transactions; the next one erases the rest, and nobody else's data."""
    world, (first, second, other) = sold
    ids = [world.services.licenses.get(key).id for key in (first, second)]
    with world.services.database.writing() as connection:
        position = {"source": "shop", "order_id": ANN, "item": "app", "number": 0}
        connection.execute(metadata.tables["sale_licenses"].insert().values(**position, license_id=ids[1]))
    others, kills = world.services.licenses.get(other), 0
    for kill in range(0, 200, 3):
        with monkeypatch.context() as patched, suppress(NotFoundError):
            _kill_at(patched, kill // 2, is_committed=kill % 2 == 1)
            try:
                world.services.personal_data.erase(ANN, keep_licenses=keep)
                break
            except KilledError:
                kills += 1
    assert kills > 5
    with suppress(NotFoundError):
        world.services.personal_data.erase(ANN, keep_licenses=keep)
    assert holding(world, ANN) == []
    assert world.services.licenses.get(other) == others
    hexes = [license_id.hex() for license_id in ids]
    for place, text in all_texts(world):
        if place in {"jobs.payload", "webhook_events.body"} and "license.revoked" not in text:
            assert not any(hex_id in text for hex_id in hexes), place
    lines = rows_of(world, audit, audit.c.object_id.in_(hexes), audit.c.action != "license.revoke")
    assert {row["details"] for row in lines} <= {"{}"}
    assert [row["license_id"] for row in rows_of(world, metadata.tables["sale_licenses"])] == [ids[1]]
    assert ANN.casefold() not in (world.settings.data_dir / FILE).read_text("utf-8").casefold()


@both_engines
def test_an_erasure_of_many_licenses_takes_turns(world, activate, monkeypatch):
    """No transaction has more than a batch of rows; what apps store meanwhile is erased as well."""
    ((*keys,),) = world.services.licenses.issue_batches("app", TERMS, 250)
    sizes, erase, slots = [], erasure.PersonEraser.erase, iter(keys)

    def watched(worker, connection, table, rows):
        sizes.append(len(rows))
        return erase(worker, connection, table, rows)

    erase_rows = PersonalDataRepository.erase

    def beside(repository, table, rows, worker):
        count_ = erase_rows(repository, table, rows, worker)
        activate(next(slots), "late.example", "192.0.2.9")
        return count_

    monkeypatch.setattr(erasure.PersonEraser, "erase", watched)
    monkeypatch.setattr(PersonalDataRepository, "erase", beside)
    counts = world.services.personal_data.erase(ANN)
    assert counts["licenses"] == 250
    assert counts["activations"] == len(keys) - len(list(slots)) > 1
    assert max(sizes) <= erasure.BATCH
    assert rows_of(world, licenses) == rows_of(world, activations) == []


def _sell_to_both(world: Any, count_: int) -> None:
    """Sell to two customers in turns, so that rows of both share pages that are split."""
    issue, draw = world.services.licenses.issue_batches, random.Random(1)
    for number in range(count_):
        for email in (ANN, BOB):
            note = f"call {email} about {number}" + "x" * draw.randrange(300)
            [*issue("app", LicenseTerms(customer_email=email, note=note), draw.randrange(1, 20))]


def _leave_in_gap(world: Any, text: str) -> None:
    """Leave a text where no row has it, as a split page may."""
    with closing(sqlite3.connect(world.services.database.file)) as connection, connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE split AS SELECT ? AS text UNION SELECT 'another'", (text,))
        connection.execute("DELETE FROM split WHERE text = ?", (text,))


@pytest.mark.slow
def test_nothing_of_an_erased_person_is_in_the_files(world):
    """Neither in free pages of the database nor in its log, nor in gaps of pages that were split."""
    _sell_to_both(world, 100)
    _leave_in_gap(world, f"moved {ANN}")
    database = world.services.database.file
    files = [database, database.with_name(f"{database.name}-wal")]
    assert any(ANN.encode() in file.read_bytes() for file in files)
    world.services.personal_data.erase(ANN)
    for file in files:
        content = file.read_bytes().lower()
        assert ANN.casefold().encode() not in content, file.name
        assert b"ann.jones" not in content, file.name
    assert BOB.encode() in database.read_bytes()


def test_a_large_file_is_not_written_anew_at_once(world, caplog, monkeypatch):
    """Apps could not be activated meanwhile: the vendor chooses the minute."""
    monkeypatch.setattr(personal_data, "_VACUUMED", 0)
    world.key(customer_email=ANN)
    _leave_in_gap(world, f"moved {ANN}")
    world.services.personal_data.erase(ANN)
    assert "VACUUM" in caplog.text
    world.services.database.vacuum()
    assert world.services.database.empty_log()
    assert ANN.casefold().encode() not in world.services.database.file.read_bytes().lower()


def test_a_reader_keeps_the_log(world, caplog, monkeypatch):
    """What was erased stays in it until the reader ends, and that is logged."""
    monkeypatch.setattr(engine, "_PATIENCE", 0.01)
    world.key(customer_email=ANN)
    with world.services.database.reading() as connection:
        connection.execute(sa.select(licenses)).all()
        world.services.personal_data.erase(ANN)
    assert "write-ahead log still has what was erased" in caplog.text
    assert world.services.database.empty_log()
