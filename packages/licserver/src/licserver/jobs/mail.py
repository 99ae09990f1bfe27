"""Sends mail in the background."""

from datetime import timedelta
from typing import Any, Final

from licserver import libraries
from licserver.database.repositories.queue import Job
from licserver.domain.mail_addresses import parse_sender
from licserver.errors import BuryJobError, RetryJobError
from licserver.jobs.worker import JobWorker
from licserver.security.redaction import mask
from licserver.services.installation import Services
from licserver.services.mail import CODES, KEYS, NOTICES, SCAN_SECONDS
from licserver.settings import MailTls, Settings

TIMEOUT: Final = 30.0  # seconds for each command
LEASE: Final = timedelta(minutes=3)
_PORTS: Final = {MailTls.TLS: 465, MailTls.STARTTLS: 587, MailTls.NONE: 25}
_PERMANENT: Final = 500  # of the statuses of SMTP
_AT_ONCE: Final = {CODES: 2, KEYS: 2, NOTICES: 1}
"""Connections of a process to the mail server."""

_NO_UTF8: Final = (
    "the mail server takes no address with other letters than ASCII before the @ (it offers no SMTPUTF8); "
    "write to this customer in another way"
)


def register_mail(worker: JobWorker, services: Services) -> None:
    """Let a process send mail, if the settings name a server for it."""
    if not services.mail.is_on:
        return
    options = _connection_options(services.settings)

    async def send(job: Job) -> bool:
        aiosmtplib = libraries.aiosmtplib
        message = await worker.on_thread(lambda: services.mail.render(job))
        if message is None:
            return await worker.on_thread(lambda: services.mail.skip(job))
        try:
            await aiosmtplib.send(message, **options)
        except aiosmtplib.SMTPAuthenticationError as problem:  # a wrong setting, not a fault of this mail
            raise RetryJobError(f"the mail server refused user or password ({problem.code})") from None
        except aiosmtplib.SMTPRecipientsRefused as problem:
            refused = problem.recipients[0]
            raise _failure(refused.code, refused.message, message["To"]) from None
        except aiosmtplib.SMTPResponseException as problem:
            raise _failure(problem.code, problem.message, message["To"]) from None
        except aiosmtplib.SMTPNotSupported:  # repeating it would not help
            raise BuryJobError(_NO_UTF8) from None
        except (aiosmtplib.SMTPException, OSError) as problem:
            raise RetryJobError(f"the mail server cannot be reached ({type(problem).__name__})") from None
        return False

    for queue, at_once in _AT_ONCE.items():
        worker.register(queue, send, lease=LEASE, at_once=at_once)
    worker.every(SCAN_SECONDS, services.mail.send_ending)


def _connection_options(settings: Settings) -> dict[str, Any]:
    password = settings.mail_password
    return {
        "hostname": settings.mail_host,
        "port": settings.mail_port or _PORTS[settings.mail_tls],
        "use_tls": settings.mail_tls is MailTls.TLS,
        "start_tls": settings.mail_tls is MailTls.STARTTLS,  # not None, which continues without TLS
        "username": settings.mail_user,
        "password": None if password is None else password.get_secret_value(),
        # Not the machine's name: its lookup may take seconds.
        "local_hostname": parse_sender(settings.mail_sender or "").domain,
        "timeout": TIMEOUT,
    }


def _failure(code: int, text: str, address: str) -> Exception:
    # Servers quote the customer's address, which must not be stored in the job's error.
    reason = " ".join(mask(text.replace(str(address), "…")).split())
    message = f"the mail server answered {code}: {reason}"
    return BuryJobError(message) if code >= _PERMANENT else RetryJobError(message)
