"""Lookups of licenses by key, id or e-mail address, and their names in the audit log and events."""

from typing import Any, Final

from licserver.domain.decisions import (
    is_imported_key,
    is_license_key,
)
from licserver.domain.records import IssuedLicense
from licserver.domain.text import parse_key_part, to_search_word
from licserver.errors import InvalidInputError, NotFoundError
from licserver.services import validation
from licserver.services.context import Context
from licserver.services.lists import MAX_PAGE
from licserver.services.products import find_product

_MAX_ALIKE: Final = 1_000  # candidates whose addresses begin as the requested address


def find_license(context: Context, reference: str, *, locked: bool = False) -> IssuedLicense:
    """Return a license by key or id; with `locked` its row is locked until the transaction ends.

    Case does not matter in a `CP-` key, as people write it in mails.
    """
    text = reference.strip()
    text = text.upper() if is_license_key(text.upper()) else text
    is_id, is_ours = validation.has_id_shape(text), is_license_key(text)
    # An imported key may have the shape of an id, as those of Easy Digital Downloads have.
    ids = [bytes.fromhex(text)] if is_id else []
    if is_ours or is_imported_key(text):
        ids.append(context.vault.license_id(text))
    for license_id in ids:
        if (license_ := context.repositories.licenses.find(license_id, locked=locked)) is not None:
            return license_
    if is_id or is_ours:
        raise NotFoundError("there is no such license; `licserver license list` shows the ids of all")
    if parse_key_part(text) is not None:
        raise InvalidInputError(
            "this is a part of a license key; `licserver license find` finds licenses by it"
        )
    raise InvalidInputError("this is neither a license key (CP- and five groups of six) nor a license id")


def find_by_key(context: Context, key: str, *, locked: bool = False) -> IssuedLicense | None:
    """Return the license of a key from an app or a customer; None if no license has exactly this key.

    An imported key is valid if its product accepts imported keys (D-185). A text that cannot be a key is
    looked up as well, so that all refusals take the same time.
    """
    license_ = context.repositories.licenses.find(context.vault.license_id(key), locked=locked)
    if license_ is None or is_license_key(key):
        return license_
    product = find_product(context, license_.product_slug)
    return license_ if is_imported_key(key) and product.accepts_imported_keys else None


def audit_object(license_: IssuedLicense) -> tuple[str, str]:
    """Return the kind and the id of a license for the audit log."""
    return "license", license_.id.hex()


def event_data(license_: IssuedLicense, **more: Any) -> dict[str, Any]:
    """Return the data of an event about a license."""
    return {"license_id": license_.id.hex(), **more}


def find_by_email(context: Context, email: str) -> list[IssuedLicense]:
    """Return the latest licenses of an e-mail address, `MAX_PAGE` at most."""
    ids = find_ids_by_email(context, email)
    licenses = context.repositories.licenses.find_all(ids) if ids else []
    return sorted(licenses, key=lambda license_: (license_.issued_at, license_.id), reverse=True)


def find_ids_by_email(context: Context, email: str) -> list[bytes]:
    """Return the ids of the latest licenses of an e-mail address, `MAX_PAGE` at most.

    An exact lookup, not the console's search, which interprets IP addresses and domains.
    """
    word, address = to_search_word(email), fold_email(email)
    begin_alike = context.repositories.license_search.list_addresses(word, _MAX_ALIKE)
    ids = [license_id for license_id, candidate in begin_alike.items() if fold_email(candidate) == address]
    return ids[:MAX_PAGE]


def fold_email(email: str) -> str:
    """Return the form of an address in which addresses are compared.

    Case is folded in ASCII only: ß and ss, or the Kelvin sign and k, are two mailboxes.
    """
    return email.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
