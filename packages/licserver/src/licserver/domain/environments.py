"""Environments: normalise and compare domains and addresses, and match them with allow-list entries. Pure."""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from urllib.parse import urlsplit

import idna

from licserver.domain.records import Environment, EnvironmentMatch, EnvironmentPolicy

MAX_DOMAIN_LENGTH = 253  # characters of a normalised domain: the longest host name in DNS
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PORT = re.compile(r":\d{1,5}$")
# Forms of a hop that proxies write: 192.0.2.1:51000, [2001:db8::1], [2001:db8::1]:51000
_HOP = re.compile(r"(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\])(?::\d{1,5})?")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# A host name that is normalised already, as most are. Excludes addresses and A-labels, which take the full
# way; tests/test_domain_matching.py compares both ways.
_PLAIN_HOST = re.compile(rf"(?=[^a-z]*[a-z])(?!.*--){_LABEL}(?:\.{_LABEL})*")
_LONGEST_IP = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
_MAX_CACHED = 8192
_MAX_HOPS = 32  # more proxies than are ever in a row (D-161)
_MAPPED_PREFIX = 96  # bits before the IPv4 address in ::ffff:a.b.c.d

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class InvalidDomainError(ValueError):
    """The text cannot be a domain; the message completes 'The domain field …'."""


class InvalidEntryError(ValueError):
    """The text is not an allow-list entry; the message is for the vendor."""


def is_printable(text: str) -> bool:
    """Return whether `text` has no control characters (including NUL) and no lone surrogates."""
    if text.isascii():
        return text.isprintable()
    return _UNPRINTABLE.search(text) is None


# --- domains ----------------------------------------------------------------------------------


def normalise_domain(text: str) -> str:
    """Return the form in which a domain, URL or other name is stored and compared (D-06).

    A host becomes lower-case A-labels, without user info, port and trailing dot; other text trimmed lower
    case. An `InvalidDomainError` for blank text, control characters, lone surrogates, or over 253 characters.
    """
    host = text.removeprefix("https://").removesuffix("/")  # most clients send a home URL: 1 us instead of 29
    if len(host) <= MAX_DOMAIN_LENGTH and _PLAIN_HOST.fullmatch(host):
        return host
    trimmed = text.strip()
    if not is_printable(trimmed):
        raise InvalidDomainError("must not contain control characters")
    is_url = "://" in trimmed or trimmed.startswith("//")
    domain = (is_url and _host_of_url(trimmed)) or _host_name(trimmed) or trimmed.lower()
    if not domain:
        raise InvalidDomainError("is required")
    if len(domain) > MAX_DOMAIN_LENGTH:
        raise InvalidDomainError(f"must be at most {MAX_DOMAIN_LENGTH} characters long")
    return domain


def _host_of_url(url: str) -> str | None:
    try:
        host = urlsplit(url).hostname
    except ValueError:  # unbalanced brackets
        return None
    if not host or any(char.isspace() for char in host):
        return None
    return _host_name(host) or host.rstrip(".").lower()


def _host_name(text: str) -> str | None:
    """Normalise ``host``, ``host:port`` or ``host/path``; return None for other text."""
    host = re.split(r"[/?#]", text, maxsplit=1)[0]
    if address := parse_ip(host.strip("[]")):
        return str(address)
    host = _PORT.sub("", host).rstrip(".")
    if address := parse_ip(host.strip("[]")):
        return str(address)
    if not host or len(host) > MAX_DOMAIN_LENGTH:  # limits the time that idna takes, too
        return None
    try:
        # UTS 46 turns full stops of other scripts into dots, so the last dot is removed afterwards.
        return idna.encode(host, uts46=True).decode("ascii").lower().rstrip(".")
    except (idna.IDNAError, UnicodeError):
        return None


# --- addresses --------------------------------------------------------------------------------


def parse_ip(text: str) -> IpAddress | None:
    """Parse an address without a zone; return None for other text. IPv4 inside IPv6 becomes IPv4 (D-05)."""
    try:
        return _ADDRESSES[text]
    except KeyError:
        return _parse_new_ip(text)


_ADDRESSES: dict[str, IpAddress | None] = {}
"""Not `lru_cache`, which keeps text of any length that a caller sends (D-127)."""


def _parse_new_ip(text: str) -> IpAddress | None:
    if len(text) > _LONGEST_IP or "%" in text:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        found = None
    else:
        found = getattr(address, "ipv4_mapped", None) or address
    if len(_ADDRESSES) >= _MAX_CACHED:
        _ADDRESSES.clear()
    _ADDRESSES[text] = found
    return found


def normalise_ip(address: IpAddress, v6_prefix: int = 128) -> str:
    """Return the form in which an address is stored and compared; bits behind an IPv6 prefix become zero."""
    if address.version == 6 and v6_prefix < 128:  # noqa: PLR2004 - the widths of IPv6
        return str(ipaddress.IPv6Network((int(address), v6_prefix), strict=False).network_address)
    return str(address)


def provider_network(address: str) -> str:
    """Return the network of a normalised address that one customer of a provider may hold: /24 or /48."""
    width = 48 if ":" in address else 24
    return str(ipaddress.ip_network(f"{address}/{width}", strict=False))


def client_ip(peer: str, forwarded_for: Iterable[str], trusted: Sequence[IpNetwork]) -> str:
    """Return the address of the client behind trusted proxies: the right-most hop that is not one of them.

    Read from the right, because each proxy appends the address that it has seen; a client can write anything
    further left. Stops at a hop that is not an address, and after 32. If `peer` is no trusted proxy, the
    header is ignored.
    """
    client = peer
    if not _is_trusted(client, trusted):
        return client
    for text in islice(_last_hops(forwarded_for), _MAX_HOPS):
        hop = _parse_hop(text.strip())
        if hop is None:
            break
        client = str(hop)
        if not _is_trusted(client, trusted):
            break
    return client


def _last_hops(forwarded_for: Iterable[str]) -> Iterator[str]:
    """Yield hops from the right; split no more of the header than is read."""
    for value in reversed([*forwarded_for]):
        yield from reversed(value.rsplit(",", _MAX_HOPS))


def _parse_hop(text: str) -> IpAddress | None:
    found = _HOP.fullmatch(text)
    return parse_ip(found[1] or found[2] if found else text)


def _is_trusted(text: str, trusted: Sequence[IpNetwork]) -> bool:
    address = parse_ip(text)
    return address is not None and any(address in network for network in trusted)


def parse_network(text: str) -> IpNetwork:
    """Parse a network or an address; bits beyond the prefix are ignored, IPv4 inside IPv6 becomes IPv4."""
    if "%" in text:
        raise ValueError  # a zone is not part of a network
    network = ipaddress.ip_network(text, strict=False)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < _MAPPED_PREFIX:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX))


# --- the allow-list ---------------------------------------------------------------------------


def parse_entry(text: str, v6_prefix: int = 128) -> str:
    """Return an allow-list entry in canonical form: domain, ``*.domain``, address or network (D-04)."""
    trimmed = text.strip()
    if address := parse_ip(trimmed):
        return normalise_ip(address, v6_prefix)
    if "/" in trimmed and "://" not in trimmed:
        try:
            network = parse_network(trimmed)
        except ValueError:
            raise InvalidEntryError(f"{text!r} is not a network; write it like 203.0.113.0/24") from None
        if network.version == 6 and network.prefixlen > v6_prefix:  # noqa: PLR2004 - IPv6
            network = network.supernet(new_prefix=v6_prefix)
        return str(network)
    wildcard = "*." if trimmed.startswith("*.") else ""
    rest = trimmed.removeprefix(wildcard)
    if "*" in rest:
        raise InvalidEntryError(f"{text!r}: a pattern is '*.' followed by a domain")
    try:
        return wildcard + normalise_domain(rest)
    except InvalidDomainError as error:
        raise InvalidEntryError(f"{text!r}: a domain {error}") from None


@lru_cache(maxsize=4096)
def _entry_network(entry: str) -> IpNetwork | None:
    try:
        return ipaddress.ip_network(entry)
    except ValueError:
        return None


def covers_domain(entry: str, domain: str) -> bool:
    """Return whether an entry covers a domain; ``*.`` stands for one or more labels."""
    if entry.startswith("*."):
        return domain.endswith(entry[1:]) and len(domain) > len(entry) - 1
    return entry == domain


def covers_ip(entry: str, ip: str) -> bool:
    """Return whether an entry covers an address."""
    network = _entry_network(entry)
    address = parse_ip(ip)
    return network is not None and address is not None and address in network


def is_known(
    environment: Environment, policy: EnvironmentPolicy, allowed: Sequence[str], activated: EnvironmentMatch
) -> bool:
    """Return whether an environment is known to a license by its policy (D-03).

    Domain and address may be known by different activations and entries.
    """
    if activated.domain and activated.ip:  # known by every policy, as most are
        return True

    def domain_known() -> bool:
        return activated.domain or any(covers_domain(entry, environment.domain) for entry in allowed)

    def ip_known() -> bool:
        return activated.ip or any(covers_ip(entry, environment.ip) for entry in allowed)

    match policy:
        case EnvironmentPolicy.DOMAIN:
            return domain_known()
        case EnvironmentPolicy.EITHER:
            return domain_known() or ip_known()
        case EnvironmentPolicy.STRICT:
            return domain_known() and ip_known()
