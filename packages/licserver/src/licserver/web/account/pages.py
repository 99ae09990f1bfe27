"""The page's language, what it shows of a license as text, and its look: templates, style sheet, logo."""

import json
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from licserver.domain.decisions import is_support_over, license_state
from licserver.domain.offers import offer_to
from licserver.domain.records import Environment, IssuedLicense, LicenseState, Product
from licserver.errors import SettingsError
from licserver.services import MAX_PAGE, Services
from licserver.settings import Settings
from licserver.web.console.responses import Asset, create_asset

if TYPE_CHECKING:
    from jinja2 import Environment as TemplateEnvironment

HOME: Final = "/account"

_LOGO_TYPES: Final = {".svg": "svg", ".png": "png"}
_MAX_LOGO: Final = 1 << 20  # bytes
_READABLE: Final = 4.5  # the contrast that WCAG 2 asks of text
_DARK, _LIGHT = "#000", "#fff"


# --- the language ----------------------------------------------------------------------------

LANGUAGES: Final = ("en", "de", "fr", "es", "ja", "zh")
"""The languages of `licclient`'s dialogs; the first one stands in for all others."""


class Texts:
    """The texts of a language."""

    def __init__(self, language: str) -> None:
        self.language = language
        file = files("licserver.web.account") / "texts" / f"{language}.json"
        self._texts: dict[str, str] = json.loads(file.read_text("utf-8"))

    def __call__(self, name: str, /, **values: object) -> str:
        """Return a text, with its places filled."""
        return self._texts[name].format(**values)

    def __contains__(self, name: str) -> bool:
        return name in self._texts

    def date(self, value: date | None) -> str:
        """Format a date."""
        if value is None:
            return "–"
        return self("date", day=value.day, month=value.month, year=value.year, name=f"{value:%b}")


@cache
def load_texts(language: str) -> Texts:
    """Return the texts of one of `LANGUAGES`."""
    return Texts(language)


def choose_language(chosen: str, accepted: str) -> str:
    """Return the language that the customer chose before, or else the best of ``Accept-Language``."""
    if chosen in LANGUAGES:
        return chosen
    wanted = []
    for entry in accepted.split(","):
        name, _, quality = entry.strip().lower().partition(";q=")
        try:
            wanted.append((-float(quality or 1), name.partition("-")[0]))
        except ValueError:
            continue
    names = (name for weight, name in sorted(wanted, key=lambda one: one[0]) if weight < 0)
    return next((name for name in names if name in LANGUAGES), LANGUAGES[0])


# --- a license -------------------------------------------------------------------------------


class Machine(NamedTuple):
    """A computer that holds a slot; its name is what the app calls it, otherwise the domain.

    `file_until` is empty unless it has a license file that is valid.
    """

    environment: Environment
    name: str
    first_seen: str
    last_seen: str
    file_until: str


class HeldSeat(NamedTuple):
    """A floating seat in use; its name is what the app calls the computer, otherwise the domain."""

    id: str
    name: str
    since: str


@dataclass(frozen=True, slots=True, repr=False)
class LicenseCard:
    """A license as the page shows it; without a repr, because it may hold a license key.

    Args:
        status: What the license's state means, in a sentence.
        key: The whole key, if the customer has asked for it.
        slots: How many computers use it, in words.
        seats: How many floating seats are in use, in words; empty if the license has none.
        moves_left: How many slots the customer may free now; None if the product allows none.
        downloads: The versions that can be downloaded now, with their platforms; the default one has none.
        support: When updates end, or have ended, in words; empty if they do not.
        has_files: Whether the customer may make license files for machines without a network.
    """

    id: str
    product: str
    state: LicenseState
    status: str
    masked_key: str
    key: str | None
    slots: str
    machines: list[Machine]
    has_more: bool
    seats: str
    held_seats: list[HeldSeat]
    moves_left: int | None
    downloads: list[tuple[str, str]]
    support: str
    has_files: bool


def describe(
    services: Services, license_: IssuedLicense, texts: Texts, now: datetime, key: str | None = None
) -> LicenseCard:
    """Read what belongs to a license, and describe all of it."""
    product = services.products.get(license_.product_slug)
    found = services.licenses.list_activations(license_.id.hex(), limit=MAX_PAGE)
    state, is_over = license_state(license_, now), is_support_over(product, license_, now)
    offered = {}
    if state is LicenseState.ACTIVE and not is_over:
        offered = offer_to(services.releases.list_all(product.slug), license_.channels)
    used, total = license_.slots_used, license_.slots
    seats, held = license_.floating_seats, services.seats.list_held(license_)
    return LicenseCard(
        id=license_.id.hex(),
        product=license_.product_name,
        state=state,
        status=_describe_state(license_, state, texts),
        masked_key=services.licenses.mask_key(license_),
        key=key,
        slots=texts("slots.unlimited" if total is None else "slots.used", used=used, total=total),
        machines=[
            Machine(
                one.environment,
                one.label or one.environment.domain,
                texts.date(one.activated_at),
                texts.date(one.last_seen_at),
                texts.date(one.offline_until) if one.offline_until and one.offline_until > now else "",
            )
            for one in found.items
        ],
        seats="" if seats is None else texts("slots.used", used=len(held), total=seats),
        held_seats=[
            HeldSeat(
                one.id.hex(), one.label or one.domain, f"{texts.date(one.taken_at)}, {one.taken_at:%H:%M}"
            )
            for one in held[:MAX_PAGE]
        ],
        has_more=found.cursor is not None,
        moves_left=services.self_service.moves_left(license_) if product.customer_moves else None,
        downloads=[(platform, release.version) for platform, release in sorted(offered.items())],
        support=_describe_support(product, license_.support_until, texts, is_over=is_over),
        has_files=state is LicenseState.ACTIVE and services.offline_files.can_customers_issue(),
    )


def _describe_state(license_: IssuedLicense, state: LicenseState, texts: Texts) -> str:
    """Describe a state; the vendor's reason of a revocation is not for the customer."""
    ended, last = license_.subscription_ended_at, license_.expires_on
    match state:
        case LicenseState.REVOKED:
            return texts("revoked", date=texts.date(license_.revoked_at))
        case LicenseState.EXPIRED if last is None or (ended is not None and ended.date() <= last):
            return texts("expired.subscription", date=texts.date(ended))
        case LicenseState.EXPIRED:
            return texts("expired", date=texts.date(last))
        case LicenseState.ACTIVE if not license_.lifetime and ended is not None:
            return texts("active.until", date=texts.date(min(ended.date(), last or date.max)))
        case LicenseState.ACTIVE if not license_.lifetime and last is not None:
            return texts("active.until", date=texts.date(last))
        case LicenseState.ACTIVE if not license_.lifetime and license_.subscription_id is not None:
            return texts("active.subscription")
        case _:
            return texts("active")


def _describe_support(product: Product, until: date | None, texts: Texts, *, is_over: bool) -> str:
    if not product.has_support_policy or until is None:
        return ""
    return texts("support.over" if is_over else "support.until", date=texts.date(until))


# --- the look ---------------------------------------------------------------------------------


class Look:
    """The vendor's name, color and logo, and the templates that show them."""

    def __init__(self, settings: Settings) -> None:
        folder = files("licserver.web.account") / "assets"
        color = settings.account_color
        brand = f":root {{ --brand: {color}; --on-brand: {_text_color(color)}; }}\n"
        style = brand.encode() + (folder / "account.css").read_bytes()
        self._name = settings.account_name
        self.style = create_asset(HOME, "account.css", style)
        self.script = create_asset(HOME, "account.js", (folder / "account.js").read_bytes())
        self.logo = _load_logo(settings)
        self.assets = {one.path: one for one in (self.style, self.script, self.logo) if one is not None}

    def render(self, template: str, texts: Texts, **values: Any) -> bytes:
        """Render a page."""
        name = self._name or texts("title")
        return (
            _load_templates().get_template(template).render(t=texts, look=self, name=name, **values).encode()
        )


@cache  # as the console's
def _load_templates() -> "TemplateEnvironment":
    from jinja2 import Environment as TemplateEnvironment  # noqa: PLC0415 - most processes never render one
    from jinja2 import PackageLoader, StrictUndefined  # noqa: PLC0415

    return TemplateEnvironment(
        loader=PackageLoader("licserver.web.account"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def _load_logo(settings: Settings) -> Asset | None:
    file = settings.account_logo
    if file is None:
        return None
    kind = _LOGO_TYPES.get(file.suffix.lower())
    if kind is None:
        raise SettingsError("LICSERVER_ACCOUNT_LOGO: must be a .svg or .png file")
    try:
        content = file.read_bytes()
    except OSError as problem:
        raise SettingsError(f"LICSERVER_ACCOUNT_LOGO: cannot read {file}: {problem.strerror}") from None
    if len(content) > _MAX_LOGO:
        raise SettingsError(f"LICSERVER_ACCOUNT_LOGO: {file} is larger than 1 MiB")
    return create_asset(HOME, f"logo.{kind}", content)


def _text_color(color: str) -> str:
    """Return the color of text on a color: white if that is readable, otherwise black (WCAG 2, 1.4.3)."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)  # noqa: PLR2004
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return _LIGHT if 1.05 / (luminance + 0.05) >= _READABLE else _DARK
