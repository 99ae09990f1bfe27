"""What a client with pinned release keys takes: the judgement, and the highest version that it remembers."""

from dataclasses import replace
from datetime import datetime

from licclient._manifest import judge_manifest
from licclient._model import Listing, Manifest, Settings, Update
from licclient._records import Document, read_highest, record_name, write_highest
from licclient._storage import Storage
from licclient.errors import LicclientError, UntrustedResponseError


class SignedReleases:
    """Demands that the vendor signed what can be downloaded, if release keys are pinned (D-67, D-68).

    Args:
        settings: Which keys are pinned, if any.
        state: Where the highest version is remembered that was found to be signed: one for each server and
            product, for all license keys.
    """

    def __init__(self, settings: Settings, state: Storage) -> None:
        self._settings = settings
        self._state = state

    def vouch(self, listing: Listing, now: datetime) -> Listing | UntrustedResponseError:
        """Judge what an answer offers, or what is remembered of one.

        Returns:
            The listing, with what was signed if keys are pinned; or why it is not to be offered. A version
            found to be signed is remembered if it is the highest, and none below it is taken again.
        """
        if not self._settings.release_keys:
            return listing
        known = self._state.load(self._name(listing.slug))
        judged = self._judge(listing, now, known)

        def raise_to(document: Document | None) -> Document | None:
            nonlocal judged
            judged = self._judge(listing, now, document)
            is_higher = isinstance(judged, Manifest) and judged.version != read_highest(document)
            return write_highest(listing.version) if is_higher else document

        if (
            raise_to(known) is not known
        ):  # mostly nothing is to be written, and then nobody waits for the lock
            self._state.change(self._name(listing.slug), raise_to)
        return judged if isinstance(judged, UntrustedResponseError) else replace(listing, vouched=judged)

    def expected(self, update: Update, now: datetime) -> Manifest | None:
        """Judge again what is to be downloaded: an app may have kept the update for days, or made it.

        Returns:
            What was signed; None when it does not hold, or no keys are pinned.
        """
        if not self._settings.release_keys:
            return None
        judged = self._judge(update, now, self._state.load(self._name(update.slug)))
        return judged if isinstance(judged, Manifest) else None

    def _judge(
        self, told: Listing | Update, now: datetime, document: Document | None
    ) -> Manifest | UntrustedResponseError:
        keys, highest = self._settings.release_keys, read_highest(document)
        return judge_manifest(told.manifest, told.slug, told.version, keys, highest, now)

    def _name(self, slug: str) -> str:
        return record_name("release", self._settings.server, slug)


def logged(problem: LicclientError) -> LicclientError:
    """Say in the log what a check that raises nothing keeps to itself: that somebody may be cheating."""
    if isinstance(problem, UntrustedResponseError):
        import logging  # noqa: PLC0415 - for this alone

        logging.getLogger("licclient").warning("No update is offered: %s", problem)
    return problem
