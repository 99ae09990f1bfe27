"""What `licserver demo` shows: two products, three keys to try, and a shop's last weeks, drawn by lot."""

import io
import random
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

from licserver.clock import system_clock
from licserver.database.repositories.statistics import CountKey, add_counts
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.protocol.license_files import ActivationRow, LicenseRow
from licserver.services import Services

SLUG: Final = "demo-notes"
_OTHER: Final = "demo-paint"
_PRODUCTS: Final = ((SLUG, "Demo Notes", ("1.0.0", "1.1.0")), (_OTHER, "Demo Paint", ("2.3.1",)))
_CHANGELOGS: Final = {"1.1.0": "<ul><li>Export to PDF.</li></ul>"}

_LICENSES: Final = 300
_DAYS: Final = 60
_FIRST_NAMES: Final = ("anna", "ben", "chiara", "dmitri", "elif", "fatou", "george", "hana", "ines", "jun")
_LAST_NAMES: Final = (
    "abe",
    "brown",
    "costa",
    "diallo",
    "evans",
    "fischer",
    "garcia",
    "novak",
    "rossi",
    "yilmaz",
)
_LABELS: Final = (None, "MacBook, Berlin office", "Office PC", "Laptop for travel", "Studio PC")
_VERDICTS: Final = {"valid": 1.0, "slots full": 0.04, "expired": 0.06, "revoked": 0.01, "unknown": 0.02}
"""Verdict → its share of the verify calls that succeed."""
_WEEKDAYS: Final = (1.0, 1.1, 1.1, 1.0, 0.9, 0.6, 0.5)


@dataclass(frozen=True, slots=True, repr=False)
class DemoKeys:
    """The license keys to try; without a repr, because keys are credentials."""

    active: str
    expired: str
    revoked: str


def fill(services: Services, folder: Path) -> DemoKeys:
    """Fill an empty installation; files to publish are written into the folder."""
    for slug, name, versions in _PRODUCTS:
        services.products.add(slug, name, EnvironmentPolicy.DOMAIN)
        for version in versions:
            file = folder / f"{slug}-{version}.zip"
            file.write_bytes(_make_zip(name, version))
            services.releases.publish(slug, version, file, _CHANGELOGS.get(version, "The first version."))
    now, lot = system_clock(), random.Random(1)  # noqa: S311 - the same shop every time
    with services.transfer.start_import() as filled:
        filled.read(enumerate(_draw_licenses(lot, now), start=1))
        filled.prepare()
        filled.commit()
    for back in range(_DAYS):
        day = now.date() - timedelta(days=back)
        add_counts(services.database, day, dict(_draw_counts(lot, day, _DAYS - back)))
    today = now.date()
    terms = (
        LicenseTerms(slots=3, expires_on=today + timedelta(days=365)),
        LicenseTerms(expires_on=today - timedelta(days=1)),
        LicenseTerms(lifetime=True),
    )
    keys = DemoKeys(*(services.licenses.issue(SLUG, one)[1] for one in terms))
    services.licenses.revoke(keys.revoked, "refunded")
    return keys


def _draw_licenses(lot: random.Random, now: datetime) -> Iterator[LicenseRow]:
    """Draw what was sold: older licenses expired, a few of them refunded, most of them in use."""
    ages = sorted((lot.triangular(0, 600, 30) for _ in range(_LICENSES)), reverse=True)
    for order, days in enumerate(ages):
        issued_at = now - timedelta(days=days)
        lifetime, refunded = _happens(lot, 0.1), _happens(lot, 0.04)
        slots = lot.choice((1, 1, 2, 3, 5))
        yield LicenseRow(
            product=SLUG if _happens(lot, 0.7) else _OTHER,
            issued_at=issued_at,
            expires_on=None if lifetime else issued_at.date() + timedelta(days=365),
            lifetime=lifetime,
            slots=slots,
            customer_email=f"{lot.choice(_FIRST_NAMES)}.{lot.choice(_LAST_NAMES)}@example.com",
            note=f"Order {10_000 + order}",
            revoked_at=min(now, issued_at + timedelta(days=3)) if refunded else None,
            revoked_reason="refunded" if refunded else None,
            activations=tuple(_draw_activation(lot, issued_at, now) for _ in range(lot.randint(0, slots))),
        )


def _happens(lot: random.Random, probability: float) -> bool:
    return lot.random() < probability


def _draw_activation(lot: random.Random, issued_at: datetime, now: datetime) -> ActivationRow:
    activated_at = issued_at + (now - issued_at) * lot.random() ** 4
    return ActivationRow(
        domain=str(UUID(int=lot.getrandbits(128), version=4)),
        ip=f"198.51.100.{lot.randint(1, 254)}",
        activated_at=activated_at,
        last_seen_at=now - (now - activated_at) * lot.random() ** 6,
        label=lot.choice(_LABELS),
    )


_OF_NO_PRODUCT: Final = {"unknown", "malformed"}


def _draw_counts(lot: random.Random, day: date, age: int) -> Iterator[tuple[CountKey, int]]:
    """Draw the counts of a day: more and more customers, fewer of them at weekends."""
    usual, slugs = 60 + 3 * age, [slug for slug, *_ in _PRODUCTS]
    busy = usual * _WEEKDAYS[day.weekday()] * lot.uniform(0.85, 1.15)
    for verdict, share in _VERDICTS.items():
        for slug in [""] if verdict in _OF_NO_PRODUCT else slugs:
            yield CountKey("verify", slug, verdict), round(busy * share * lot.uniform(0.9, 1.1) / len(slugs))
    for slug in slugs:
        yield CountKey("activation", slug, ""), round(busy * 0.05 * lot.uniform(0.5, 1.5) / len(slugs))
    for slug, _, versions in _PRODUCTS:
        for version in versions:
            yield CountKey("update", slug, version), round(busy * lot.uniform(0.2, 0.5))


def _make_zip(name: str, version: str) -> bytes:
    """Return a zip with a small program and a MiB that does not compress, so that downloads take time."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name.lower().replace(' ', '_')}.py", f'print("{name} {version}")\n')
        archive.writestr("picture.raw", random.Random(version).randbytes(1 << 20))  # noqa: S311 - padding
    return packed.getvalue()
