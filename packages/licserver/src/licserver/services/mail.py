"""Mail to customers: written as jobs that name a license and a template, rendered when it is sent."""

import hashlib
import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from licserver.database.repositories.queue import Job, JobState
from licserver.domain.decisions import license_state
from licserver.domain.environments import is_printable
from licserver.domain.records import IssuedLicense, LicenseState
from licserver.errors import BuryJobError, InvalidInputError, NotFoundError
from licserver.services.context import Context
from licserver.services.license_terms import MAX_EMAIL
from licserver.services.lists import Page, page_by_id

if TYPE_CHECKING:
    from jinja2 import Environment

MAIL: Final = "mail"  # the queue
TEMPLATES: Final = {
    "license_key": "the key after a purchase",
    "license_ending": "the license ends soon",
    "new_computer": "a new computer was activated",
    "lost_key": "the keys of an address that asked for them",
    "sign_in_code": "a code for the customer's page",
    "webhook_disabled": "to the vendor: a webhook endpoint was disabled",
    "test": "a test for the vendor",
}
SCAN_SECONDS: Final = 6 * 3600.0
MAX_SUBJECT: Final = 150
_CHUNK: Final = 1_000
_LABEL: Final = b"mail"


class MailService:
    """Queues and renders mails; without `LICSERVER_MAIL_HOST` none is queued."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queue = context.repositories.queue

    @property
    def is_on(self) -> bool:
        """Whether mails are sent."""
        return self._context.settings.mail_host is not None

    def send_key(self, license_id: bytes) -> bool:
        """Queue the mail with a license's key to its customer, in the transaction that issued it.

        It is sent once for a license. Return False if mail is off, the license has no address, or the mail
        was queued before.
        """
        found = self._context.repositories.licenses.find(license_id)
        if found is None or not found.customer_email:
            return False
        return self._add(f"license_key/{license_id.hex()}", "license_key", license_id)

    def send_ending(self) -> None:
        """Queue a mail for each license that ends soon, once for a license and a last day.

        Of a subscription only if its end is known: not before each renewal (D-260).
        """
        days = self._context.settings.mail_ending_days
        if not (self.is_on and days):
            return
        licenses, now = self._context.repositories.licenses, self._context.now()
        until = now + timedelta(days=days)
        self._add_ending(lambda after: licenses.list_ending(now.date(), until.date(), after, _CHUNK))
        self._add_ending(lambda after: licenses.list_ending_subscriptions(now, until, after, _CHUNK))

    def _add_ending(self, load: Callable[[bytes], Sequence[Any]]) -> None:
        after = b""
        while rows := load(after):
            with self._context.transaction() as tx:
                for row in rows:
                    key = f"license_ending/{row.id.hex()}/{_last_day(row)}"
                    MailService(tx)._add(key, "license_ending", row.id)  # noqa: SLF001 - this class
            after = rows[-1].id

    def send_activation(self, event_id: str, license_id: bytes, domain: str) -> bool:
        """Queue the mail about a computer that was activated, if the vendor wants it."""
        if not self._context.settings.mail_activations:
            return False
        return self._add(f"new_computer/{event_id}", "new_computer", license_id, domain=domain)

    def send_lost_keys(self, address: str) -> bool:
        """Queue the mail with all valid keys of an address; return False if it has none."""
        if not (self.is_on and self._find_valid(address)):
            return False
        return self._add(f"lost_key/{secrets.token_hex(8)}", "lost_key", to=address)

    def send_code(self, address: str, code: str) -> bool:
        """Queue the mail with a code for the customer's page."""
        return self._add(f"sign_in_code/{secrets.token_hex(8)}", "sign_in_code", to=address, code=code)

    def send_disabled(self, endpoint: str, host: str, reason: str) -> bool:
        """Queue the mail to the vendor about a webhook endpoint that was disabled, if they want it."""
        to, key = self._context.settings.mail_admin, f"webhook_disabled/{secrets.token_hex(8)}"
        if to is None:
            return False
        return self._add(key, "webhook_disabled", to=to, endpoint=endpoint, host=host, reason=reason)

    def send_test(self, address: str) -> bool:
        """Queue a test."""
        if not self.is_on:
            raise InvalidInputError("mail is off: set LICSERVER_MAIL_HOST and LICSERVER_MAIL_SENDER")
        _check_address(address)
        return self._add(f"test/{secrets.token_hex(8)}", "test", to=address)

    def _add(self, key: str, template: str, license_id: bytes | None = None, **private: str) -> bool:
        """Add a job. What is private, such as an address or a code, is encrypted in it."""
        if not self.is_on:
            return False
        payload: dict[str, str] = {"template": template}
        if license_id is not None:
            payload["license_id"] = license_id.hex()
        if private:
            sealed = self._context.vault.encrypt(json.dumps(private).encode(), _LABEL)
            payload["encrypted"] = b64encode(sealed).decode()
        return self._queue.add(MAIL, key, payload, self._context.now())

    def list_jobs(
        self, state: JobState | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Job]:
        """Return a page of queued and sent mails, the latest first."""
        return page_by_id(partial(self._queue.list_page, MAIL, state), cursor, limit)

    def retry(self, id_: int) -> None:
        """Send a mail again."""
        with self._context.transaction() as tx:
            if tx.repositories.queue.revive(MAIL, [id_], tx.now()) == 0:
                raise NotFoundError(
                    f"no mail {id_} has been sent or given up; `licserver mail list` shows all"
                )
            tx.write_audit("mail.retry", ("mail", str(id_)))

    # --- rendering ---

    def render(self, job: Job) -> EmailMessage | None:
        """Return the message of a job; None if there is nobody to send it to any more."""
        template, values = job.payload["template"], dict[str, Any](self._decrypt(job))
        to = str(values.pop("to", ""))
        if "license_id" in job.payload:
            found = self._context.repositories.licenses.find(bytes.fromhex(job.payload["license_id"]))
            if found is None or not found.customer_email:
                return None
            if license_state(found, self._context.now()) is not LicenseState.ACTIVE:
                return None  # revoked meanwhile
            if template == "license_ending":  # may be the end of its subscription
                found = replace(found, expires_on=date.fromisoformat(job.key.rpartition("/")[2]))
            to, values = found.customer_email or "", values | self._describe(found)
        elif template == "lost_key":
            values["licenses"] = [self._describe(one) for one in self._find_valid(to)]
        return self._compose(template, to, values, job.key)

    def _decrypt(self, job: Job) -> dict[str, str]:
        if "encrypted" not in job.payload:
            return {}
        private: dict[str, str] = json.loads(
            self._context.vault.decrypt(b64decode(job.payload["encrypted"]), _LABEL)
        )
        return private

    def _find_valid(self, address: str) -> list[IssuedLicense]:
        from licserver.services.support import SupportService  # noqa: PLC0415 - only here

        found = SupportService(self._context).find_licenses(address)
        return [one for one in found if license_state(one, self._context.now()) is LicenseState.ACTIVE]

    def _describe(self, license_: IssuedLicense) -> dict[str, Any]:
        key = self._context.vault.decrypt_key(license_.encrypted_key, license_.id)
        return {"key": key, "product": license_.product_name, "license": license_}

    def preview(self, template: str) -> EmailMessage:
        """Render a template with made-up values."""
        if template not in TEMPLATES:
            raise NotFoundError(f"there is no template {template!r}; choose from {', '.join(TEMPLATES)}")
        now = self._context.now()
        license_ = IssuedLicense(
            id=bytes(16),
            encrypted_key=b"",
            product_id=0,
            product_slug="app",
            product_name="Example App",
            issued_at=now,
            expires_on=now.date() + timedelta(days=14),
            customer_email="customer@example.com",
        )
        one = {"key": "CP-XXXXXX-XXXXXX-XXXXXX-XXXXXX-XXXXXX", "product": "Example App", "license": license_}
        values = {**one, "domain": "ann-laptop", "code": "123456", "licenses": [one]}
        values |= {"endpoint": "ep_1c9f2a7be034", "host": "example.com", "reason": "it answered 410 Gone"}
        return self._compose(template, "customer@example.com", values, "preview")

    def _compose(self, template: str, to: str, values: Mapping[str, Any], key: str) -> EmailMessage:
        text = self._render(f"{template}.txt", values)
        subject, _, body = text.partition("\n")
        sender = self._context.settings.mail_sender or "licserver@example.com"
        message = EmailMessage()
        try:
            message["From"] = sender
            message["To"] = Address(addr_spec=_check_address(to))
            # One line whatever a product is called: a line break would begin another header, also in =?…?=.
            line = " ".join(subject.removeprefix("Subject:").split()).replace("=?", "= ?")
            message["Subject"] = line[:MAX_SUBJECT]
        except (InvalidInputError, ValueError, HeaderParseError):
            raise BuryJobError("the address or the subject cannot be sent") from None
        message["Date"] = format_datetime(self._context.now())
        # The same at every attempt, so that a mail that arrives twice can be recognised.
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        message["Message-ID"] = f"<{digest}@{sender_domain(sender)}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(body.strip() + "\n")
        message.add_alternative(self._render(f"{template}.html", values), subtype="html")
        return message

    def _render(self, name: str, values: Mapping[str, Any]) -> str:
        from jinja2 import TemplateError  # noqa: PLC0415 - as in `_templates`

        try:
            return self._templates.get_template(name).render(values)
        except TemplateError as problem:
            raise BuryJobError(f"the template {name} is faulty: {type(problem).__name__}") from None

    @cached_property
    def _templates(self) -> "Environment":
        # Loaded with the first mail: most processes never render one.
        from jinja2 import ChoiceLoader, FileSystemLoader, PackageLoader, StrictUndefined  # noqa: PLC0415
        from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

        own = FileSystemLoader(self._context.settings.data_dir / "templates" / "mail")
        loader = ChoiceLoader([own, PackageLoader("licserver.services", "mail_templates")])
        return SandboxedEnvironment(
            loader=loader,
            autoescape=lambda name: name is not None and name.endswith(".html"),
            undefined=StrictUndefined,
            cache_size=0,  # a text that the vendor adds counts from the next mail on
            trim_blocks=True,
            lstrip_blocks=True,
        )


def _last_day(row: Any) -> date:
    """Return the last day of a license, or of its subscription if that is loaded and comes first."""
    ended_at: datetime | None = getattr(row, "subscription_ended_at", None)
    last: date = date.max if row.expires_on is None else row.expires_on
    return last if ended_at is None else min(last, (ended_at - timedelta(microseconds=1)).date())


def sender_domain(sender: str) -> str:
    """Return the domain of a sender, by which the server introduces itself."""
    return parseaddr(sender)[1].rpartition("@")[2] or "localhost"


def _check_address(address: str) -> str:
    local, _, domain = address.partition("@")
    # A comment in brackets, or an encoded word: `email` would send to what is left, or to what is in it.
    is_odd = bool(set(" ,;<>()") & {*address}) or "=?" in address
    if not (local and domain and is_printable(address)) or is_odd or len(address) > MAX_EMAIL:
        raise InvalidInputError("this is no mail address; write it like ann@example.com")
    return address
