"""Subscriptions: ended and resumed by the vendor, or updated from a shop's reports."""

from collections.abc import Iterable
from datetime import UTC, datetime

from licserver.database.repositories.licenses import SubscriptionLicenses
from licserver.errors import NotFoundError
from licserver.services import validation
from licserver.services.context import Service
from licserver.services.license_events import write_subscription_end
from licserver.services.license_lookups import audit_object, find_license
from licserver.services.lists import Page, check_limit, cut_page, read_place


class SubscriptionService(Service):
    """Ends and resumes subscriptions, and stores the ends that shops report."""

    def end(self, subscription_id: str, at: datetime | None = None) -> int:
        """End a subscription now or at an instant; repeat it to move the end. Return its license count."""
        at = (at or self._context.now()).astimezone(UTC)
        self.get(subscription_id)
        return self.follow(subscription_id, at, "subscription.end")

    def resume(self, subscription_id: str) -> int:
        """Undo the end of a subscription; return its license count.

        That of a shop gets the end back that the shop reported: without one its licenses would never end,
        since later reports leave what a person has changed.
        """
        self.get(subscription_id)
        ends = self._context.repositories.sales.list_applied_ends(subscription_id)
        return self.follow(subscription_id, ends[-1] if ends else None, "subscription.resume")

    def follow(
        self, subscription_id: str, ends_at: datetime | None, action: str = "subscription.change"
    ) -> int:
        """Store the end that a shop reports; return the subscription's license count, which may be 0."""
        with self._context.transaction() as tx:
            # Locked first: a license that is issued at the same time ends as well.
            before = tx.repositories.subscriptions.lock(subscription_id)
            count = tx.repositories.subscriptions.set_end(subscription_id, ends_at)
            if count:
                tx.write_audit(action, ("subscription", subscription_id), at=ends_at, licenses=count)
                write_subscription_end(tx, subscription_id, before, ends_at)
        return count

    def link(self, ids: Iterable[bytes], subscription_id: str) -> None:
        """Link licenses to a subscription, with which they end from now on."""
        validation.check_subscription(subscription_id)
        with self._context.transaction() as tx:
            end = tx.repositories.subscriptions.lock(subscription_id)
            for license_id in sorted(ids):
                license_ = find_license(tx, license_id.hex(), locked=True)
                tx.repositories.licenses.change(
                    license_, subscription_id=subscription_id, subscription_ended_at=end
                )
                tx.write_audit("license.change", audit_object(license_), subscription_id="changed")

    def get(self, subscription_id: str) -> SubscriptionLicenses:
        """Return a subscription."""
        validation.check_subscription(subscription_id)
        subscription = self._context.repositories.subscriptions.find(subscription_id)
        if subscription is None:
            raise NotFoundError(f"no license is linked to a subscription {subscription_id!r}")
        return subscription

    def has_ended(self, subscription_id: str) -> bool:
        """Return whether a subscription has ended by now; False if no license is linked to it."""
        subscription = self._context.repositories.subscriptions.find(subscription_id)
        ended_at = None if subscription is None else subscription.ended_at
        return ended_at is not None and ended_at <= self._context.now()

    def list_page(self, cursor: str | None = None, limit: int = 50) -> Page[SubscriptionLicenses]:
        """Return a page of all subscriptions, by id."""
        check_limit(limit)
        place = read_place(cursor, str)
        subscriptions = self._context.for_lists().repositories.subscriptions
        page = subscriptions.list_page(place[0] if place else None, limit + 1)
        return cut_page(page, limit, lambda last: [last.id])
