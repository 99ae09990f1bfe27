"""Start the trial of this computer."""

from licclient._flows.activation import remember_key
from licclient._flows.context import Context
from licclient._flows.runners import Flow, send_with_retries
from licclient._flows.verification import installation_domain, verify, with_nonce
from licclient._machine import hash_machine, read_machine_id
from licclient._model import License
from licclient._protocol.trials import trial_call
from licclient._signatures.responses import read_trusted_trial
from licclient.errors import LicclientError, ServiceUnavailableError


def start_trial(context: Context) -> Flow[License]:
    """Request the key of this computer's trial, then verify and remember it as `activate` does.

    Raises:
        ValueError: The client has no slug.
        LicclientError: As `LicenseClient.start_trial`.
    """
    settings = context.settings
    if settings.slug is None:
        raise ValueError("a trial needs slug= when the client is made")
    # A storage for tests is a computer of its own.
    machine_id = getattr(context.storage, "machine_id", None) or read_machine_id()
    machine = hash_machine(settings.slug, machine_id or installation_domain(context))
    call = with_nonce(context, trial_call(settings, settings.slug, machine))
    attempt = yield from send_with_retries(call, settings.timeout.total_seconds())
    if isinstance(attempt.result, ServiceUnavailableError):
        raise attempt.result
    key = read_trusted_trial(call, attempt.result, settings, context.now())
    if isinstance(key, LicclientError):
        raise key
    found = yield from verify(context, key, force=True)
    remember_key(context, key)
    return found
