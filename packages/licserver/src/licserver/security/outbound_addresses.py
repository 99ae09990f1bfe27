"""Outbound addresses that the server may connect to for a host from user input (D-209).

Python's `is_global` is true for several networks that lead to internal hosts, such as NAT64 and 6to4.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_DENIED: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network; the unspecified address reaches this machine
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers' NAT; metadata of some clouds
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local; 169.254.169.254 is the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # IETF protocol assignments; metadata of one cloud
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "168.63.129.16/32",  # the host of one cloud's machines
    )
)
# Of IPv6 only 2000::/3 is assigned: addresses outside, such as ::1, fc00::/7, fe80::/10, fec0::/10,
# ff00::/8, 64:ff9b::/96, 64:ff9b:1::/48, 5f00::/16 and ::ffff:0:0/96, is denied without being listed.
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_DENIED_IPV6: Final = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # IETF protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which has an IPv4 address within
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)


_LOOPBACK: Final = {
    "localhost": "127.0.0.1",
    "localhost.localdomain": "127.0.0.1",
    "ip6-localhost": "::1",
    "ip6-loopback": "::1",
}
"""Names that systems have in /etc/hosts."""

_MAX_NAME: Final = 253  # characters of a name in DNS
_MAX_LABEL: Final = 63  # and between two of its dots
_OCTETS: Final = 4
_NUMBER: Final = re.compile(r"[0-9]{1,12}|0x[0-9a-f]{0,10}")


def parse_address(text: str) -> Address:
    """Parse an address from the system's resolver; raise `ValueError` for other text."""
    return ipaddress.ip_address(text.partition("%")[0])


def read_host(host: str) -> Address | None:
    """Parse a host that is an address, in any form that systems accept; None for a name.

    Raise `ValueError` for text that is neither: no resolver takes a name with an empty or a longer part.
    """
    host = host.lower().removesuffix(".")
    if host in _LOOPBACK or host.endswith(".localhost"):  # RFC 6761, 6.3
        return ipaddress.ip_address(_LOOPBACK.get(host, "127.0.0.1"))
    if ":" in host:
        return parse_address(host)
    parts = host.split(".")
    if len(host) > _MAX_NAME or not all(0 < len(part) <= _MAX_LABEL for part in parts):
        raise ValueError
    if len(parts) > _OCTETS or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    try:
        *first, last = (_read_number(part) for part in parts)
        if any(number > 255 for number in first) or last >= 256 ** (_OCTETS - len(first)):  # noqa: PLR2004
            return None
    except ValueError:  # 09
        return None
    leading = int.from_bytes(bytes(first)) << 8 * (_OCTETS - len(first)) if first else 0
    return ipaddress.IPv4Address(leading | last)


def _read_number(text: str) -> int:
    """Read a part of an IPv4 address as `inet_aton` does: 0x for hexadecimal, 0 for octal."""
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if len(text) > 1 and text[0] == "0" else 10)


def is_listed(address: Address, allowed: Sequence[Network]) -> bool:
    """Return whether an address is in the vendor's own networks."""
    plain = address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address
    return any(plain in network for network in allowed)


def is_permitted(address: Address, allowed: Sequence[Network] = ()) -> bool:
    """Return whether the server may connect to an address: it is public, or in the vendor's networks."""
    if is_listed(address, allowed):
        return True
    if isinstance(address, ipaddress.IPv6Address):
        return address in _UNICAST and not any(address in network for network in _DENIED_IPV6)
    return not any(address in network for network in _DENIED)
