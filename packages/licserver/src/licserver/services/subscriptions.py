"""Subscriptions, as far as licenses hang on them."""

from datetime import UTC, datetime

from licserver.database.repositories.licenses import Subscription
from licserver.errors import Unknown
from licserver.services.base import Room
from licserver.services.license_terms import check_subscription
from licserver.services.pagination import Page, check_limit, read_cursor, write_cursor, wrong_cursor


class Subscriptions(Room):
    """What licenses end with (D-09)."""

    def end_subscription(self, subscription_id: str, at: datetime | None = None) -> int:
        """End a subscription, now or at an instant; calling again moves the instant (D-09).

        Returns:
            How many licenses hang on it.

        Raises:
            Unknown: when none does.
            WrongUse: for what cannot be an id.
        """
        at = (at or self._clock()).astimezone(UTC)
        return self._set_end(subscription_id, at, "subscription.end")

    def resume_subscription(self, subscription_id: str) -> int:
        """Take the end of a subscription back: its licenses are as if it had never ended.

        Returns and raises: as `end_subscription`.
        """
        return self._set_end(subscription_id, None, "subscription.resume")

    def subscription(self, subscription_id: str) -> Subscription:
        """One subscription.

        Raises:
            Unknown: when no license hangs on it.
            WrongUse: for what cannot be an id.
        """
        check_subscription(subscription_id)
        found = self._records.subscription(subscription_id)
        if found is None:
            raise _none(subscription_id)
        return found

    def subscriptions(self, cursor: str | None = None, limit: int = 50) -> Page[Subscription]:
        """A page of all subscriptions, by their ids.

        Raises:
            WrongUse: for a cursor that is none of this list's.
        """
        check_limit(limit)
        after: str | None = None
        if cursor is not None:
            match read_cursor(cursor):
                case (str() as place,):
                    after = place
                case _:
                    raise wrong_cursor()
        found = self._records.subscriptions(after, limit + 1)
        more = len(found) > limit
        return Page(found[:limit], write_cursor([found[limit - 1].id]) if more else None)

    def _set_end(self, subscription_id: str, at: datetime | None, action: str) -> int:
        check_subscription(subscription_id)
        with self._records.together() as books:
            books.hold_subscription(subscription_id)  # a license that is just being sold ends as well
            count = books.end_subscription(subscription_id, at)
            if count == 0:
                raise _none(subscription_id)
            self._note(books, action, ("subscription", subscription_id), at=at, licenses=count)
        return count


def _none(subscription_id: str) -> Unknown:
    return Unknown(f"no license hangs on a subscription {subscription_id!r}")
