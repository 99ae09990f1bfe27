"""Sends mail in the background."""

from datetime import timedelta
from typing import Any, Final

from licserver.database.repositories.queue import Job
from licserver.errors import BuryJobError, RetryJobError
from licserver.security.redaction import mask
from licserver.services import Services
from licserver.services.mail import MAIL, SCAN_SECONDS, sender_domain
from licserver.settings import MailTls, Settings
from licserver.web.background import BackgroundWorker

TIMEOUT: Final = 30.0  # seconds for each command
LEASE: Final = timedelta(minutes=3)
_PORTS: Final = {MailTls.TLS: 465, MailTls.STARTTLS: 587, MailTls.NONE: 25}
_PERMANENT: Final = 500  # of the statuses of SMTP


def register_mail(background: BackgroundWorker, services: Services) -> None:
    """Let a process send mail, if the settings name a server for it."""
    if not services.mail.is_on:
        return
    options = _connection_options(services.settings)

    async def send(job: Job) -> None:
        import aiosmtplib  # noqa: PLC0415 - only where mail is on

        message = await background.on_thread(lambda: services.mail.render(job))
        if message is None:
            return
        try:
            await aiosmtplib.send(message, **options)
        except aiosmtplib.SMTPAuthenticationError as problem:  # the vendor's fault, and not this mail's
            raise RetryJobError(f"the mail server refused user or password ({problem.code})") from None
        except aiosmtplib.SMTPRecipientsRefused as problem:
            refused = problem.recipients[0]
            raise _failure(refused.code, refused.message, message["To"]) from None
        except aiosmtplib.SMTPResponseException as problem:
            raise _failure(problem.code, problem.message, message["To"]) from None
        except (aiosmtplib.SMTPException, OSError) as problem:
            raise RetryJobError(f"the mail server cannot be reached ({type(problem).__name__})") from None

    background.register(MAIL, send, lease=LEASE, at_once=2)
    background.every(SCAN_SECONDS, services.mail.send_ending)


def _connection_options(settings: Settings) -> dict[str, Any]:
    password = settings.mail_password
    return {
        "hostname": settings.mail_host,
        "port": settings.mail_port or _PORTS[settings.mail_tls],
        "use_tls": settings.mail_tls is MailTls.TLS,
        "start_tls": settings.mail_tls is MailTls.STARTTLS,  # not None, which goes on without it
        "username": settings.mail_user,
        "password": None if password is None else password.get_secret_value(),
        # Not the name that the system has for this machine: asking for it may take seconds.
        "local_hostname": sender_domain(settings.mail_sender or ""),
        "timeout": TIMEOUT,
    }


def _failure(code: int, text: str, address: str) -> Exception:
    # Servers quote the customer's address, which the list of jobs need not have.
    reason = " ".join(mask(text.replace(str(address), "…")).split())
    message = f"the mail server answered {code}: {reason}"
    return BuryJobError(message) if code >= _PERMANENT else RetryJobError(message)
