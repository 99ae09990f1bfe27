"""Values that are rare, and that the pure modules read and write without a database or a server."""

import io
import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest

from licserver.domain.decisions import Offer
from licserver.domain.environments import InvalidDomainError, normalise_domain
from licserver.domain.mail_addresses import InvalidAddressError, parse_address, parse_sender
from licserver.domain.offers import ListedRelease, public_feed_license
from licserver.domain.personal_data import find_addresses, fold_address
from licserver.domain.records import Artifact, Product, Release, Rollout
from licserver.domain.text import describe_span
from licserver.protocol.conversion import Conversion, Quantity
from licserver.protocol.damaged_keys import describe_damage
from licserver.protocol.downloads import Span, parse_range
from licserver.protocol.feeds import (
    find_velopack_package,
    format_appcast,
    format_velopack_feed,
    license_required_response,
)
from licserver.protocol.file_signatures import FileSignatures
from licserver.protocol.license_files import read_rows
from licserver.protocol.public_api import decode_escapes, read_object
from licserver.protocol.seats import parse_seat

NOW = datetime(2026, 11, 1, tzinfo=UTC)
SIGNED = json.dumps(asdict(FileSignatures("sig", "minisig")))
RELEASE = Release(1, 7, "1.4.0", "", NOW, Artifact("App-1.4.0-full.nupkg", 1, b"0" * 32))
OFFER = Offer(Product(7, "app", "App"), RELEASE, public_feed_license(7), downloadable=True)


def test_a_domain_is_bounded_before_it_is_read():
    """A URL of more than 2,048 characters is refused by its length."""
    with pytest.raises(InvalidDomainError, match="253"):
        normalise_domain("https://a.example/" + "a" * 2_048)


def test_a_name_of_composed_letters_reaches_idna():
    """Thirty-six letters of Korean are twelve syllables; more than 32 characters are left as they are."""
    syllable = "\N{HANGUL CHOSEONG HIEUH}\N{HANGUL JUNGSEONG A}\N{HANGUL JONGSEONG NIEUN}"
    assert normalise_domain(syllable * 12 + ".example").startswith("xn--")
    assert normalise_domain("\N{CYRILLIC SMALL LETTER A}" * 33) == "\N{CYRILLIC SMALL LETTER A}" * 33


@pytest.mark.parametrize("domain", ["\N{ZERO WIDTH JOINER}.example", "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 33])
def test_a_mail_address_whose_domain_has_no_form_in_dns_is_refused(domain):
    """IDNA refuses the first; the second is too long to ask it."""
    with pytest.raises(InvalidAddressError):
        parse_address(f"ann@{domain}")


def test_a_sender_may_be_quoted():
    """As a mail program writes it."""
    assert parse_sender(r'"Acme, \"Inc.\"" <a@example.com>').name == 'Acme, "Inc."'


def test_an_address_without_a_form_in_dns_has_one_spelling():
    """And what only looks like an address is not reported."""
    for domain in ("\N{ZERO WIDTH JOINER}.example", "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 33):
        assert fold_address(f"ann@{domain}") == f"ann@{domain}"
    assert [*find_addresses("mailto=jo@example.com, x=@example.com")] == [
        "mailto=jo@example.com",
        "jo@example.com",
        "x=@example.com",
    ]


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(seconds=5), "0 minutes"),
        (timedelta(minutes=1), "1 minute"),
        (timedelta(hours=-3), "3 hours"),
        (timedelta(days=1, hours=2), "1 day"),
    ],
)
def test_a_span_has_one_unit(span, text):
    """The largest that it fills."""
    assert describe_span(span) == text


def test_a_key_as_a_spreadsheet_shortens_it_is_damaged():
    """Its last digits are lost."""
    assert "last digits are lost" in describe_damage("1.23E+15")


@pytest.mark.parametrize("slots", ["3", "unlimited"])
@pytest.mark.parametrize("quantity", Quantity)
def test_several_copies_of_unlimited_slots_are_unlimited(slots, quantity):
    """A number is multiplied, if they become one license."""
    columns = {"Key": "license_key", "Product": "product", "Slots": "slots", "Count": "quantity"}
    conversion = Conversion(
        now=NOW, columns=columns, products={"": "app"}, expires="never", quantity=quantity
    )
    text = f"Key,Product,Slots,Count\nABCD-1234,App,{slots},2\n"
    rows = [row for _, row in read_rows("csv", io.StringIO(text, newline=""), conversion)]
    is_one = quantity is Quantity.SLOTS
    assert [row.copies for row in rows] == [1 if is_one else 2]
    assert {row.slots for row in rows} == {None if slots == "unlimited" else 6 if is_one else 3}


def test_an_appcast_has_signed_releases_with_what_they_need():
    """A channel only on request, a rollout with its span, an important version; no unsigned one."""
    rollout = Rollout("7d", NOW)
    special = RELEASE._replace(
        channel="beta", rollout=rollout, critical_below="1.0", changelog="News", file_signatures=SIGNED
    )
    listed = [
        (ListedRelease(RELEASE), "https://a.example/1"),
        (ListedRelease(special, is_on_request=True, span=timedelta(days=7)), "https://a.example/2"),
    ]
    document = format_appcast("App", listed).decode()
    assert document.count("<item>") == 1
    for part in (
        "<sparkle:channel>beta</sparkle:channel>",
        '<sparkle:criticalUpdate sparkle:version="1.0"',
        "<sparkle:phasedRolloutInterval>86400</sparkle:phasedRolloutInterval>",
        'sparkle:format="plain-text">News<',
    ):
        assert part in document


@pytest.mark.parametrize(
    "offer",
    [
        None,
        OFFER._replace(downloadable=False),
        OFFER._replace(release=RELEASE._replace(artifact=Artifact("setup.exe", 1, b"0" * 32))),
    ],
)
def test_a_feed_of_velopack_is_empty_without_a_package(offer):
    """Nothing is offered, nothing may be downloaded, or the file is another one."""
    assert json.loads(format_velopack_feed(offer).content) == {"Assets": []}
    assert json.loads(format_velopack_feed(OFFER).content)["Assets"][0]["FileName"] == "App-1.4.0-full.nupkg"


def test_a_package_of_velopack_is_found_by_its_name():
    """The latest of its name; a withdrawn one is gone."""
    later, withdrawn = RELEASE._replace(id=2), RELEASE._replace(id=3, withdrawn_at=NOW)
    assert find_velopack_package([RELEASE, later, withdrawn], "App-1.4.0-full.nupkg") == later
    assert find_velopack_package([RELEASE], "another") is None
    assert license_required_response().status == 401


def test_a_body_of_many_values_counts_as_none():
    """Parsing them would cost more than the request."""
    assert read_object(b'{"a": [' + b"1," * 1_001 + b"1]}") == {}


def test_what_no_browser_sends_is_decoded_or_refused():
    """A text with other letters than ASCII, as in a form of a script; a lone percent sign."""
    with pytest.raises(ValueError, match="begins no escape"):
        decode_escapes("100%", errors="strict")
    assert (
        decode_escapes("\N{LATIN SMALL LETTER O WITH DIAERESIS}+%41")
        == "\N{LATIN SMALL LETTER O WITH DIAERESIS} A"
    )


@pytest.mark.parametrize(("value", "is_release"), [(True, True), (False, False), (None, False)])
def test_a_seat_is_released_by_true_alone(value, is_release):
    """Any other value would take the seat for the whole lease."""
    call = {"license_key": "k", "domain": "a.example", "seat": "0" * 32}
    assert parse_seat(json.dumps(call | {"release": value}).encode()).is_release is is_release
    for wrong in ("true", 1, 0, [], {}):
        refused = parse_seat(json.dumps(call | {"release": wrong}).encode())
        assert refused.errors == {"release": ["The release field must be true or false."]}


@pytest.mark.parametrize("first", ["136", "9" * 18, "9" * 19, "9" * 1_000])
def test_a_range_beyond_the_file_cannot_be_satisfied(first):
    """However long its number is."""
    assert parse_range(f"bytes={first}-", None, "e", 136) == Span(136, 0)
    assert parse_range(f"bytes=-{first}", None, "e", 136) == Span(0, 136)
    assert parse_range(f"bytes=1-{first}", None, "e", 136) == Span(1, 135)
