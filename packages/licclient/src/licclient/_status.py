"""The status of the license of this computer, from what is remembered."""

from dataclasses import replace

from licclient._core.activations import CLICK_SECONDS, QUICK_SECONDS
from licclient._core.model import License
from licclient._core.session import Session, activated_subject, last_outcome
from licclient._core.status import LicenseState, LicenseStatus, evaluate_status
from licclient._core.window_loop import is_in_window_loop
from licclient._updates.check import NOT_CHECKED, remembered_check
from licclient.errors import StateUnreadableError


def status(session: Session) -> LicenseStatus:
    """Describe the license of the activated key, from the cache."""
    try:
        return _status(session)
    except StateUnreadableError as problem:
        return LicenseStatus(LicenseState.UNCONFIRMED, message=problem.message)


def _status(session: Session) -> LicenseStatus:
    activation, file = session.activations.find(), session.license_file()
    check = NOT_CHECKED if activation is None else remembered_check(session, activation)
    if file is not None and (activation is None or isinstance(file.result, License)):
        return replace(
            file.describe(session.now(), check.update), is_update_required=check.is_update_required
        )
    if activation is None:
        return LicenseStatus(LicenseState.NOT_ACTIVATED)
    seconds = CLICK_SECONDS if activation.key is None and is_in_window_loop() else QUICK_SECONDS
    subject = activated_subject(session, activation, session.domain(), seconds)
    status = evaluate_status(
        session.successes.find(subject),
        last_outcome(session, subject),
        session.now(),
        session.settings,
        key_hint=activation.hint,
        update=check.update,
    )
    return replace(status, is_update_required=check.is_update_required)
