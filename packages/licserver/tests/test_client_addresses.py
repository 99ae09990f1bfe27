"""Which address a call came from, and when two addresses are the same (D-05)."""

from ipaddress import ip_address, ip_network
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from licserver.domain import environments
from licserver.domain.environments import client_ip, normalise_ip, parse_ip, parse_network, provider_network
from licserver.settings import StandaloneSettings
from licserver.web.client_addresses import ClientAddresses

ADDRESSES = {
    "IPv4": ("192.0.2.7", "192.0.2.7"),
    "IPv6": ("2001:DB8:0:0::1", "2001:db8::1"),
    "IPv4 in IPv6": ("::ffff:192.0.2.7", "192.0.2.7"),
    "IPv4 in IPv6, in hexadecimal": ("::FFFF:c000:207", "192.0.2.7"),
    "IPv4-compatible is another thing": ("::192.0.2.7", "::c000:207"),
    "unspecified": ("0.0.0.0", "0.0.0.0"),  # noqa: S104 - read, not listened on
    "empty": ("", None),
    "blank around": (" 192.0.2.7", None),
    "newline": ("192.0.2.7\n", None),
    "leading zero": ("192.0.2.07", None),
    "three numbers": ("192.0.2", None),
    "too large": ("192.0.2.256", None),
    "a number": ("3221225991", None),
    "hexadecimal": ("0xc0000207", None),
    "network": ("192.0.2.0/24", None),
    "port": ("192.0.2.7:80", None),
    "brackets": ("[2001:db8::1]", None),
    "zone": ("fe80::1%eth0", None),
    "empty zone": ("fe80::1%", None),
    "other digits": ("١٩٢.0.2.7", None),
    "lone surrogate": ("192.0.2.\udcff", None),
    "host name": ("localhost", None),
}


@pytest.mark.parametrize(("text", "read"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_an_address_is_exactly_one_address(text, read):
    """Only the two plain notations are an address, and IPv4 inside IPv6 is IPv4."""
    assert parse_ip(text) == (None if read is None else ip_address(read))


PREFIXES = {
    "whole": ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"),
    "64 bits": ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"),
    "48 bits": ("2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::"),
    "1 bit": ("ffff::1", 1, "8000::"),
    "IPv4 has no prefix": ("192.0.2.7", 64, "192.0.2.7"),
}


@pytest.mark.parametrize(("text", "prefix", "normal"), PREFIXES.values(), ids=PREFIXES.keys())
def test_ipv6_can_be_distinguished_by_prefix(text, prefix, normal):
    """A provider's customer who moves within a prefix stays the same environment; IPv4 is compared whole."""
    address = parse_ip(text)
    assert address is not None
    assert normalise_ip(address, prefix) == normal


CUSTOMER, STRANGER = "198.51.100.7", "203.0.113.66"
PROXIES = [ip_network("10.0.0.0/8"), ip_network("2001:db8:ffff::/48")]
WALKS = {
    "no proxy: the header is somebody's claim": (CUSTOMER, [STRANGER], [], CUSTOMER),
    "a proxy that is not ours": (CUSTOMER, [STRANGER], PROXIES, CUSTOMER),
    "ours, no header": ("10.0.0.1", [], PROXIES, "10.0.0.1"),
    "ours, one hop": ("10.0.0.1", [CUSTOMER], PROXIES, CUSTOMER),
    "left of the customer stands a lie": ("10.0.0.1", [f"{STRANGER}, {CUSTOMER}"], PROXIES, CUSTOMER),
    "the lie names our own proxy": ("10.0.0.1", [f"10.9.9.9, {CUSTOMER}"], PROXIES, CUSTOMER),
    "two of ours": ("10.0.0.1", [f"{STRANGER}, {CUSTOMER}, 10.0.0.2"], PROXIES, CUSTOMER),
    "two headers are one list": ("10.0.0.1", [STRANGER, f"{CUSTOMER}, 10.0.0.2"], PROXIES, CUSTOMER),
    "the second header is the nearer one": ("10.0.0.1", [CUSTOMER, STRANGER], PROXIES, STRANGER),
    "all hops ours": ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], PROXIES, "10.0.0.3"),
    "rubbish ends the walk": ("10.0.0.1", [f"{CUSTOMER}, rubbish, 10.0.0.2"], PROXIES, "10.0.0.2"),
    "rubbish at the right": ("10.0.0.1", [f"{CUSTOMER}, unknown"], PROXIES, "10.0.0.1"),
    "an empty hop ends the walk": ("10.0.0.1", [f"{CUSTOMER},, 10.0.0.2"], PROXIES, "10.0.0.2"),
    "an empty header": ("10.0.0.1", [""], PROXIES, "10.0.0.1"),
    "a hop with a port": ("10.0.0.1", [f"{CUSTOMER}:4711"], PROXIES, CUSTOMER),
    "a hop with a port that is none": ("10.0.0.1", [f"{CUSTOMER}:471100"], PROXIES, "10.0.0.1"),
    "a hop in brackets": ("10.0.0.1", ["[2001:db8::1]"], PROXIES, "2001:db8::1"),
    "a hop in brackets with a port": ("10.0.0.1", ["[2001:db8::1]:4711"], PROXIES, "2001:db8::1"),
    "a hop with a zone": ("10.0.0.1", ["fe80::1%eth0"], PROXIES, "10.0.0.1"),
    "IPv6 proxy": ("2001:db8:ffff::1", [CUSTOMER], PROXIES, CUSTOMER),
    "IPv6 customer": ("10.0.0.1", ["2001:DB8::7"], PROXIES, "2001:db8::7"),
    "our proxy, seen as IPv4 in IPv6": ("::ffff:10.0.0.1", [CUSTOMER], PROXIES, CUSTOMER),
    "a hop as IPv4 in IPv6": ("10.0.0.1", [f"::ffff:{CUSTOMER}"], PROXIES, CUSTOMER),
    "one of ours as IPv4 in IPv6": ("10.0.0.1", [f"{CUSTOMER}, ::ffff:10.0.0.2"], PROXIES, CUSTOMER),
    "no address at all (a Unix socket)": ("", [CUSTOMER], PROXIES, ""),
}


@pytest.mark.parametrize(("peer", "header", "trusted", "found"), WALKS.values(), ids=WALKS.keys())
def test_the_address_is_the_right_most_hop_that_is_no_proxy_of_ours(peer, header, trusted, found):
    """Nothing that a caller writes into X-Forwarded-For makes it another caller."""
    assert client_ip(peer, header, trusted) == found


def test_of_a_long_header_the_end_is_read():
    """Not more than 32 hops, which is more than proxies stand in a row: the others cost nothing."""
    assert client_ip("10.0.0.1", [CUSTOMER, *["10.0.0.2"] * 31], PROXIES) == CUSTOMER
    assert client_ip("10.0.0.1", [",".join([CUSTOMER, *["10.0.0.2"] * 32])], PROXIES) == "10.0.0.2"


ANY_HOP = st.one_of(st.ip_addresses().map(str), st.just("10.0.0.5"), st.text(max_size=10))


@given(st.lists(ANY_HOP.map(lambda hop: hop.replace(",", "")), max_size=6))
def test_what_the_caller_wrote_never_counts(claims):
    """Behind one trusted proxy, which appends what it saw, a caller is who it is whatever it claims."""
    header = ", ".join([*claims, CUSTOMER])
    assert client_ip("10.0.0.1", [header], PROXIES) == CUSTOMER


@given(st.ip_addresses(), st.lists(ANY_HOP, max_size=4))
def test_without_a_trusted_proxy_the_header_is_nothing(peer, claims):
    """With no proxies configured the connection's other end is the caller."""
    assert client_ip(str(peer), claims, []) == str(peer)


NETWORKS = {
    "an address": ("192.0.2.7", "192.0.2.7/32"),
    "a network": ("192.0.2.7/24", "192.0.2.0/24"),
    "all of IPv4, seen as IPv6": ("::ffff:0:0/96", "0.0.0.0/0"),
    "IPv4 in IPv6": ("::ffff:192.0.2.7/120", "192.0.2.0/24"),
    "more than IPv4 in IPv6": ("::ffff:0:0/95", "::fffe:0:0/95"),
}


@pytest.mark.parametrize(("text", "network"), NETWORKS.values(), ids=NETWORKS.keys())
def test_a_network_has_one_form(text, network):
    """Bits beyond the prefix are dropped, and IPv4 inside IPv6 is IPv4 (D-05)."""
    assert str(parse_network(text)) == network


@pytest.mark.parametrize("text", ["fe80::/10%eth0", "fe80::1%eth0", "x", "", "192.0.2.0/33"])
def test_an_invalid_network_is_rejected(text):
    """A zone is not part of one."""
    with pytest.raises(ValueError):  # noqa: PT011 - the caller replaces the message
        parse_network(text)


def request_from(peer, *forwarded: str):
    """What `ClientAddresses` reads of a request."""
    headers = CIMultiDict([("X-Forwarded-For", value) for value in forwarded])
    return SimpleNamespace(protocol=SimpleNamespace(peername=(peer, 1)), headers=headers)


def test_long_texts_are_not_remembered():
    """Whatever callers send, what is kept of it is small: what is too long for an address is forgotten."""
    before = len(environments._ADDRESSES)
    assert parse_ip("192.0.2.1" + "x" * 8000) is None
    assert len(environments._ADDRESSES) == before
    assert (
        str(parse_ip("2001:0db8:ffff:ffff:ffff:ffff:255.255.255.255"))
        == "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"
    )


@pytest.mark.parametrize(
    "forwarded",
    [[CUSTOMER], [f"{STRANGER}, {CUSTOMER}"], ["x" * 8000 + f", {CUSTOMER}"], [STRANGER] * 50 + [CUSTOMER]],
    ids=["one hop", "two hops", "a long claim before it", "many headers"],
)
def test_a_caller_is_found_behind_whatever_he_claims_and_little_of_it_is_kept(forwarded):
    """He writes what stands left of his address, 8 KB of it, anew each time: it fills no memory."""
    callers = ClientAddresses(StandaloneSettings(trusted_proxies=["10.0.0.1"]))
    for _ in range(2):
        assert callers.find(request_from("10.0.0.1", *forwarded)).ip == CUSTOMER
    kept = callers._known.cache_info().currsize
    assert kept == (1 if sum(map(len, forwarded)) < 100 else 0)


def test_however_many_addresses_are_read_few_are_remembered(monkeypatch):
    """What is kept of short texts is bounded as well."""
    monkeypatch.setattr(environments, "_MAX_CACHED", len(environments._ADDRESSES) + 10)
    for number in range(100):
        assert str(parse_ip(f"198.51.100.{number}")) == f"198.51.100.{number}"
    assert len(environments._ADDRESSES) <= environments._MAX_CACHED


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2::", "2001:db8:1::/48"),
        ("0.0.0.0", "0.0.0.0/24"),  # noqa: S104 - nobody listens
    ],
)
def test_what_a_network_is(address, network):
    """What a provider hands out to one customer, at most."""
    assert provider_network(address) == network
