"""What is validated of a line that is imported, besides its license's terms."""

from datetime import datetime
from typing import Any, Final

from licserver.domain.decisions import (
    KEY_PREFIX,
    MAX_IMPORTED_KEY,
    MIN_IMPORTED_KEY,
    is_imported_key,
    is_license_key,
)
from licserver.domain.environments import (
    InvalidDomainError,
    is_printable,
    normalise_domain,
    normalise_ip,
    parse_ip,
)
from licserver.domain.records import Machine, Product
from licserver.domain.text import read_machine
from licserver.errors import InvalidInputError
from licserver.protocol.license_files import LicenseRow
from licserver.security.redaction import mask_machine
from licserver.services.licenses import MAX_REASON

_NEEDED: Final = (
    ("subscription_ended_at", "subscription_id", "subscription"),
    ("revoked_reason", "revoked_at", "revoked_at"),
)
"""What is meaningless alone: an end without a subscription could never be undone."""


def check_key(key: str, product: Product) -> None:
    """Validate a license key that was sold for a product, here or elsewhere."""
    if is_license_key(key):
        return
    if is_imported_key(key):
        if not product.accepts_imported_keys:
            raise InvalidInputError(
                "license_key: is not a CP- key; to accept such keys: "
                f"licserver product change {product.slug} --accept-imported-keys"
            )
        return
    if key.startswith(KEY_PREFIX):
        raise InvalidInputError("license_key: must be CP- and five groups of six letters and digits")
    if any(map(str.isspace, key)):
        raise InvalidInputError("license_key: must be one key without blanks")
    if MIN_IMPORTED_KEY <= len(key) <= MAX_IMPORTED_KEY and key.isascii() and key.isprintable():
        raise InvalidInputError("license_key: reads like a mistyped CP- key, which an app would correct")
    raise InvalidInputError(
        f"license_key: must have {MIN_IMPORTED_KEY} to {MAX_IMPORTED_KEY:,} letters, digits and ASCII signs"
    )


def check_row(row: LicenseRow) -> None:
    """Validate what only an import sets."""
    for name, needed, column in _NEEDED:
        if getattr(row, name) is not None and getattr(row, needed) is None:
            raise InvalidInputError(f"{name}: needs {column} beside it")
    for name in ("product_name", "revoked_reason"):
        text = getattr(row, name)
        if text is not None and not is_printable(text):
            raise InvalidInputError(f"{name}: must be one line of text")
    if len(row.revoked_reason or "") > MAX_REASON:
        raise InvalidInputError(f"revoked_reason: must be of at most {MAX_REASON} characters")


def read_activations(
    license_row: LicenseRow, key: str, issued_at: datetime, now: datetime, ipv6_prefix: int
) -> list[tuple[Any, ...]]:
    """Return the slots that a line takes, as rows of the database; each environment once."""
    taken = {}
    for row in license_row.activations:
        try:
            domain = normalise_domain(row.domain)
        except InvalidDomainError as problem:
            raise InvalidInputError(f"activations: a domain {problem}") from None
        address = parse_ip(row.ip.strip())
        if address is None:
            raise InvalidInputError("activations: an ip must be an address")
        ip = normalise_ip(address, ipv6_prefix)
        # Never without an instant: a sweep would free the slot, and no search by domain would find it.
        dates = row.activated_at or issued_at, row.last_seen_at or now
        machine = mask_machine(read_machine(row.label, row.app_version) or Machine(), key)
        taken[domain, ip] = (domain, ip, *dates, *machine, row.offline_until)
    return list(taken.values())
