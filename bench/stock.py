"""Filling a data folder with licenses, and remembering some of their keys."""

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from packaging.version import Version
from sqlalchemy import func, insert, select

from licserver.clock import system_clock
from licserver.database.tables.licenses import activations
from licserver.domain.decisions import generate_license_key
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.domain.versions import version_key
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.response_signatures import live_keys
from licserver.security.secrets_file import add_signing_key, signing_keys
from licserver.services.installation import Services, open_services
from licserver.settings import Settings

SLUG: Final = "bench-notes"
DOMAIN: Final = "home.example"
PEER: Final = "127.0.0.1"
SAMPLE: Final = 50_000
SAMPLE_FILE: Final = "sample.json"
_BATCH: Final = 20_000


def stock(settings: Settings, count: int) -> list[str]:
    """Bring a data folder to `count` licenses, each activated for our one environment.

    Args:
        settings: The data folder and database; kept between runs, because filling takes a while.
        count: How many licenses it shall hold.

    Returns:
        Up to 50,000 keys, drawn evenly from all.
    """
    if not live_keys(signing_keys(settings)):
        add_signing_key(settings, PrivateKey.generate(), system_clock())
    sample_file = settings.data_dir / SAMPLE_FILE
    if sample_file.exists():
        return read_sample(settings.data_dir)
    services = open_services(settings)
    try:
        services.products.add(SLUG, "Bench Notes", EnvironmentPolicy.STRICT)
        for version in ("1.0.0", "1.1.0"):
            _publish(services, version)
        keys: list[str] = []
        for batch in _issue(services, count):
            keys += random.sample(batch, max(1, len(batch) * SAMPLE // max(count, SAMPLE)))
    finally:
        services.close()
    sample_file.write_text(json.dumps(keys))
    return keys


def read_sample(data_dir: Path) -> list[str]:
    """Return the keys that `stock` remembers."""
    keys: list[str] = json.loads((data_dir / SAMPLE_FILE).read_text())
    return keys


def _publish(services: Services, version: str) -> None:
    artifact = services.artifacts.store(io.BytesIO(b"zip"), f"{SLUG}-{version}.zip")
    product = services.products.get(SLUG)
    services.repositories.releases.add(
        product.id,
        version,
        version_key(Version(version)),
        "<ul><li>Faster.</li></ul>",
        artifact,
        system_clock(),
    )


def _issue(services: Services, count: int) -> Iterator[list[str]]:
    product = services.products.get(SLUG)
    for done in range(0, count, _BATCH):
        now = system_clock()
        keys = [generate_license_key() for _ in range(min(_BATCH, count - done))]
        terms = LicenseTerms(slots=2_000_000_000)
        new = [services.licenses.prepare(product, terms, key, now) for key in keys]
        services.repositories.licenses.add_all(new)
        rows: list[dict[str, Any]] = [
            {"license_id": license_.id, "domain": DOMAIN, "ip": PEER, "activated_at": now} for license_ in new
        ]
        with services.database.writing() as connection:
            connection.execute(insert(activations), sorted(rows, key=lambda row: row["license_id"]))
        yield keys


def count_activations(services: Services) -> int:
    """Count the activations in the database, to check that a round of new ones wrote them."""
    with services.database.reading() as connection:
        return connection.scalar(select(func.count()).select_from(activations)) or 0
