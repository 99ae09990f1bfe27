"""The texts of mails: six languages, the vendor's own, one mail for several keys, keys sent by hand."""

import json
import re
from dataclasses import fields
from datetime import date
from importlib.resources import files

import pytest
from jinja2 import Environment, meta

from licserver.domain.languages import LANGUAGES, find_language
from licserver.domain.records import IssuedLicense
from licserver.errors import BuryJobError, InvalidInputError, NotFoundError
from licserver.services.mail import _PRIVATE, FOR_VENDOR, MAX_KEYS, TEMPLATES
from licserver.services.mail_messages import format_day, format_html

SENDER = "Example Software <licenses@vendor.example>"
CUSTOMERS = sorted(TEMPLATES.keys() - FOR_VENDOR)


@pytest.fixture
def mail(make_world):
    """A world whose mail is only queued, with a page for customers."""
    return make_world(
        mail_host="mail.example",
        mail_sender=SENDER,
        mail_activations=True,
        mail_admin="me@vendor.example",
        account=True,
        base_url="https://licenses.vendor.example",
    )


@pytest.fixture
def own(mail):
    """The folder of the vendor's texts."""
    folder = mail.settings.data_dir / "templates" / "mail"
    (folder / "de").mkdir(parents=True)
    return folder


def texts(message):
    """The plain text and the HTML of a message."""
    return [part.get_content() for part in message.iter_parts()]


def sent(world):
    """The messages of all queued mails, the oldest first."""
    return [world.services.mail.render(job) for job in world.services.mail.list_jobs().items[::-1]]


@pytest.mark.parametrize("template", CUSTOMERS)
def test_every_mail_to_customers_has_six_languages(mail, template):
    """Each with its own words, the same values, and its way to write a day."""
    found = {code: mail.services.mail.preview(template, code) for code in LANGUAGES}
    assert len({message["Subject"] for message in found.values()} | {texts(found["en"])[0]}) > len(LANGUAGES)
    shown = {
        language: (
            len(re.findall("CP-X", text)),
            "123456" in text,
            "https://licenses.vendor.example/account" in text,
            format_day(date(2026, 6, 29), language) in f"{found[language]['Subject']} {text}",
        )
        for language, text in ((language_, texts(message)[0]) for language_, message in found.items())
    }
    assert len(set(shown.values())) == 1, shown
    assert all(f'<html lang="{language}">' in texts(message)[1] for language, message in found.items())


def test_a_customer_gets_mail_in_the_language_that_is_known(mail):
    """Of the license; of the page that a code was asked for on; else of the vendor's choice."""
    services = mail.services
    for language in ("de-AT", None):
        key = mail.key(customer_email="a@b.example", customer_language=language)
        services.mail.send_keys([services.vault.license_id(key)])
    services.mail.send_code("a@b.example", "1", "ja")
    services.mail.send_code("a@b.example", "1")
    services.mail.send_lost_keys("a@b.example")
    subjects = [message["Subject"] for message in sent(mail)]
    assert subjects == [
        "Ihr Lizenzschlüssel für App",
        "Your license key for App",
        "コード: 1",
        "Your code: 1",
        "Ihre Lizenzschlüssel",
    ]


def test_the_vendor_chooses_the_language_of_others(make_world):
    """Those whose language is not known; mails to the vendor stay in that of the console."""
    world = make_world(mail_host="mail.example", mail_sender=SENDER, mail_language="fr")
    assert world.services.mail.preview("sign_in_code")["Subject"] == "Votre code : 123456"
    assert world.services.mail.preview("sign_in_code", "es")["Subject"] == "Su código: 123456"
    assert world.services.mail.preview("test")["Subject"] == "A test of licserver"
    with pytest.raises(InvalidInputError, match="is not a valid language"):
        world.services.mail.preview("test", "../x")


@pytest.mark.parametrize(
    ("text", "language"),
    [("de", "de"), ("pt-BR", "pt"), ("zh_Hant_TW", "zh"), ("", None), ("German", None), ("d/../e", None)],
)
def test_languages(mail, text, language):
    """Of what shops and vendors write only the language is kept; anything else is refused."""
    assert find_language(text) == language
    if language or not text:
        found = mail.services.licenses.get(mail.key(customer_language=text))
        assert found.customer_language == language
    else:
        with pytest.raises(InvalidInputError, match="language must be a code"):
            mail.key(customer_language=text)


def test_templates_are_the_vendors_to_replace(mail, own):
    """A file counts from the next mail on, for its language or for all; HTML follows the text."""
    preview = mail.services.mail.preview
    (own / "new_computer.txt").write_text(
        "Subject: Hi {{ product }}\n\nHello <b>,\n\n    {{ page }}", "utf-8"
    )
    (own / "de" / "new_computer.txt").write_text("Subject: Neu\n\nHallo", "utf-8")
    german = preview("new_computer", "de")
    assert (german["Subject"], texts(german)[0]) == ("Neu", "Hallo\n")
    for language in ("en", "ja"):
        message = preview("new_computer", language)
        assert message["Subject"] == "Hi Example App"
        assert "Hello &lt;b&gt;" in texts(message)[1]
    (own / "new_computer.html").write_text("<p>{{ '<i>' }}</p>", "utf-8")
    assert texts(preview("new_computer", "ja"))[1] == "<p>&lt;i&gt;</p>\n"
    assert "Hallo" in texts(preview("new_computer", "de"))[1]  # not the HTML of another text
    with pytest.raises(NotFoundError):
        preview("../secrets")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("Subject: {{ domain }}", "'domain' is undefined"), ("Subject: {% if %}", "TemplateSyntaxError")],
)
def test_a_faulty_template_is_named(mail, own, text, problem):
    """With what is wrong; its mails wait for the vendor."""
    (own / "new_computer.txt").write_text(text, "utf-8")
    with pytest.raises(BuryJobError, match=rf"new_computer\.txt is faulty: {problem}"):
        mail.services.mail.preview("new_computer")


def test_html_is_the_same_text():
    """Paragraphs, and what is indented; nothing of it is markup."""
    html = format_html("Hello,\n<Ann>\n\nApp:\n    CP-1\n    CP-2\n\nBye\n", "en")
    code = '<p style="font-family: monospace; font-size: 1.2em">\nCP-1<br>\nCP-2</p>\n'
    paragraphs = f"<p>Hello,<br>\n&lt;Ann&gt;</p>\n<p>App:</p>\n{code}<p>Bye</p>\n"
    assert html == f'<!doctype html>\n<html lang="en"><body>\n{paragraphs}</body></html>\n'


# --- several keys -----------------------------------------------------------------------------


def issue(world, count, **terms: object):
    """Issue licenses of two products; returns ids and keys."""
    keys = [world.key("app" if number % 2 else "tool", **terms) for number in range(count)]
    return [world.services.vault.license_id(key) for key in keys], keys


def test_keys_of_one_purchase_are_one_mail(mail):
    """By product, each key once, in the order in which they were issued; not sent twice."""
    mail.product("tool")
    ids, keys = issue(mail, 5, customer_email="a@b.example", customer_language="de")
    assert [mail.services.mail.send_keys(ids) for _ in range(2)] == [1, 0]
    (message,) = sent(mail)
    assert message["Subject"] == "Ihre 5 Lizenzschlüssel"
    for text in texts(message):
        assert re.findall("CP-[A-Z0-9-]+", text) == [*keys[1::2], *keys[::2]]
    (job,) = mail.services.mail.list_jobs().items
    assert not any(key in json.dumps(job.payload) for key in keys)


def test_each_customer_of_several_gets_their_own_keys(mail):
    """And a license without an address gets no mail."""
    mail.product("tool")
    (first, _), (two, keys), (nobody, _) = (
        issue(mail, 2, customer_email=address) for address in ("a@b.example", "c@d.example", None)
    )
    assert mail.services.mail.send_keys([*first, *two, *nobody]) == 2
    changed = mail.services.licenses.change(keys[0], customer_email="new@d.example")
    assert changed.customer_email == "new@d.example"
    mail.services.licenses.revoke(mail.services.licenses.get(first[0].hex()).id.hex())
    found = {message["To"]: re.findall("CP-[A-Z0-9-]+", texts(message)[0]) for message in sent(mail)}
    assert {to: len(shown) for to, shown in found.items()} == {"a@b.example": 1, "new@d.example": 1}
    assert found["new@d.example"] == keys[:1]


# --- by hand ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_keys_that_are_issued_by_hand_are_mailed_if_wanted(cli, monkeypatch):
    """All in one mail; refused before a key is issued if it cannot be sent."""
    cli("product", "add", "app", "--name", "App")
    assert "mail is off" in cli("license", "issue", "app", "--email", "a@b.example", "--mail", expect=2)
    monkeypatch.setenv("LICSERVER_MAIL_SENDER", SENDER)
    monkeypatch.setenv("LICSERVER_MAIL_HOST", "mail.example")
    assert "with an e-mail address" in cli("license", "issue", "app", "--mail", expect=2)
    many = ("--count", str(MAX_KEYS + 1))
    assert "at most 1000" in cli(
        "license", "issue", "app", "--email", "a@b.example", "--mail", *many, expect=2
    )
    assert "not a valid email address" in cli(
        "license", "issue", "app", "--email", "a@b,c", "--mail", expect=2
    )
    assert json.loads(cli("license", "list", "--json")) == []
    about = ("--email", "a@b.example", "--language", "de-DE")
    keys = cli("license", "issue", "app", *about, "--count", "3", "--mail").split()
    assert len(keys) == 3
    (job,) = json.loads(cli("mail", "list", "--json"))
    assert (job["template"], job["state"]) == ("license_keys", "waiting")
    assert json.loads(cli("license", "show", keys[0], "--json"))["customer_language"] == "de"
    for _ in range(2):
        assert "sends it" in cli("mail", "key", keys[0])
    assert [mail_job["template"] for mail_job in json.loads(cli("mail", "list", "--json"))][:2] == [
        "license_key"
    ] * 2
    cli("license", "revoke", keys[0])
    assert "revoked, so its key is not mailed" in cli("mail", "key", keys[0], expect=2)
    assert "Lizenzschlüssel" in cli("mail", "preview", "license_keys", "--language", "de")


NAMED = {"code", "count", "endpoint", "host", "key", "license", "licenses", "page", "product", "reason"}
"""What mails name: drawn by the server, or chosen by the vendor. Of a license only its last day."""


def test_no_mail_names_what_a_client_has_chosen():
    """Neither ours, in any language, nor the values that a vendor's own text could name (D-263)."""
    folder = files("licserver.services") / "mail_templates"
    languages = [path for path in folder.iterdir() if path.is_dir()]
    ours = [file.read_text("utf-8") for language in languages for file in language.iterdir()]
    assert len(ours) > 30
    reader = Environment(autoescape=True)
    reader.filters["day"] = str
    for text in ours:
        assert meta.find_undeclared_variables(reader.parse(text)) <= NAMED
        assert set(re.findall(r"license\.([a-z_]+)", text)) <= {"expires_on"}
    assert {name for names in _PRIVATE.values() for name in names} <= NAMED
    chosen_by_clients = {"domain", "ip", "label", "app_version", "machine", "use_id", "seat_id"}
    assert not chosen_by_clients & {field.name for field in fields(IssuedLicense)}
