"""Staged rollouts of versions: share, pause, end, and how a version is doing."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from licserver.domain.records import IssuedLicense, Release, Rollout
from licserver.domain.rollout import current_share
from licserver.errors import InvalidInputError
from licserver.services.context import Context
from licserver.services.releases import ReleaseService

_ADOPTION: Final = timedelta(days=1)  # the update checks of today and yesterday


class RolloutStatus(NamedTuple):
    """How a version is doing.

    Args:
        release: Its first file.
        percent: Of all installations that are offered it.
        checks: Update checks of installations of this version, today and yesterday.
        checks_of_all: Those of the whole product.
        rolled_back: Installations that went back, as their apps report.
    """

    release: Release
    percent: float
    checks: int
    checks_of_all: int
    rolled_back: int


class RolloutService:
    """Changes rollouts of versions, and counts what comes of them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def get(self, slug: str, version: str) -> RolloutStatus:
        """Return how a version is doing."""
        files = ReleaseService(self._context).list_files(slug, version)
        repositories, now = self._context.repositories, self._context.now()
        checks = {
            one: count for _, one, count in repositories.statistics.sum_versions(now.date() - _ADOPTION, slug)
        }
        rollout = files[0].rollout
        return RolloutStatus(
            files[0],
            100.0 if rollout is None else round(current_share(rollout, now) * 100, 1),
            checks.get(files[0].version, 0),
            sum(checks.values()),
            repositories.rollbacks.count([one.id for one in files]),
        )

    def change(
        self, slug: str, version: str, *, percent: float | None = None, paused: bool | None = None
    ) -> RolloutStatus:
        """Pause or resume a rollout, or set its share, at which it then stays; 100 percent end it."""
        if (percent is None) == (paused is None):
            raise InvalidInputError("give the share of a rollout, or whether it is paused")
        with self._context.transaction() as tx:
            release = ReleaseService(tx).get(slug, version)
            before, now = release.rollout, tx.now()
            if before is None or release.withdrawn_at is not None:
                why = "is withdrawn" if release.withdrawn_at else "reaches all installations already"
                raise InvalidInputError(f"{slug} {release.version} {why}")
            after: Rollout | None = before
            if percent is not None:
                after = _set_share(percent, before, now)
            elif paused and before.paused_at is None:
                after = before._replace(paused_at=now)
            elif not paused and before.paused_at is not None:
                after = Rollout(before.plan, before.started_at + (now - before.paused_at))
            tx.repositories.releases.set_rollout(release, after)
            tx.write_audit(
                "release.rollout",
                ("release", f"{slug}/{release.version}"),
                share=f"{current_share(after, now) if after else 1:.0%}",
                paused=after is not None and after.paused_at is not None,
            )
        return self.get(slug, version)

    def count_rollback(
        self, license_: IssuedLicense, slug: str, version: str, domain: str, platform: str
    ) -> bool:
        """Count an installation that went back from a version; return whether it counts.

        It does once, if it is activated and its license's product has the version.
        """
        if slug != license_.product_slug:
            return False
        try:
            files = ReleaseService(self._context).list_files(slug, version)
        except InvalidInputError:
            return False
        release = next((one for one in files if one.platform == platform), files[0])
        return self._context.repositories.rollbacks.add(release.id, license_.id, domain, self._context.now())


def _set_share(percent: float, before: Rollout, now: datetime) -> Rollout | None:
    reached = current_share(before, now) * 100
    if not max(reached, 0.01) <= percent <= 100:  # noqa: PLR2004 - who was offered it stays among them
        raise InvalidInputError(
            f"{reached:.4g}% are reached already, and the share never falls: give one up to 100%; or pause "
            "the rollout, or withdraw the version to offer it to nobody"
        )
    written = round(percent, 2)
    if written < reached:
        written += 0.01
    return None if percent == 100 else Rollout(f"{written:.2f}%", now)  # noqa: PLR2004
