"""Start the trial of this computer (D-234)."""

from collections.abc import Callable

from licclient._core.computer import hash_machine, read_machine_id
from licclient._core.model import License, Reason
from licclient._core.runners import Flow
from licclient._core.session import Session
from licclient._trials.protocol import read_trial, trial_call
from licclient.errors import LicclientError, LicenseRefusedError

Verify = Callable[[Session, str], Flow[License]]
"""Verifies a key by a call."""


def start_trial(session: Session, verify: Verify) -> Flow[License]:
    """Request the key of this computer's trial, then verify and remember it as `activate` does."""
    settings = session.settings
    if settings.slug is None:
        raise ValueError("a trial needs slug= when the client is made")
    # A storage for tests is a computer of its own.
    machine_id = getattr(session.storage, "machine_id", None) or read_machine_id()
    domain = session.domain()
    machine = hash_machine(settings.slug, machine_id or domain)
    unknown = LicenseRefusedError(Reason.TRIAL_NOT_OFFERED, "This license service has no trials.")
    call = trial_call(settings, settings.slug, machine, domain)
    session.activations.find()  # before a trial is used up: it must be possible to remember the key
    key = yield from session.call(call, read_trial, "", unknown=unknown)
    if isinstance(key, LicclientError):
        raise key
    license_ = yield from verify(session, key)
    session.remember_key(key)
    return license_
