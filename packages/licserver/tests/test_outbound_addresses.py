"""Which addresses may be connected to when somebody else has chosen the host."""

import ipaddress

import pytest

from licserver.security.outbound_addresses import is_permitted, parse_address, read_host

DENIED = """
    0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1
    172.31.255.255 192.0.0.8 192.0.0.192 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.168.1.1
    192.175.48.1
    198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
    168.63.129.16
    :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:8.8.8.8 64:ff9b::a9fe:a9fe 64:ff9b:1::1
    100::1 2001::1 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe:: 2620:4f:8000::1 3fff::1
    4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1
"""
PERMITTED = """
    8.8.8.8 1.1.1.1 172.15.255.255 172.32.0.1 100.128.0.1 192.0.1.1 2606:4700::1 2a00:1450:4001::8
"""


@pytest.mark.parametrize("text", DENIED.split())
def test_an_address_that_leads_inside_is_denied(text):
    """Private, link-local, metadata, multicast, reserved, and those that have another one within."""
    assert not is_permitted(parse_address(text))


@pytest.mark.parametrize("text", PERMITTED.split())
def test_a_public_address_is_permitted(text):
    """Also right beside networks that are not."""
    assert is_permitted(parse_address(text))


def test_the_vendors_own_networks_are_permitted():
    """Those that are named, in either form, and no others."""
    own = (ipaddress.ip_network("10.1.0.0/16"), ipaddress.ip_network("fd00:1::/32"))
    assert all(
        is_permitted(parse_address(address), own) for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00:1::5")
    )
    assert not any(is_permitted(parse_address(address), own) for address in ("10.2.0.1", "fd00:2::5", "::1"))


@pytest.mark.parametrize("text", ["", "localhost", "2130706433", "1.2.3"])
def test_what_is_no_address_is_an_error(text):
    """A name was not resolved."""
    with pytest.raises(ValueError, match="does not appear to be"):
        parse_address(text)


@pytest.mark.parametrize(
    "host",
    ["", ".", "hooks..example", ".hooks.example", "hooks.example..", f"{'a' * 64}.example", "a." * 127 + "b"],
)
def test_a_name_that_no_resolver_takes_is_an_error(host):
    """A part is empty or too long, or the whole is."""
    with pytest.raises(ValueError, match=r"^$"):
        read_host(host)


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "0x7f000001",
            "127.0.0.1.",
            "localhost",
        ),
        *("LOCALHOST", "app.localhost", "::1", "::ffff:10.0.0.1", "10.1", "0", "169.254.169.254", "0x"),
    ],
)
def test_an_address_is_known_in_any_form(host):
    """Those of `inet_aton`, which systems accept."""
    address = read_host(host)
    assert address is not None
    assert not is_permitted(address)


@pytest.mark.parametrize(
    "host",
    ["hooks.example", "1.2.3.4.5", "256.1.1.1", "09.1", "1.2.3.456", "127.0.0.x", "4294967296", "1.16777216"],
)
def test_a_name_is_no_address(host):
    """It may lead anywhere, which is found out with each request."""
    assert read_host(host) is None


def test_a_public_address_is_one():
    """It needs no name."""
    assert [*map(str, map(read_host, ("8.8.8.8", "8.526344", "2606:4700::1111")))] == [
        *("8.8.8.8", "8.8.8.8", "2606:4700::1111")
    ]
