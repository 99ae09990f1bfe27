"""The license of the activated key for `require`: what is remembered, or an answer to a call."""

from typing import TYPE_CHECKING, Final

from licclient._core.activations import CLICK_SECONDS
from licclient._core.lazy import lazy
from licclient._core.log import debug, describe
from licclient._core.model import License, Outage
from licclient._core.policy import fall_back, from_cache
from licclient._core.runners import Flow
from licclient._core.session import (
    Session,
    activated_subject,
    find_success,
    last_outcome,
    license_or_raise,
)
from licclient._core.window_loop import limit_wait
from licclient._verification.flow import verify
from licclient.errors import LicclientError, NotActivatedError, ServiceUnavailableError

if TYPE_CHECKING:
    from licclient._core import status
else:
    status = lazy("licclient._core.status")

_NOT_ASKED: Final = "The license service has not been asked yet."


def not_asked() -> ServiceUnavailableError:
    """Return the error for an answer that was not waited for."""
    return ServiceUnavailableError(_NOT_ASKED, outage=Outage.PENDING)


def remembered_license(session: Session, wait: float | None) -> tuple[License | None, bool]:
    """Return the license if it holds without a call, grace included (D-59), and whether to ask the server.

    `wait` is as for `require`.

    Raises:
        NotActivatedError: No key was activated.
        LicclientError: What came of the last call, less than a minute ago (D-119).
    """
    settings, now = session.settings, session.now()
    file, activation = session.license_file(), session.activations.find()
    if file is not None and (activation is None or isinstance(file.result, License)):
        return license_or_raise(file.result), False
    if activation is None:
        raise NotActivatedError
    seconds = None
    if activation.key is None and settings.public_keys:  # what was signed is checked with the key
        seconds = limit_wait(wait)
        seconds = None if seconds is None else max(seconds, CLICK_SECONDS)
    subject = activated_subject(session, activation, session.domain(), seconds)
    cached, _ = find_success(session, subject, now)
    if (fresh := from_cache(cached, now, settings)) is not None:
        debug("The license holds by the cache: confirmed %s.", fresh.checked_at)
        return fresh, False
    result = fall_back(not_asked(), cached, now, settings)
    if isinstance(result, License):
        debug("The license holds in the grace period: confirmed %s; the server is asked.", result.checked_at)
        return result, True
    failed = status.failed_lately(last_outcome(session, subject), now, settings)
    if (problem := failed or session.failure.lately(activation, now)) is not None:
        debug("The server was asked less than a minute ago: %s", describe(problem))
        raise problem
    return None, True


def confirm(session: Session) -> Flow[License]:
    """Verify the activated key for `require`; a failure is raised again for a minute."""
    activation = session.activations.find()
    try:
        return (yield from verify(session, None, force=False))
    except LicclientError as problem:
        session.failure.note(activation, session.now(), problem)
        raise
