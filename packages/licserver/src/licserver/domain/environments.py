"""Environments: when two domains are the same, when two addresses are, and what an entry covers.

Pure text work. `rules` decides with it; `wire` refuses with it what can be no domain at all.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from urllib.parse import urlsplit

import idna

from licserver.domain.records import Environment, EnvironmentMatch, EnvironmentPolicy

MAX_DOMAIN_LENGTH = 253
"""Characters of a normalised domain (D-06): the longest host name that DNS can carry."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PORT = re.compile(r":\d{1,5}$")
# What some proxies write for a hop: 192.0.2.1:51000, [2001:db8::1], [2001:db8::1]:51000
_HOP = re.compile(r"(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\])(?::\d{1,5})?")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# A host name in its normal form already, as most are. What may be an address or an A-label is left
# to the long way, which comes to the same for all of these (tests/test_domains.py).
_PLAIN_HOST = re.compile(rf"(?=[^a-z]*[a-z])(?!.*--){_LABEL}(?:\.{_LABEL})*")
_LONGEST_IP = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
_MAX_READ = 8192
_MOST_HOPS = 32  # of X-Forwarded-For that are read: more proxies than stand in a row anywhere (D-161)
_MAPPED_PREFIX = 96  # bits before the IPv4 address in ::ffff:a.b.c.d

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadDomain(ValueError):
    """The text can be no domain; the message says why, in words for the caller (D-06)."""


class BadEntry(ValueError):
    """The text can be no allow-list entry; the message says why, in words for the owner (D-04)."""


def is_printable(text: str) -> bool:
    """Tell whether `text` is free of NUL, other control characters and lone surrogates (D-06)."""
    if text.isascii():
        return text.isprintable()
    return _UNPRINTABLE.search(text) is None


def normalise_domain(text: str) -> str:
    """Bring a domain into the one form in which it is stored and compared (D-06).

    Args:
        text: A host name, a URL, or any other text that names an installation.

    Returns:
        The host in lower-case A-labels, without user info, port and trailing dot. What is no host
        name is returned trimmed and lower-cased: an installation id is as good as a domain.
        ``www.`` is kept: two sites may differ in nothing else.

    Raises:
        BadDomain: for blank text, control characters, lone surrogates, or over 253 characters.
    """
    host = text.removeprefix("https://").removesuffix("/")  # most clients send a home URL: 1 us instead of 29
    if len(host) <= MAX_DOMAIN_LENGTH and _PLAIN_HOST.fullmatch(host):
        return host
    trimmed = text.strip()
    if not is_printable(trimmed):
        raise BadDomain("must not contain control characters")
    is_url = "://" in trimmed or trimmed.startswith("//")
    domain = (is_url and _host_of_url(trimmed)) or _host_name(trimmed) or trimmed.lower()
    if not domain:
        raise BadDomain("is required")
    if len(domain) > MAX_DOMAIN_LENGTH:
        raise BadDomain(f"must be at most {MAX_DOMAIN_LENGTH} characters long")
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
    """Read ``host``, ``host:port`` or ``host/path``; None when `text` names no host."""
    host = re.split(r"[/?#]", text, maxsplit=1)[0]
    if address := parse_ip(host.strip("[]")):
        return str(address)
    host = _PORT.sub("", host).rstrip(".")
    if address := parse_ip(host.strip("[]")):
        return str(address)
    if not host or len(host) > MAX_DOMAIN_LENGTH:  # the length also keeps idna's work small
        return None
    try:
        # UTS 46 makes full stops of other scripts into dots, so only now is the last one seen.
        return idna.encode(host, uts46=True).decode("ascii").lower().rstrip(".")
    except (idna.IDNAError, UnicodeError):
        return None


def parse_ip(text: str) -> IpAddress | None:
    """Read an address; None when `text` is not exactly one (a zone such as ``%eth0`` is not part of it).

    An IPv4 address inside IPv6 (``::ffff:192.0.2.1``) is returned as IPv4 (D-05).
    """
    try:
        return _READ[text]
    except KeyError:
        return _read_ip(text)


_READ: dict[str, IpAddress | None] = {}
"""Not `lru_cache`, which keeps texts of any length: callers send them, each time another one (D-127)."""


def _read_ip(text: str) -> IpAddress | None:
    """Read what was not read lately."""
    if len(text) > _LONGEST_IP or "%" in text:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        found = None
    else:
        found = getattr(address, "ipv4_mapped", None) or address
    if len(_READ) >= _MAX_READ:
        _READ.clear()
    _READ[text] = found
    return found


def normalise_ip(address: IpAddress, v6_prefix: int = 128) -> str:
    """Bring an address into the one form in which it is stored and compared (D-05).

    Args:
        address: As `parse_ip` returned it.
        v6_prefix: How many leading bits of an IPv6 address tell environments apart, 1 to 128.

    Returns:
        The address as text; of an IPv6 address only the prefix is kept, the rest is zero.
    """
    if address.version == 6 and v6_prefix < 128:  # noqa: PLR2004 - the widths of IPv6
        return str(ipaddress.IPv6Network((int(address), v6_prefix), strict=False).network_address)
    return str(address)


def network_of(address: str) -> str:
    """Return the network that an address belongs to: IPv4 /24, IPv6 /48, as providers hand them out.

    Args:
        address: As `normalise_ip` returned it.
    """
    width = 48 if ":" in address else 24
    return str(ipaddress.ip_network(f"{address}/{width}", strict=False))


def connection_ip(peer: str, forwarded_for: Iterable[str], trusted: Sequence[IpNetwork]) -> str:
    """Find the address that a call really came from (D-05).

    The header is walked from the right, because each proxy appends the hop that it saw itself;
    what stands further left was written by somebody we have no reason to believe.

    Args:
        peer: The other end of the connection.
        forwarded_for: The values of all ``X-Forwarded-For`` headers, in order.
        trusted: The configured proxies; with none of them as `peer` the header is ignored.

    Returns:
        The right-most hop that is no trusted proxy. A hop that is no address ends the walk: the
        last address believed until then is returned. When all hops are trusted, the left-most of the last 32.
    """
    believed = peer
    if not _is_trusted(believed, trusted):
        return believed
    for text in islice(_last_hops(forwarded_for), _MOST_HOPS):
        hop = _read_hop(text.strip())
        if hop is None:
            break
        believed = str(hop)
        if not _is_trusted(believed, trusted):
            break
    return believed


def _last_hops(forwarded_for: Iterable[str]) -> Iterator[str]:
    """Yield hops from the right; split no more of the header than is read."""
    for value in reversed([*forwarded_for]):
        yield from reversed(value.rsplit(",", _MOST_HOPS))


def _read_hop(text: str) -> IpAddress | None:
    found = _HOP.fullmatch(text)
    return parse_ip(found[1] or found[2] if found else text)


def _is_trusted(text: str, trusted: Sequence[IpNetwork]) -> bool:
    address = parse_ip(text)
    return address is not None and any(address in network for network in trusted)


def parse_network(text: str) -> IpNetwork:
    """Read a network, or an address as the network of itself; bits beyond the prefix are dropped.

    IPv4 inside IPv6 is IPv4, as in `parse_ip` (D-05).

    Raises:
        ValueError: when `text` is neither.
    """
    if "%" in text:
        raise ValueError  # a zone is not part of a network
    network = ipaddress.ip_network(text, strict=False)
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < _MAPPED_PREFIX:
        return network
    return ipaddress.IPv4Network((mapped, network.prefixlen - _MAPPED_PREFIX))


def parse_entry(text: str, v6_prefix: int = 128) -> str:
    """Read an owner's allow-list entry into its canonical text (D-04).

    Args:
        text: A domain, ``*.domain``, an address, or a network such as ``203.0.113.0/24``.
        v6_prefix: As in `normalise_ip`: an entry cannot tell apart what environments do not.

    Returns:
        The text in the form that `covers` compares.

    Raises:
        BadEntry: when it is none of these.
    """
    trimmed = text.strip()
    if address := parse_ip(trimmed):
        return normalise_ip(address, v6_prefix)
    if "/" in trimmed and "://" not in trimmed:
        try:
            network = parse_network(trimmed)
        except ValueError:
            raise BadEntry(f"{text!r} is not a network; write it like 203.0.113.0/24") from None
        if network.version == 6 and network.prefixlen > v6_prefix:  # noqa: PLR2004 - IPv6
            network = network.supernet(new_prefix=v6_prefix)
        return str(network)
    wildcard = "*." if trimmed.startswith("*.") else ""
    rest = trimmed.removeprefix(wildcard)
    if "*" in rest:
        raise BadEntry(f"{text!r}: a pattern is '*.' followed by a domain")
    try:
        return wildcard + normalise_domain(rest)
    except BadDomain as problem:
        raise BadEntry(f"{text!r}: a domain {problem}") from None


@lru_cache(maxsize=4096)
def _network(entry: str) -> IpNetwork | None:
    try:
        return ipaddress.ip_network(entry)
    except ValueError:
        return None


def covers_domain(entry: str, domain: str) -> bool:
    """Tell whether an owner's entry covers a domain; ``*.`` stands for one or more labels (D-04)."""
    if entry.startswith("*."):
        return domain.endswith(entry[1:]) and len(domain) > len(entry) - 1
    return entry == domain


def covers_ip(entry: str, ip: str) -> bool:
    """Tell whether an owner's entry covers an address (D-04)."""
    network = _network(entry)
    address = parse_ip(ip)
    return network is not None and address is not None and address in network


def is_known(
    environment: Environment, policy: EnvironmentPolicy, allowed: Sequence[str], activated: EnvironmentMatch
) -> bool:
    """Tell whether an environment is in a license's allow-list (D-03, D-04).

    The halves are looked up apart: under ``strict`` both must be known, but they may have become
    known by different activations, or one by an activation and the other by the owner.

    Args:
        environment: The one asked about, normalised.
        policy: What counts.
        allowed: The owner's entries, canonical.
        activated: Which halves of it the license's activations know.
    """
    if activated.domain and activated.ip:  # known under every policy; so are most
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
