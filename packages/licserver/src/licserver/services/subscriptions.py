"""Subscriptions, as far as licenses are linked to them."""

from datetime import UTC, datetime

from licserver.database.repositories.subscriptions import Subscription
from licserver.errors import NotFoundError
from licserver.services.context import Context
from licserver.services.license_terms import check_subscription
from licserver.services.pagination import Page, check_limit, cut_page, read_place


class SubscriptionService:
    """Ends and resumes subscriptions (D-09)."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def end(self, subscription_id: str, at: datetime | None = None) -> int:
        """End a subscription, now or at an instant; calling again moves the instant.

        Returns:
            How many licenses are linked to it.

        Raises:
            NotFoundError: when none is.
            InvalidInputError: for an invalid id.
        """
        at = (at or self._context.now()).astimezone(UTC)
        return self._set_end(subscription_id, at, "subscription.end")

    def resume(self, subscription_id: str) -> int:
        """Undo the end of a subscription; its licenses are as if it had never ended.

        Returns and raises: as `end`.
        """
        return self._set_end(subscription_id, None, "subscription.resume")

    def get(self, subscription_id: str) -> Subscription:
        """Return one subscription.

        Raises:
            NotFoundError: when no license is linked to it.
            InvalidInputError: for an invalid id.
        """
        check_subscription(subscription_id)
        found = self._context.repositories.subscriptions.find(subscription_id)
        if found is None:
            raise _unknown(subscription_id)
        return found

    def list_page(self, cursor: str | None = None, limit: int = 50) -> Page[Subscription]:
        """Return a page of all subscriptions, by id.

        Raises:
            InvalidInputError: for a cursor of another list.
        """
        check_limit(limit)
        place = read_place(cursor, str)
        found = self._context.repositories.subscriptions.list_page(place[0] if place else None, limit + 1)
        return cut_page(found, limit, lambda last: [last.id])

    def _set_end(self, subscription_id: str, at: datetime | None, action: str) -> int:
        check_subscription(subscription_id)
        with self._context.transaction() as tx:
            tx.repositories.subscriptions.lock(subscription_id)  # a license issued meanwhile ends as well
            count = tx.repositories.subscriptions.set_end(subscription_id, at)
            if count == 0:
                raise _unknown(subscription_id)
            tx.write_audit(action, ("subscription", subscription_id), at=at, licenses=count)
        return count


def _unknown(subscription_id: str) -> NotFoundError:
    return NotFoundError(f"no license is linked to a subscription {subscription_id!r}")
