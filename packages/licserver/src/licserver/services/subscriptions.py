"""Subscriptions of licenses: ended, resumed, and followed as a shop reports them."""

from collections.abc import Iterable
from datetime import UTC, datetime

from licserver.database.repositories.licenses import Subscription
from licserver.errors import NotFoundError
from licserver.services.context import Context, Service
from licserver.services.license_terms import check_subscription
from licserver.services.licenses import audit_object, find_license
from licserver.services.lists import Page, check_limit, cut_page, read_place
from licserver.services.webhooks import write_subscription_end


class SubscriptionService(Service):
    """Ends and resumes subscriptions."""

    def end(self, subscription_id: str, at: datetime | None = None) -> int:
        """End a subscription, now or at an instant; again to move it. Return how many licenses it has."""
        at = (at or self._context.now()).astimezone(UTC)
        return self._set_end(subscription_id, at, "subscription.end")

    def resume(self, subscription_id: str) -> int:
        """Undo the end of a subscription; return how many licenses are linked to it."""
        return self._set_end(subscription_id, None, "subscription.resume")

    def follow(self, subscription_id: str, ends_at: datetime | None) -> int:
        """Store the end that a shop reports; return how many licenses the subscription has, if any yet."""
        with self._context.transaction() as tx:
            return _move_end(tx, subscription_id, ends_at, "subscription.change")

    def link(self, ids: Iterable[bytes], subscription_id: str) -> None:
        """Link licenses to a subscription, unless they are linked to one; their end is for `follow`."""
        check_subscription(subscription_id)
        with self._context.transaction() as tx:
            for one in sorted(ids):
                if find_license(tx, one.hex()).subscription_id is None:
                    found = find_license(tx, one.hex(), locked=True)
                    tx.repositories.licenses.change(found, subscription_id=subscription_id)
                    tx.write_audit("license.change", audit_object(found), subscription_id="changed")

    def get(self, subscription_id: str) -> Subscription:
        """Return one subscription."""
        check_subscription(subscription_id)
        found = self._context.repositories.subscriptions.find(subscription_id)
        if found is None:
            raise _unknown(subscription_id)
        return found

    def list_page(self, cursor: str | None = None, limit: int = 50) -> Page[Subscription]:
        """Return a page of all subscriptions, by id."""
        check_limit(limit)
        place = read_place(cursor, str)
        subscriptions = self._context.for_lists().repositories.subscriptions
        found = subscriptions.list_page(place[0] if place else None, limit + 1)
        return cut_page(found, limit, lambda last: [last.id])

    def _set_end(self, subscription_id: str, at: datetime | None, action: str) -> int:
        check_subscription(subscription_id)
        with self._context.transaction() as tx:
            count = _move_end(tx, subscription_id, at, action)
            if count == 0:
                raise _unknown(subscription_id)
        return count


def _move_end(tx: Context, subscription_id: str, at: datetime | None, action: str) -> int:
    before = tx.repositories.subscriptions.lock(subscription_id)  # a license issued meanwhile ends as well
    count = tx.repositories.subscriptions.set_end(subscription_id, at)
    if count:
        tx.write_audit(action, ("subscription", subscription_id), at=at, licenses=count)
        write_subscription_end(tx, subscription_id, before, at)
    return count


def _unknown(subscription_id: str) -> NotFoundError:
    return NotFoundError(f"no license is linked to a subscription {subscription_id!r}")
