"""Issuing license keys."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from licserver.database.repositories.licenses import IssuedLicense, NewLicense
from licserver.domain.decisions import draw_key
from licserver.domain.records import LicenseTerms, Product
from licserver.errors import WrongUse
from licserver.services import license_terms as agreed
from licserver.services.products import Products

ISSUE_BATCH: Final = 10_000
"""Licenses issued in one transaction: large enough to be fast, small enough to let others write."""


class Agreed(NamedTuple):
    """Terms that were checked, for a product that there is.

    Args:
        product: The product.
        terms: In the form in which they are kept.
        subscription_ended_at: For a license that comes from elsewhere; of others the books say.
    """

    product: Product
    terms: LicenseTerms
    subscription_ended_at: datetime | None = None


class Issuing(Products):
    """New licenses."""

    def issue(self, slug: str, terms: LicenseTerms, count: int = 1) -> Iterator[list[str]]:
        """Issue license keys, a batch at a time.

        Args:
            slug: The product.
            terms: What is agreed.
            count: How many keys.

        Returns:
            Batches of keys; each is in the books when it is handed out. All checks are done before
            the first.

        Raises:
            Unknown: for an unknown product.
            WrongUse: for terms that cannot be.
        """
        if count < 1:
            raise WrongUse("the count must be at least 1")
        return self._issue_batches(self.agree(slug, terms), count)

    def issue_one(self, slug: str, terms: LicenseTerms) -> tuple[IssuedLicense, str]:
        """Issue one license.

        Returns:
            The license, and its key.

        Raises:
            Unknown, WrongUse: as `issue`.
        """
        key = draw_key()
        new = self.prepare(self.agree(slug, terms), key)
        with self.together() as bound:
            bound._write([new], slug)  # noqa: SLF001 - our own
            return self._just_issued(bound, new.id), key

    def agree(self, slug: str, terms: LicenseTerms) -> Agreed:
        """Check terms, and bring them into the form in which they are kept.

        Raises:
            Unknown, WrongUse: as `issue`.
        """
        agreed.check_lifetime(lifetime=terms.lifetime, has_expiry=terms.expires_on is not None)
        agreed.check_slots(terms.slots)
        subscription = terms.subscription_id
        if subscription is not None:
            agreed.check_subscription(subscription)
        product = self.product(slug)
        terms = terms._replace(
            allowed=agreed.read_entries(terms.allowed, self.settings.ipv6_prefix),
            customer_email=agreed.read_email(terms.customer_email),
            note=agreed.read_note(terms.note),
        )
        return Agreed(product, terms)

    def prepare(self, agreed_: Agreed, key: str, issued_at: datetime | None = None) -> NewLicense:
        """Make the record of a license that is about to be issued; nothing is written.

        Args:
            agreed_: From `agree`.
            key: Its key, of the right shape.
            issued_at: When; now unless given, for keys that come from elsewhere.
        """
        product, terms, ended_at = agreed_
        return NewLicense(
            id=self.vault.license_id(key),
            sealed_key=self.vault.seal(key),
            product_id=product.id,
            product_name=product.name,
            issued_at=issued_at or self._clock(),
            expires_on=terms.expires_on,
            lifetime=terms.lifetime,
            slots=terms.slots,
            allowed=terms.allowed,
            subscription_id=terms.subscription_id,
            subscription_ended_at=ended_at,
            support_until=terms.support_until,
            customer_email=terms.customer_email,
            note=terms.note,
        )

    def _issue_batches(self, agreed_: Agreed, count: int) -> Iterator[list[str]]:
        for done in range(0, count, ISSUE_BATCH):
            keys = [draw_key() for _ in range(min(ISSUE_BATCH, count - done))]
            now = self._clock()
            self._write([self.prepare(agreed_, key, now) for key in keys], agreed_.product.slug)
            yield keys

    def _write(self, new: list[NewLicense], slug: str) -> None:
        # A line for each of a million keys would bury what else the log says.
        object_ = ("license", new[0].id.hex()) if len(new) == 1 else ("product", slug)
        with self._records.together() as books:
            # Here and not before: it may have ended since the batch before, or a moment ago (D-09).
            subscriptions = {one.subscription_id for one in new if one.subscription_id is not None}
            ends = {one: books.hold_subscription(one) for one in sorted(subscriptions)}
            if ends:
                new = [replace(one, subscription_ended_at=ends.get(one.subscription_id or "")) for one in new]
            books.issue(new)
            self._note(books, "license.issue", object_, product=slug, count=len(new))

    def _just_issued(self, bound: "Issuing", license_id: bytes) -> IssuedLicense:
        (issued,) = bound._records.licenses_of([license_id])  # noqa: SLF001 - our own
        return issued
