"""Pure: the configuration of a client, its defaults, its limits (24 hours, 12 hours), and its validation."""

import re
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Final

from licclient._core.arguments import (
    check_flag,
    is_text,
    read_items,
    read_seconds,
    takes_own_arguments,
    wrong_type,
)
from licclient._core.lazy import lazy
from licclient._core.model import AUTO, Settings, UpdateFeed, is_platform
from licclient._core.requests import hide_keys, is_in_the_clear, origin

if TYPE_CHECKING:
    import difflib
    from urllib import parse

    from licclient._core import kinds
    from licclient._core import public_keys as public_keys_module
    from licclient._core.kinds import InstallationKind
    from licclient._core.public_keys import PublicKey
    from licclient._core.records import Storage
else:
    difflib = lazy("difflib")
    kinds = lazy("licclient._core.kinds")
    parse = lazy("urllib.parse")
    public_keys_module = lazy("licclient._core.public_keys")

MIN_CACHE_FOR: Final = timedelta(hours=24)
"""A success is cached for at least this long (spec 8, D-41)."""

MIN_CHECK_EVERY: Final = timedelta(hours=12)
"""The shortest cycle of update checks (spec 8, D-46)."""

MAX_URL: Final = 2_000
"""The longest address that servers and proxies are sure to take."""

MAX_SPAN: Final = timedelta(days=36_500)
"""Longer spans are refused: they are slips, and sums of dates would overflow."""

MAX_TEXT: Final = 2_000
"""Longer texts are slips; each request would contain them."""

MAX_DOMAIN: Final = 253
"""The longest domain that the service takes (D-06)."""

MAX_LABEL: Final = 80
"""The longest label that the service stores (D-195)."""

MAX_ITEMS: Final = 1_000
"""Longer lists are slips, or have no end."""

MAX_CHANNELS: Final = 16
"""How many channels the service reads."""

MAX_PUBLIC_KEYS: Final = 16
"""Each pinned key makes every request longer by some 250 bytes, and servers take only so much."""

_SLUG: Final = r"[A-Za-z0-9._~-]+"
"""Characters that need no escape in a URL: licserver is stricter, and other services may not be."""

# What is left as it is on its way to the wire: a signed answer repeats the address letter by letter.
_PLAIN_URL: Final = r"[A-Za-z0-9._~:/\[\]!$&'()*+,;=%-]+"

_PLAIN_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-/")

_LINKS: Final = ("https://", "http://", "mailto:")
"""Schemes that a dialog opens: a link must not start a program on the customer's computer."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@takes_own_arguments(lambda name: name_argument(name, "Updates"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """Which updates are offered, and how often the service is asked; for `updates=` of a client.

    Attributes:
        platform: Which file of a version update checks request, such as `windows-x86_64`. By default
            that of this computer; None or "" for the file for all platforms.
        kind: Which kind of file update checks request, such as `"msi"` or `"folder"`. By default the one that
            replaces this installation, if `licclient.install.detect` is certain of it.
        channels: Whose releases are offered besides stable ones, such as `["beta"]`, at most 16. An
            app that leaves a channel keeps its version until there is a higher stable one.
        check_every: Least time between two update checks, in seconds or as a timedelta; at least 12 hours.
        report_rollbacks: Whether to notify the vendor, once, of a version that `licclient.install` rolled
            back here, or whose set-up was in vain: version, platform, key, installation id and exit code.
        hand_over: Called with an `UpdateFeed` by `install_update` where WinSparkle or Sparkle updates this
            app: `licclient.install.WinSparkle`, `Sparkle`, or a function of your own.
    """

    platform: str | None = AUTO
    kind: str | None = None
    channels: Iterable[str] = ()
    check_every: float | timedelta = timedelta(hours=12)
    report_rollbacks: bool = False
    hand_over: Callable[[UpdateFeed], object] | None = field(default=None, repr=False)


@takes_own_arguments(lambda name: name_argument(name, "Trust"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The signatures that a client accepts, and for how long a success counts; for `trust=` of a client.

    Attributes:
        cache_for: How long a success holds without a new request, in seconds or as a timedelta; at least 24
            hours.
        grace: How long it holds beyond that while the service does not respond, likewise; may be zero.
        public_keys: The service's public keys, as `licserver signing-key public` prints them. If given, every
            response must be signed by one of them, and so must cached licenses. A list, so that a
            new key can be shipped before the old one retires. Needs the extra `licclient[signed]`.
        release_keys: The vendor's release keys, as `licserver release public-key` prints them. If given, a
            version is offered, and a file gets its name, only if one of them signed it. Needs the
            extra, too.
        download_origins: Where files may come from besides the service itself, such as
            `["https://files.example.com"]`; by default every `https` address that the service names.
        require_digest: Whether a file must come with its SHA-256 digest; with `release_keys` it always must.
            By default a file without it is accepted over `https` or from the service itself, and
            `Downloaded.is_verified` is then False.
        publisher: The name in the certificate that the vendor signs set-ups of Windows with, such as
            `Example GmbH`. If given, `install_update` runs only those whose signature Windows accepts.
    """

    cache_for: float | timedelta = timedelta(hours=24)
    grace: float | timedelta = timedelta(hours=72)
    public_keys: Iterable[str] | None = None
    release_keys: Iterable[str] | None = None
    download_origins: Iterable[str] | None = None
    require_digest: bool = False
    publisher: str | None = None


@takes_own_arguments(lambda name: name_argument(name, "Pages"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Addresses that the dialogs link to where they help; for `pages=` of a client.

    Attributes:
        buy: Where a license can be bought.
        support: Where support is found, `mailto:` included.
        manage: Where a customer frees a computer; shown when all slots of a license are taken.
    """

    buy: str | None = None
    support: str | None = None
    manage: str | None = None


@takes_own_arguments(lambda name: name_argument(name, "ClientSettings"))
@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Configuration of a client; the client validates it.

    Attributes:
        base_url: Address of the license service: `https` (or `http`), host, optional port and path prefix.
        product: Product name that licenses must be for; another one is refused.
        slug: Product slug; update checks need it.
        version: Installed version; update checks need it. Nothing is newer than a version that PEP 440
            cannot read.
        domain: Where the product is installed. By default a random id of this installation, made once and
            kept with the state.
        label: What the customer calls this computer, such as "Anna's MacBook, Berlin office", so that support
            can distinguish computers. Verify sends it, together with `version`. It is personal data:
            ask your user and send what was typed, not the name of the computer. Off by default. Control
            characters are removed, and of a longer text 80 characters are sent.
        storage: Where the state is kept: the path of a folder, or a `Storage` of your own. By default the
            platform's folder for application state.
        timeout: Time limit of a call as a whole, retries and the look-up of our own address included, in
            seconds or as a timedelta. Longer only when another process that makes the same call was stopped
            in it. A download fails when it received next to nothing for so long.
        updates: Which updates are offered: channels, platform, how often.
        trust: What is accepted, and for how long: pinned keys, cache, grace.
        pages: Addresses for the dialogs: buy, support, manage.
    """

    base_url: str
    _: KW_ONLY
    product: str | None = None
    slug: str | None = None
    version: str | None = None
    domain: str | None = None
    label: str | None = field(default=None, repr=False)
    storage: "str | PathLike[str] | Storage | None" = field(default=None, repr=False)
    timeout: float | timedelta = 10.0
    updates: Updates = Updates()
    trust: Trust = Trust()
    pages: Pages = Pages()


# D-310
GROUPS: Final = {"updates": Updates, "trust": Trust, "pages": Pages}

_OTHER_NAMES: Final = {"folder": "storage", "state_dir": "storage", "state_folder": "storage"}


def name_argument(name: str, owner: str) -> str:
    """Return the advice for an argument that `owner` does not have; empty if nothing resembles it."""
    own = {field_.name: f"{field_.name}=" for field_ in fields(ClientSettings)}
    own |= {"clock": "clock=", "transport": "transport="}
    for group, kind in GROUPS.items():
        for field_ in fields(kind):
            shown = f"{field_.name}=…"
            own[field_.name] = shown if owner == kind.__name__ else f"{group}={kind.__name__}({shown})"
    page = name.removesuffix("_url")
    meant = page if page in own else _OTHER_NAMES.get(name, name)
    close = difflib.get_close_matches(meant, own, n=1)
    return f"; did you mean {own[close[0]]}?" if close else ""


def read_settings(given: ClientSettings) -> Settings:
    """Validate a client's configuration.

    Raises:
        TypeError: A value has the wrong type.
        ValueError: A value is out of range, or not a usable URL.
        ImportError: Keys are pinned, and the extra that verifies signatures is not installed.
    """
    server = read_server(given.base_url)
    for name, kind in GROUPS.items():
        if not isinstance(getattr(given, name), kind):
            raise wrong_type(name, f"{kind.__name__}(…) of licclient", getattr(given, name))
    updates, trust, pages = given.updates, given.trust, given.pages
    for name in ("buy", "support", "manage"):
        _check_link(name, getattr(pages, name))
    release_keys = _keys("release_keys", trust.release_keys)
    return Settings(
        server=server,
        product=_text("product", given.product, printable=False),
        slug=read_slug(given.slug),
        version=_text("version", given.version),
        platform=_platform(updates.platform),
        kind=_kind(updates.kind),
        channels=_channels(updates.channels),
        domain=_domain(given.domain),
        cache_for=_span("cache_for", trust.cache_for, MIN_CACHE_FOR),
        grace=_span("grace", trust.grace, timedelta(0)),
        check_every=_span("check_every", updates.check_every, MIN_CHECK_EVERY),
        timeout=_timeout(given.timeout),
        public_keys=_public_keys(trust.public_keys, server),
        release_keys=release_keys,
        download_origins=_origins(trust.download_origins),
        require_digest=check_flag("require_digest", trust.require_digest) or bool(release_keys),
        machine=_machine(given.label, given.version),
        publisher=_text("publisher", trust.publisher),
        report_rollbacks=check_flag("report_rollbacks", updates.report_rollbacks),
        hand_over=_hand_over(updates.hand_over),
    )


def read_server(base_url: str) -> str:
    """Normalise the address of the service, so that two spellings of it share one state.

    It is `http` or `https` with a host, maybe port and path prefix; else raise `TypeError` or `ValueError`.
    """
    if not isinstance(base_url, str):
        raise wrong_type("base_url", "a string", base_url)
    if len(base_url) > MAX_URL:
        raise ValueError(f"base_url must have at most {MAX_URL} characters")
    return base_url.rstrip("/") if _is_plain_server(base_url) else _parse_server(base_url)


def _is_plain_server(base_url: str) -> bool:
    """Return whether an address needs no parser: `https`, a host, maybe a path, all in plain letters.

    `urllib.parse` and the expressions of `_parse_server` cost each start 3 ms.
    """
    place = base_url.removeprefix("https://")
    is_plain = place != base_url and _PLAIN_LETTERS.issuperset(place)
    return is_plain and place[:1] not in ("", "/") and "/api/v1/" not in f"{place}/"


def _parse_server(base_url: str) -> str:
    shown = _mask_url(base_url)
    if any(character.isspace() or not character.isprintable() for character in base_url):
        raise ValueError(f"base_url must not contain white space or control characters: {shown!r}")
    if base_url and "://" not in base_url and shown == base_url:
        place = shown.removeprefix("https:").removeprefix("http:").lstrip("/")  # one slash is a slip
        scheme = "https" if is_in_the_clear(f"http://{place}") else "http"
        raise ValueError(f"base_url {shown!r} has no scheme; type {f'{scheme}://{place}'!r}")
    try:
        parts = parse.urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError:  # its message may contain the password
        raise ValueError(f"base_url {shown!r} is not a URL: its host or port cannot be read") from None
    if parts.scheme not in _DEFAULT_PORTS or not host:
        raise ValueError(f"base_url must be an http:// or https:// address with a host, not {shown!r}")
    if "@" in parts.netloc:
        raise ValueError(f"base_url must not hold a user name or password: {shown!r}")
    if "?" in base_url or "#" in base_url:
        raise ValueError(f"base_url must have no query and no fragment: {shown!r}")
    host = f"[{host}]" if ":" in host else host
    shown_port = "" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}"
    path, api, _ = f"{parts.path}/".partition("/api/v1/")
    server = f"{parts.scheme}://{host}{shown_port}{path.rstrip('/')}"
    if api:
        shown = _mask_url(server)
        raise ValueError(
            f"base_url must be the address without /api/v1, which the client adds: type {shown!r}"
        )
    return server


def _mask_url(url: str) -> str:
    """Return an address for a message: without user name and password, query, fragment and license keys."""
    bare = re.sub(r"^([a-z]+://)?.*@", r"\1…@", url, flags=re.IGNORECASE | re.DOTALL)
    return hide_keys(re.sub(r"([?#]).*", r"\1…", bare, flags=re.DOTALL))


def read_slug(value: str | None) -> str | None:
    """Return a product's slug; raise `TypeError` or `ValueError` if it can be none."""
    slug = _text("slug", value)
    if slug is not None and not re.fullmatch(_SLUG, slug):
        # Without the value: it may be a license key.
        raise ValueError(
            "slug must be the product's slug, not its name: letters and digits joined by hyphens,"
            " such as 'notes-pro'"
        )
    return slug


def _text(name: str, value: str | None, *, printable: bool = True) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise wrong_type(name, "a string", value)
    if len(value) > MAX_TEXT:
        raise ValueError(f"{name} must have at most {MAX_TEXT} characters")
    if not is_text(value):
        raise ValueError(f"{name} must be readable text")
    if not value.strip():
        raise ValueError(f"{name} must not be blank")
    if printable and not value.isprintable():
        raise ValueError(f"{name} must not contain control characters")
    return value


def _machine(typed: str | None, version: str | None) -> dict[str, str]:
    """Return the data that verify sends about this computer; typed text is repaired, never refused."""
    if not isinstance(typed, str | None):
        raise wrong_type("label", "a string", typed)
    text = "".join(filter(str.isprintable, " ".join((typed or "")[:MAX_TEXT].split())))
    label = text and hide_keys(text)[:MAX_LABEL].strip()
    if not label:
        return {}
    return {"label": label} if version is None else {"label": label, "app_version": version}


def _check_link(name: str, value: str | None) -> None:
    link = _text(name, value)
    if link is not None and (" " in link or not link.startswith(_LINKS)):
        raise ValueError(f"{name} must be an address that begins with {', '.join(_LINKS)}")


def _domain(value: str | None) -> str | None:
    domain = _text("domain", value)
    if domain is not None and len(domain) > MAX_DOMAIN:
        raise ValueError(f"domain must have at most {MAX_DOMAIN} characters")
    return domain


def _platform(value: str | None) -> str | None:
    if value is not None and not isinstance(value, str):
        raise wrong_type("platform", "a string", value)
    if value and not is_platform(value):
        raise ValueError(
            "platform must be 1 to 40 lower-case letters, digits and _ . -, such as windows-x86_64"
        )
    return value or None


def _kind(value: str | None) -> "InstallationKind | None":
    if value is None:
        return None
    if not isinstance(value, str):
        raise wrong_type("kind", "a string", value)
    kind = kinds.read_published_kind(value)
    if kind is None:
        raise ValueError(f"kind must be one of {', '.join(sorted(kinds.PUBLISHED_KINDS))}")
    return kind


def _hand_over(value: Callable[[UpdateFeed], object] | None) -> Callable[[UpdateFeed], object] | None:
    if value is not None and not callable(value):
        raise wrong_type("hand_over", "callable, such as licclient.install.WinSparkle(library)", value)
    return value


def _channels(names: Iterable[str]) -> tuple[str, ...]:
    expected = 'a list of strings, such as ["beta"]'
    items = read_items("channels", names, expected, MAX_ITEMS)
    if not all(isinstance(name, str) for name in items):
        raise TypeError(f"channels must be {expected}")
    channels = tuple(dict.fromkeys(items))
    if len(channels) > MAX_CHANNELS or not all(map(is_platform, channels)):  # the same letters
        raise ValueError(
            f"channels must be at most {MAX_CHANNELS} names of 1 to 40 lower-case letters, digits and . _ -"
        )
    return channels


def _span(name: str, value: float | timedelta, least: timedelta) -> timedelta:
    seconds = read_seconds(name, value, MAX_SPAN.total_seconds(), is_zero_allowed=True)
    span = value if isinstance(value, timedelta) else timedelta(seconds=seconds)
    if span < least:
        raise ValueError(f"{name} must be at least {least} and at most {MAX_SPAN.days} days")
    return span


def _timeout(value: float | timedelta) -> timedelta:
    # A smaller part of a second would be no time at all.
    return max(
        timedelta(microseconds=1), timedelta(seconds=read_seconds("timeout", value, MAX_SPAN.total_seconds()))
    )


def _public_keys(texts: Iterable[str] | None, server: str) -> "tuple[PublicKey, ...]":
    keys = _keys("public_keys", texts)
    if not keys:
        return ()
    if not re.fullmatch(_PLAIN_URL, server) or "/." in server:
        raise ValueError(
            "with public_keys, base_url must be plain ASCII (xn--… for the host), without /. in it"
        )
    return keys


def _keys(name: str, texts: Iterable[str] | None) -> "tuple[PublicKey, ...]":
    if texts is None:
        return ()
    items = read_items(name, texts, "a list of keys", MAX_ITEMS)
    keys = tuple(dict.fromkeys(public_keys_module.read_public_key(text, name) for text in items))
    if not 1 <= len(keys) <= MAX_PUBLIC_KEYS:  # an empty list is a slip that would switch the check off
        raise ValueError(f"{name} must hold 1 to {MAX_PUBLIC_KEYS} keys; leave it out to pin none")
    public_keys_module.require_library(name)
    return keys


def _origins(value: Iterable[str] | None) -> frozenset[str] | None:
    if value is None:
        return None
    return frozenset(map(_origin, read_items("download_origins", value, "a list of addresses", MAX_ITEMS)))


def _origin(value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"download_origins must hold strings, not {type(value).__name__}")
    normalised = origin(value)
    rest = value.lower().removeprefix("https://").removeprefix("http://").strip("/")
    if normalised is None or "/" in rest:
        raise ValueError("download_origins must be addresses like https://files.example.com, without a path")
    return normalised
