"""Start the trial of this computer."""

from licclient._flows.activation import remember_key
from licclient._flows.context import Context
from licclient._flows.runners import Flow
from licclient._flows.verification import ask, installation_domain, verify
from licclient._machine import hash_machine, read_machine_id
from licclient._model import License, Reason
from licclient._protocol.trials import read_trial, trial_call
from licclient.errors import LicclientError, LicenseRefusedError


def start_trial(context: Context) -> Flow[License]:
    """Request the key of this computer's trial, then verify and remember it as `activate` does."""
    settings = context.settings
    if settings.slug is None:
        raise ValueError("a trial needs slug= when the client is made")
    # A storage for tests is a computer of its own.
    machine_id = getattr(context.storage, "machine_id", None) or read_machine_id()
    domain = installation_domain(context)
    machine = hash_machine(settings.slug, machine_id or domain)
    unknown = LicenseRefusedError(Reason.TRIAL_NOT_OFFERED, "This license service has no trials.")
    call = trial_call(settings, settings.slug, machine, domain)
    key = yield from ask(context, call, read_trial, unknown=unknown)
    if isinstance(key, LicclientError):
        raise key
    found = yield from verify(context, key, force=True)
    remember_key(context, key)
    return found
