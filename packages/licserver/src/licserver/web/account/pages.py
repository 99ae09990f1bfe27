"""The account page's texts by language, its license cards, and its look: templates, style sheet, logo."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from licserver import libraries
from licserver.domain.decisions import find_term, is_support_over, license_state
from licserver.domain.offers import OfferedProduct, list_downloads
from licserver.domain.records import (
    Activation,
    Environment,
    FileKind,
    IssuedLicense,
    LicenseState,
    Product,
    Release,
)
from licserver.domain.seats import Seat
from licserver.errors import SettingsError
from licserver.services.installation import Services
from licserver.services.lists import MAX_PAGE
from licserver.services.release_files import NAMES
from licserver.settings import Settings
from licserver.web.console.responses import Asset, create_asset

HOME: Final = "/account"

_LOGO_TYPES: Final = {".svg": "svg", ".png": "png"}
_MAX_LOGO: Final = 1 << 20  # bytes
_READABLE: Final = 4.5  # the contrast that WCAG 2 requires of text
_DARK, _LIGHT = "#000", "#fff"


# --- the language ----------------------------------------------------------------------------


class Texts:
    """The texts of a language."""

    def __init__(self, language: str) -> None:
        self.language = language
        file = files("licserver.web.account") / "texts" / f"{language}.json"
        self._texts: dict[str, str] = json.loads(file.read_text("utf-8"))

    def __call__(self, name: str, /, **values: object) -> str:
        """Return a text with its values filled in."""
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
    """Return the texts of a language of `LANGUAGES`."""
    return Texts(language)


# --- a license -------------------------------------------------------------------------------


class ActivatedComputer(NamedTuple):
    """A computer that holds a slot; its name is the app's label, otherwise the domain.

    `file_until` is empty unless it has a valid license file.
    """

    environment: Environment
    name: str
    first_seen: str
    last_seen: str
    file_until: str


class HeldSeat(NamedTuple):
    """A floating seat in use; its name is the app's label of the computer, otherwise the domain."""

    id: str
    name: str
    since: str


@dataclass(frozen=True, slots=True, repr=False)
class LicenseCard:
    """A license as the page shows it; without a repr, because it may hold a license key.

    Args:
        status: The license's state, in a sentence.
        key: The whole key, if the customer requested it.
        slots: The number of used and available slots, in words.
        seats: The number of used and available floating seats, in words; empty without floating seats.
        moves_left: The number of slots that the customer may free now; None if the product allows none.
        next_move: The day on which the customer may free a slot again; empty while `moves_left` is not 0.
        downloads: What can be downloaded now: the query of the link, its name, and the version.
        support: The end of updates, in words; empty if they do not end.
        has_files: Whether the customer may make license files for machines without a network.
        is_renewed: Whether a license file has to be replaced after each payment.
    """

    id: str
    product: str
    state: LicenseState
    status: str
    masked_key: str
    key: str | None
    slots: str
    machines: list[ActivatedComputer]
    has_more: bool
    seats: str
    held_seats: list[HeldSeat]
    moves_left: int | None
    next_move: str
    downloads: list[tuple[str, str, str]]
    support: str
    has_files: bool
    is_renewed: bool


class _RelatedObjects(NamedTuple):
    """The related objects of a license."""

    offered: OfferedProduct
    machines: tuple[list[Activation], bool]
    seats: list[Seat]
    moves: tuple[int, datetime | None]


def describe_all(
    services: Services,
    licenses: Sequence[IssuedLicense],
    products: Mapping[str, OfferedProduct],
    texts: Texts,
    now: datetime,
    keys: Mapping[bytes, str],
) -> list[LicenseCard]:
    """Load the related objects of licenses, each kind by a single query, and describe the licenses.

    `products` are those of the licenses, by slug.
    """
    held = services.seats.list_all_held(licenses)
    machines = services.licenses.list_first_activations(licenses, MAX_PAGE)
    moves = services.moves.list_moves_left(
        [(license_, products[license_.product_slug].product) for license_ in licenses]
    )
    return [
        _describe(
            services,
            license_,
            _RelatedObjects(
                products[license_.product_slug],
                activations,
                held[license_.id],
                of_license,
            ),
            texts,
            now,
            keys.get(license_.id),
        )
        for license_, activations, of_license in zip(licenses, machines, moves, strict=True)
    ]


def _describe(
    services: Services,
    license_: IssuedLicense,
    details: _RelatedObjects,
    texts: Texts,
    now: datetime,
    key: str | None,
) -> LicenseCard:
    offered, (machines, has_more), held, (moves_left, next_at) = details
    product = offered.product
    state, is_over = license_state(license_, now), is_support_over(product, license_, now)
    downloads = list_downloads(offered, license_.snapshot(), license_.channels, now)
    used, total = license_.slots_used, license_.slots
    seats = license_.floating_seats
    return LicenseCard(
        id=license_.id.hex(),
        product=license_.product_name,
        state=state,
        status=_describe_term(license_, texts, now),
        masked_key=services.licenses.mask_key(license_),
        key=key,
        slots=texts("slots.unlimited" if total is None else "slots.used", used=used, total=total),
        machines=[
            ActivatedComputer(
                activation.environment,
                activation.label or activation.environment.domain,
                texts.date(activation.activated_at),
                texts.date(activation.last_seen_at),
                texts.date(activation.offline_until)
                if activation.offline_until and activation.offline_until > now
                else "",
            )
            for activation in machines
        ],
        seats="" if seats is None else texts("slots.used", used=len(held), total=seats),
        held_seats=[
            HeldSeat(
                seat.id.hex(),
                seat.label or seat.domain,
                f"{texts.date(seat.taken_at)}, {seat.taken_at:%H:%M}",
            )
            for seat in held[:MAX_PAGE]
        ],
        has_more=has_more,
        moves_left=moves_left if product.customer_moves else None,
        next_move="" if moves_left or next_at is None else texts.date(next_at),
        downloads=[_describe_download(release) for release in downloads.values()],
        support=_describe_support(product, license_.support_until, texts, is_over=is_over),
        has_files=state is LicenseState.ACTIVE and services.offline_files.can_customers_issue(),
        is_renewed=license_.subscription_id is not None and not license_.lifetime,
    )


def _describe_download(release: Release) -> tuple[str, str, str]:
    """Return the query of a file's link, its platform and kind for people, and its version."""
    where = {"platform": release.platform}
    where |= {} if release.kind is FileKind.FOLDER else {"kind": release.kind.value}
    query = urlencode({name: text for name, text in where.items() if text})
    return query, ", ".join(filter(None, (release.platform, NAMES[release.kind]))), release.version


def _describe_term(license_: IssuedLicense, texts: Texts, now: datetime) -> str:
    """Describe how long a license is valid; the vendor's reason of a revocation is not for the customer."""
    term, end = find_term(license_, now)
    return texts(term, date=texts.date(end))


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
        self.assets = {
            asset.path: asset for asset in (self.style, self.script, self.logo) if asset is not None
        }

    def render(self, template: str, texts: Texts, **values: Any) -> bytes:
        """Render a page."""
        name = self._name or texts("title")
        return (
            _load_templates().get_template(template).render(t=texts, look=self, name=name, **values).encode()
        )


@cache  # as the console's
def _load_templates() -> "libraries.jinja2.Environment":
    jinja2 = libraries.jinja2
    return jinja2.Environment(
        loader=jinja2.PackageLoader("licserver.web.account"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
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


def _linearize(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4  # noqa: PLR2004 - by sRGB


def _text_color(color: str) -> str:
    """Return the color of text on a color: white if that is readable, otherwise black (WCAG 2, 1.4.3)."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = map(_linearize, parts)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return _LIGHT if 1.05 / (luminance + 0.05) >= _READABLE else _DARK
