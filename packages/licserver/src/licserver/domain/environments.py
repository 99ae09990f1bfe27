"""Environments: normalise and compare domains and addresses, and match them with allow-list entries. Pure."""

import ipaddress
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from urllib.parse import urlsplit

import idna

from licserver.domain.records import Environment, EnvironmentMatch, EnvironmentPolicy

MAX_DOMAIN_LENGTH = 253  # characters of a normalised domain: the longest host name in DNS
_MAX_TYPED = 2_048  # characters of a domain as it is sent, which may be a URL with a path
MAX_FOREIGN = 32  # characters of a host name that are not ASCII
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_PORT = re.compile(r":\d{0,5}$")
_DOTS = ".\u3002\uff0e\uff61"  # also the dots of other scripts
_DOT = re.compile(f"[{_DOTS}]")
# A host name; its ASCII characters are letters, digits, dots, hyphens and underscores. Text with blanks,
# braces or further colons is no host name, and must be kept whole.
_HOST = re.compile(r"(?:[a-zA-Z0-9._-]|[^\x00-\x7f\s])+")
# Forms of a hop that proxies write: 192.0.2.1:51000, [2001:db8::1], [2001:db8::1]:51000
_HOP = re.compile(r"(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\])(?::\d{1,5})?")
# Of an allow-list: what is typed between several entries, and a name or number with a dot within.
_SEPARATORS = re.compile(r"[,;|\s]+")
_DOTTED_NAME = re.compile(r"\w\.\w")
_DIGITS_AND_DOTS = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# A host name in normal form, as most are; without a letter it could be an address.
_PLAIN_HOST = re.compile(rf"(?=[^a-z]*[a-z]){_LABEL}(?:\.{_LABEL})*")
_LONGEST_IP = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")
_MAX_CACHED = 8192
_MAX_HOPS = 32  # more than any chain of proxies has (D-161)
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
    """Return the form in which the database stores a domain, URL or other name (D-06).

    A host becomes lower-case A-labels, without user info, port, path and trailing dots, also where DNS would
    refuse a label; other text is trimmed and in lower case. Raise `InvalidDomainError` for blank text,
    control characters, lone surrogates, or over 253 characters.
    """
    host = text.removeprefix("https://").removesuffix("/")  # most clients send a home URL: 1 us instead of 29
    if len(host) <= MAX_DOMAIN_LENGTH and _PLAIN_HOST.fullmatch(host):
        return host
    if len(text) > _MAX_TYPED:
        raise _too_long()
    trimmed = text.strip()
    if not is_printable(trimmed):
        raise InvalidDomainError("must not contain control characters")
    is_url = "://" in trimmed or trimmed.startswith("//")
    domain = (_host_of_url(trimmed) if is_url else _host_name(trimmed)) or trimmed.lower()
    if not domain:
        raise InvalidDomainError("is required")
    if len(domain) > MAX_DOMAIN_LENGTH:
        raise _too_long()
    return domain


def _too_long() -> InvalidDomainError:
    return InvalidDomainError(f"must be at most {MAX_DOMAIN_LENGTH} characters long")


def _host_of_url(url: str) -> str | None:
    try:
        host = urlsplit(url).hostname
    except ValueError:  # unbalanced brackets, or a character that expands to several, such as ℅
        if "[" in url or "]" in url:
            return None
        host = re.split(r"[/?#]", url.partition("//")[2], maxsplit=1)[0].rpartition("@")[2]
    if not host or any(char.isspace() for char in host):
        return None
    return _host_name(host) or host.rstrip(".").lower()


def _host_name(text: str) -> str | None:
    """Normalise ``host``, ``host:port`` or ``host/path``; return None for text that names no host."""
    host = re.split(r"[/?#]", text, maxsplit=1)[0]
    if address := parse_ip(host.strip("[]")):
        return str(address)
    host = _PORT.sub("", host).rstrip(_DOTS)
    if address := parse_ip(host.strip("[]")):
        return str(address)
    if len(host) > MAX_DOMAIN_LENGTH or not _HOST.fullmatch(host):
        return None
    return host.lower() if host.isascii() else _normalise_labels(host)


def _normalise_labels(host: str) -> str:
    """Map each label of a host name to DNS; a label without a form in DNS becomes lower case."""
    host = _DOT.sub(".", host)
    # idna and punycode take quadratic time: 253 digits of another script 10 ms, 32 characters 0.4 ms.
    if _count_foreign(host) > MAX_FOREIGN:
        host = unicodedata.normalize("NFC", host.lower())
        if _count_foreign(host) > MAX_FOREIGN:
            return host
    return ".".join(map(_map_label, host.split("."))).rstrip(".")


def _map_label(label: str) -> str:
    """Return the form of a label in DNS: mapped by UTS 46, encoded as in browsers, including emoji."""
    if label.isascii():
        return label.lower()
    try:
        mapped = idna.uts46_remap(label, std3_rules=False, transitional=False)
    except (idna.IDNAError, UnicodeError):
        mapped = ""
    if not _HOST.fullmatch(
        mapped
    ):  # a disallowed character, or a character that expands to several, such as ℀
        return unicodedata.normalize("NFC", label.lower())
    return mapped if mapped.isascii() else f"xn--{mapped.encode('punycode').decode()}"


def _count_foreign(text: str) -> int:
    return sum(not char.isascii() for char in text)


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
        parsed = None
    else:
        parsed = getattr(address, "ipv4_mapped", None) or address
    if len(_ADDRESSES) >= _MAX_CACHED:
        _ADDRESSES.clear()
    _ADDRESSES[text] = parsed
    return parsed


def normalise_ip(address: IpAddress, v6_prefix: int = 128) -> str:
    """Return the form in which the database stores an address; clear the bits after an IPv6 prefix."""
    if address.version == 6 and v6_prefix < 128:  # noqa: PLR2004 - the widths of IPv6
        return str(ipaddress.IPv6Network((int(address), v6_prefix), strict=False).network_address)
    return str(address)


def provider_network(address: str) -> str:
    """Return the /24 or /48 of a normalised address: a provider may assign that much to a customer."""
    width = 48 if ":" in address else 24
    return str(ipaddress.ip_network(f"{address}/{width}", strict=False))


def client_ip(peer: str, forwarded_for: Iterable[str], trusted: Sequence[IpNetwork]) -> str:
    """Return the address of the client behind trusted proxies: the right-most untrusted hop.

    Hops are read from the right: each proxy appends its peer's address, and a client can write anything
    further left. Reading stops at a hop that is not an address, and after 32 hops. The header is ignored if
    `peer` is no trusted proxy.
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
    """Yield hops from the right; split only the part of the header that is read."""
    for value in reversed([*forwarded_for]):
        yield from reversed(value.rsplit(",", _MAX_HOPS))


def _parse_hop(text: str) -> IpAddress | None:
    match = _HOP.fullmatch(text)
    return parse_ip(match[1] or match[2] if match else text)


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
    if problem := _describe_never_matching(trimmed):
        raise InvalidEntryError(f"{text!r} {problem}")
    if "/" in trimmed and "://" not in trimmed:
        try:
            network = parse_network(trimmed)
        except ValueError:
            raise InvalidEntryError(f"{text!r} is not a network; write it like 203.0.113.0/24") from None
        typed = parse_ip(trimmed.partition("/")[0])
        if network.prefixlen == 0 and typed is not None and int(typed) != 0:
            raise InvalidEntryError(f"{text!r} is every address; write {network} if you mean that")
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


def _describe_never_matching(text: str) -> str | None:
    """Describe text that no environment can equal although it looks like an entry (D-415)."""
    entries = _SEPARATORS.split(text) if len(text) <= _MAX_TYPED else []
    entries = list(filter(None, entries))
    if len(entries) > 1 and all(map(_looks_like_entry, entries)):
        return f"is {len(entries)} entries; give each one by itself"
    if all(parse_ip(end.strip()) for end in text.split("-", maxsplit=1)):
        return "is a range; write it as networks like 203.0.113.0/24"
    if text.startswith("."):
        return f"begins with a dot; write *{text} for the names below it"
    if _DIGITS_AND_DOTS.fullmatch(text):
        return "is not an address; write it like 203.0.113.7"
    return None


def _looks_like_entry(text: str) -> bool:
    return parse_ip(text.partition("/")[0]) is not None or _DOTTED_NAME.search(text) is not None


@lru_cache(maxsize=4096)
def _entry_network(entry: str) -> IpNetwork | None:
    try:
        return ipaddress.ip_network(entry)
    except ValueError:
        return None


def covers_domain(entry: str, domain: str) -> bool:
    """Return whether an entry covers a domain; ``*.`` matches at least one label."""
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
    if activated.domain and activated.ip:  # enough for every policy; the usual case
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
