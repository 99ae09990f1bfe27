"""What support does for a customer: why a license was refused, what else there is, renewals, new keys."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from licserver.database.repositories.licenses import Activation
from licserver.database.repositories.statistics import KEPT_PER_LICENSE, Refusal
from licserver.domain.decisions import add_year, generate_license_key, mask_key
from licserver.domain.records import IssuedLicense
from licserver.errors import ConflictError, InvalidInputError
from licserver.services.context import Service
from licserver.services.licenses import LicenseService, add_licenses, audit_object, find_license
from licserver.services.lists import MAX_PAGE, LicenseFilter, Page
from licserver.services.products import find_product

MAX_MACHINES = 500  # on the page of a customer


class Customer(NamedTuple):
    """A page of a customer's licenses, each with its activations."""

    email: str
    licenses: Sequence[tuple[IssuedLicense, Sequence[Activation]]]
    cursor: str | None


class SupportService(Service):
    """Answers a customer's mail; a `reference` is a license key or an id."""

    def list_refusals(self, license_: IssuedLicense) -> list[Refusal]:
        """Return where a license was refused in the last 30 days, the latest first (D-193)."""
        refusals = self._context.repositories.refusals
        return refusals.list_recent(self._context.now(), KEPT_PER_LICENSE, license_.id)

    def list_latest_refusals(
        self, limit: int, product_id: int | None = None
    ) -> list[tuple[Refusal, IssuedLicense]]:
        """Return the latest refusals of all licenses, or of those of a product."""
        refusals = self._context.repositories.refusals
        found = refusals.list_recent(self._context.now(), limit, product_id=product_id)
        ids = list({one.license_id for one in found})
        by_id = {one.id: one for one in self._context.repositories.licenses.find_all(ids)} if ids else {}
        return [(one, by_id[one.license_id]) for one in found]

    def find_licenses(self, email: str) -> list[IssuedLicense]:
        """Return the latest licenses of an email address, `MAX_PAGE` at most; others may begin alike."""
        found, page = list[IssuedLicense](), Page[IssuedLicense]([], "")
        while page.cursor is not None and len(found) < MAX_PAGE:
            page = LicenseService(self._context).search(LicenseFilter(email), page.cursor or None, MAX_PAGE)
            found += _select(page.items, email)
        return found[:MAX_PAGE]

    def find_customer(self, email: str, cursor: str | None = None, limit: int = 50) -> Customer:
        """Return a page of the licenses of an email address, with the machines of each."""
        found = LicenseService(self._context).search(LicenseFilter(email), cursor, limit)
        theirs = _select(found.items, email)
        machines, licenses = defaultdict[bytes, list[Activation]](list), self._context.repositories.licenses
        ids = [one.id for one in theirs]
        for license_id, activation in licenses.list_machines(ids, MAX_MACHINES) if ids else ():
            machines[license_id].append(activation)
        return Customer(email, [(one, machines[one.id]) for one in theirs], found.cursor)

    def extend(self, reference: str) -> IssuedLicense:
        """Extend a license by a year: its last day and the end of its support, as far as it has them."""
        with self._context.transaction() as tx:
            found = find_license(tx, reference, locked=True)
            today = tx.now().date()
            dates = {"support_until": found.support_until}
            if not found.lifetime:
                dates["expires_on"] = found.expires_on
            new: dict[str, Any] = {name: add_year(day, today) for name, day in dates.items() if day}
            if not new:
                raise InvalidInputError("this license has neither a last day nor an end of support")
            return LicenseService(tx).change(reference, **new)

    def add_slot(self, reference: str) -> IssuedLicense:
        """Add a slot."""
        with self._context.transaction() as tx:
            found = find_license(tx, reference, locked=True)
            if found.slots is None:
                raise InvalidInputError("this license has unlimited slots")
            return LicenseService(tx).change(reference, slots=found.slots + 1)

    def reissue(self, reference: str) -> tuple[IssuedLicense, str]:
        """Revoke a license and issue one with the same terms and a new key; return it and its key (D-194)."""
        key = generate_license_key()
        with self._context.transaction() as tx:
            old = find_license(tx, reference)
            if old.subscription_id is not None:  # in the order of `SubscriptionService.end`
                tx.repositories.subscriptions.lock(old.subscription_id)
            old = find_license(tx, reference, locked=True)
            if old.revoked_at is not None:
                raise ConflictError("this license is revoked; reinstate it first, or issue another one")
            licenses, product = LicenseService(tx), find_product(tx, old.product_slug)
            new = licenses.prepare(product, old, key, product_name=old.product_name)
            add_licenses(tx, [new], product.slug)
            tx.repositories.sales.replace_license(old.id, new.id)
            licenses.revoke(old.id.hex(), f"replaced by {mask_key(key)}")
            tx.write_audit("license.reissue", audit_object(old), new=mask_key(key))
            return licenses.get(new.id.hex()), key


def _select(licenses: Sequence[IssuedLicense], email: str) -> list[IssuedLicense]:
    # Only in ASCII a letter's case does not matter: ß and ss, or a Kelvin sign and k, are two mailboxes.
    address = email.encode().lower()
    return [one for one in licenses if (one.customer_email or "").encode().lower() == address]
