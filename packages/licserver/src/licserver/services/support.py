"""Support for customers: refusals of a license, all licenses of an address, renewals, new keys."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from licserver.database.repositories.statistics import KEPT_PER_LICENSE, Refusal
from licserver.domain.decisions import add_year, generate_license_key, mask_key
from licserver.domain.records import Activation, IssuedLicense
from licserver.errors import ConflictError, InvalidInputError
from licserver.services.context import Service
from licserver.services.license_lookups import audit_object, find_by_email, find_license, fold_email
from licserver.services.license_search import LicenseFilter
from licserver.services.licenses import LicenseService, add_licenses
from licserver.services.products import find_product

MAX_MACHINES = 500  # on a page of a customer's licenses


class CustomerLicenses(NamedTuple):
    """A page of a customer's licenses, each with its activations."""

    email: str
    licenses: Sequence[tuple[IssuedLicense, Sequence[Activation]]]
    cursor: str | None


class SupportService(Service):
    """Operations for a customer's request; a `reference` is a license key or an id."""

    def list_refusals(self, license_: IssuedLicense) -> list[Refusal]:
        """Return the refusals of a license in the last 30 days, the latest first (D-193)."""
        refusals = self._context.repositories.refusals
        return refusals.list_recent(self._context.now(), KEPT_PER_LICENSE, license_.id)

    def list_latest_refusals(
        self, limit: int, product_id: int | None = None
    ) -> list[tuple[Refusal, IssuedLicense]]:
        """Return the latest refusals of all licenses, or of a product's licenses."""
        refusals = self._context.repositories.refusals
        latest = refusals.list_recent(self._context.now(), limit, product_id=product_id)
        ids = list({refusal.license_id for refusal in latest})
        by_id = (
            {license_.id: license_ for license_ in self._context.repositories.licenses.find_all(ids)}
            if ids
            else {}
        )
        return [(refusal, by_id[refusal.license_id]) for refusal in latest]

    def find_licenses(self, email: str) -> list[IssuedLicense]:
        """Return the latest licenses of an e-mail address, `MAX_PAGE` at most."""
        return find_by_email(self._context, email)

    def find_customer(self, email: str, cursor: str | None = None, limit: int = 50) -> CustomerLicenses:
        """Return a page of the licenses of an email address, with the machines of each."""
        page = LicenseService(self._context).search(LicenseFilter(email), cursor, limit)
        matching = _select(page.items, email)
        machines, licenses = defaultdict[bytes, list[Activation]](list), self._context.repositories.licenses
        ids = [license_.id for license_ in matching]
        for license_id, activation in licenses.list_machines(ids, MAX_MACHINES) if ids else ():
            machines[license_id].append(activation)
        return CustomerLicenses(
            email, [(license_, machines[license_.id]) for license_ in matching], page.cursor
        )

    def extend(self, reference: str) -> IssuedLicense:
        """Extend a license by a year: its last day and its end of support, if it has them."""
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference, locked=True)
            today = tx.now().date()
            dates = {"support_until": license_.support_until}
            if not license_.lifetime:
                dates["expires_on"] = license_.expires_on
            new: dict[str, Any] = {name: add_year(day, today) for name, day in dates.items() if day}
            if not new:
                raise InvalidInputError("this license has neither a last day nor an end of support")
            return LicenseService(tx).change(reference, **new)

    def add_slot(self, reference: str) -> IssuedLicense:
        """Add a slot."""
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference, locked=True)
            if license_.slots is None:
                raise InvalidInputError("this license has unlimited slots")
            return LicenseService(tx).change(reference, slots=license_.slots + 1)

    def reissue(self, reference: str) -> tuple[IssuedLicense, str]:
        """Replace a license by another with the same terms; return it and its new key (D-194)."""
        key = generate_license_key()
        with self._context.transaction() as tx:
            old = find_license(tx, reference)
            if old.subscription_id is not None:  # in the order of `SubscriptionService.end`
                tx.repositories.subscriptions.lock(old.subscription_id)
            old = find_license(tx, reference, locked=True)
            if old.revoked_at is not None:
                raise ConflictError("this license is revoked; reinstate it first, or issue another license")
            licenses, product = LicenseService(tx), find_product(tx, old.product_slug)
            new = licenses.prepare(product, old, key, product_name=old.product_name)
            add_licenses(tx, [new], product.slug)
            tx.repositories.sales.replace_license(old.id, new.id)
            licenses.revoke(old.id.hex(), f"replaced by {mask_key(key)}")
            tx.write_audit("license.reissue", audit_object(old), new=mask_key(key))
            return licenses.get(new.id.hex()), key


def _select(licenses: Sequence[IssuedLicense], email: str) -> list[IssuedLicense]:
    address = fold_email(email)
    return [license_ for license_ in licenses if fold_email(license_.customer_email or "") == address]
