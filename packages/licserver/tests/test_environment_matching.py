"""What an owner's entry covers (D-04), and when an environment is known (D-03)."""

from itertools import product

import pytest

from licserver.domain.environments import (
    InvalidDomainError,
    InvalidEntryError,
    covers_domain,
    covers_ip,
    is_known,
    normalise_domain,
    parse_entry,
)
from licserver.domain.records import Environment, EnvironmentMatch, EnvironmentPolicy

STRICT, DOMAIN, EITHER = EnvironmentPolicy.STRICT, EnvironmentPolicy.DOMAIN, EnvironmentPolicy.EITHER

ENTRIES = {
    "domain": (" https://Example.ORG:8080/x", "example.org"),
    "pattern": ("*.Example.ORG.", "*.example.org"),
    "pattern with umlaut": ("*.bücher.example", "*.xn--bcher-kva.example"),
    "IPv4": ("192.0.2.7", "192.0.2.7"),
    "IPv4 in IPv6": ("::ffff:192.0.2.7", "192.0.2.7"),
    "IPv6": ("2001:DB8::1", "2001:db8::1"),
    "IPv6 in brackets": ("[2001:db8::1]", "2001:db8::1"),
    "network": ("203.0.113.0/24", "203.0.113.0/24"),
    "network, written by one of its hosts": ("203.0.113.9/24", "203.0.113.0/24"),
    "IPv6 network": ("2001:db8::/32", "2001:db8::/32"),
    "IPv4 network in IPv6": ("::ffff:203.0.113.0/120", "203.0.113.0/24"),
    "everything of IPv4": ("0.0.0.0/0", "0.0.0.0/0"),
    "installation id": ("Install-7", "install-7"),
}


@pytest.mark.parametrize(("typed", "kept"), ENTRIES.values(), ids=ENTRIES.keys())
def test_an_entry_is_kept_in_one_form(typed, kept):
    """However an owner writes an entry, it is kept in the form that is compared."""
    assert parse_entry(typed) == kept
    assert parse_entry(kept) == kept


WRONG = ["", "  ", "*", "*.", "*.*", "*.*.example.org", "a.*.example.org", "*example.org", "example.org/x"]
WRONG += [
    "203.0.113.0/33",
    "10.0.0.0/0",
    "2001:db8::/0",
    "2001:db8::/129",
    "203.0.113.0/",
    "a\x00b",
    "*.a\nb",
    "x" * 254,
    "fe80::1%eth0/64",
]


@pytest.mark.parametrize("typed", WRONG, ids=[repr(text[:20]) for text in WRONG])
def test_an_entry_that_means_nothing_is_refused(typed):
    """A pattern in the wrong place or half a network is an error for the owner, never stored."""
    with pytest.raises(InvalidEntryError):
        parse_entry(typed)


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("a.example,b.example", "is 2 entries"),
        ("a.example; b.example;c.example", "is 3 entries"),
        ("10.0.0.0/8 *.b.example", "is 2 entries"),
        ("192.0.2.7|2001:db8::/32", "is 2 entries"),
        ("https://a.example/ https://b.example/", "is 2 entries"),
        ("192.0.2.1-192.0.2.9", "is a range"),
        (".example.org", "write *.example.org"),
        ("256.1.1.1", "is not an address"),
        ("010.0.0.1", "is not an address"),
        ("10.0.0", "is not an address"),
    ],
)
def test_an_entry_that_would_never_match_is_refused(typed, advice):
    """privkeyio/wisp#173, MISP/MISP#6211: it was stored, and the computer of the list took a slot."""
    with pytest.raises(InvalidEntryError) as error:
        parse_entry(typed)
    assert advice in str(error.value)


@pytest.mark.parametrize("typed", ["anna's mac", "build, 2nd floor", "mac-pro", "mac.local bob", "a" * 3000])
def test_the_name_of_an_installation_may_have_separators(typed):
    """Only several entries are a list; what is too long is refused as a domain."""
    if len(typed) > 253:
        with pytest.raises(InvalidEntryError, match="at most 253"):
            parse_entry(typed)
    else:
        assert parse_entry(typed) == typed


def test_entries_follow_the_ipv6_prefix():
    """Where environments are distinguished by prefix, an owner's address means its prefix."""
    assert parse_entry("2001:db8:1:2::7", 64) == "2001:db8:1:2::"
    assert parse_entry("2001:db8:1:2:3::/96", 64) == "2001:db8:1:2::/64"
    assert parse_entry("2001:db8::/32", 64) == "2001:db8::/32"
    assert parse_entry("192.0.2.7/32", 64) == "192.0.2.7/32"


COVERS_DOMAIN = {
    "same": ("example.org", "example.org", True),
    "sub-domain of a plain entry": ("example.org", "a.example.org", False),
    "sub-domain": ("*.example.org", "a.example.org", True),
    "sub-sub-domain": ("*.example.org", "a.b.example.org", True),
    "the domain itself": ("*.example.org", "example.org", False),
    "only looks like it": ("*.example.org", "badexample.org", False),
    "the suffix of another": ("*.example.org", "example.org.evil.com", False),
    "bare dot": ("*.example.org", ".example.org", False),
    "network": ("203.0.113.0/24", "203.0.113.0/24x", False),
}


@pytest.mark.parametrize(("entry", "domain", "covered"), COVERS_DOMAIN.values(), ids=COVERS_DOMAIN.keys())
def test_a_pattern_covers_what_is_below_it(entry, domain, covered):
    """`*.` stands for one or more whole labels, never for none and never for part of one."""
    assert covers_domain(entry, domain) is covered


COVERS_IP = {
    "same": ("192.0.2.7", "192.0.2.7", True),
    "neighbour": ("192.0.2.7", "192.0.2.8", False),
    "in the network": ("203.0.113.0/24", "203.0.113.255", True),
    "past the network": ("203.0.113.0/24", "203.0.114.0", False),
    "other family": ("0.0.0.0/0", "2001:db8::1", False),
    "IPv6": ("2001:db8::/32", "2001:db8:ffff::1", True),
    "a domain covers no address": ("example.org", "192.0.2.7", False),
    "a pattern covers no address": ("*.2.7", "192.0.2.7", False),
}


@pytest.mark.parametrize(("entry", "ip", "covered"), COVERS_IP.values(), ids=COVERS_IP.keys())
def test_a_network_covers_its_addresses(entry, ip, covered):
    """An address entry covers itself, a network what is in it, and a domain no address at all."""
    assert covers_ip(entry, ip) is covered


SITE = Environment("site.example", "192.0.2.7")
HALVES = {  # how each half may be known: by an activation, by an owner's entry, or not at all
    "domain": {
        "new": ((), False),
        "activated": ((), True),
        "entry": (("site.example",), False),
        "pattern": (("*.example",), False),
        "others'": (("other.example", "*.site.example"), False),
    },
    "ip": {
        "new": ((), False),
        "activated": ((), True),
        "entry": (("192.0.2.7",), False),
        "network": (("192.0.2.0/24",), False),
        "others'": (("192.0.2.8", "198.51.100.0/24"), False),
    },
}
UNKNOWN = {"new", "others'"}


@pytest.mark.parametrize("policy", EnvironmentPolicy, ids=lambda policy: policy.value)
@pytest.mark.parametrize(("by_domain", "by_ip"), list(product(HALVES["domain"], HALVES["ip"])))
def test_each_policy_asks_for_its_halves(policy, by_domain, by_ip):
    """`strict` wants both halves, `domain` the domain, `either` one; how each became known is all one."""
    (entries, domain), (more_entries, ip) = HALVES["domain"][by_domain], HALVES["ip"][by_ip]
    domain_known, ip_known = by_domain not in UNKNOWN, by_ip not in UNKNOWN
    expected = {STRICT: domain_known and ip_known, DOMAIN: domain_known, EITHER: domain_known or ip_known}
    known = is_known(SITE, policy, entries + more_entries, EnvironmentMatch(domain, ip))
    assert known is expected[policy]


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("https://[::1/x", "https://[::1/x"),
        ("https:// x", "https:// x"),
        ("https:///x", "https:///x"),
        ("https://ann@a\u2105.example/x", "a\u2105.example"),
        ("\u1100\u1161" * 20 + ".example", "xn--" + ("\uac00" * 20).encode("punycode").decode() + ".example"),
    ],
)
def test_what_names_no_host_is_kept_as_text(typed, stored):
    """A name of many letters is mapped if its composed form has few."""
    assert normalise_domain(typed) == stored


def test_a_pasted_file_is_no_domain():
    """It is refused before anything is done with it."""
    with pytest.raises(InvalidDomainError, match="at most 253 characters"):
        normalise_domain(" " * 100_000)
