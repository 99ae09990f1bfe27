"""Mail to customers: queued as jobs with license and template; rendered in their language when it is sent."""

import hashlib
import heapq
import json
import secrets
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from email.message import EmailMessage
from functools import cached_property
from typing import Any, Final

from licserver.database.repositories.queue import Job, JobState, QueueShare
from licserver.domain.decisions import license_state
from licserver.domain.languages import LANGUAGES, find_language
from licserver.domain.mail_addresses import InvalidAddressError, parse_address, parse_sender
from licserver.domain.records import IssuedLicense, LicenseState
from licserver.errors import InvalidInputError, NotFoundError
from licserver.security.key_vault import KeyVault
from licserver.services.context import Context
from licserver.services.license_lookups import audit_object, find_by_email, find_license
from licserver.services.lists import Page, page_by_id
from licserver.services.mail_messages import Templates, build_message

CODES: Final = "mail-codes"
KEYS: Final = "mail-keys"
NOTICES: Final = "mail"
QUEUES: Final = (CODES, KEYS, NOTICES)
"""Queues that are processed side by side: neither codes nor license keys wait for notices."""

_SHARES: Final[Mapping[str, tuple[int, timedelta]]] = {
    CODES: (5, timedelta(seconds=10)),
    KEYS: (20, timedelta(seconds=2)),
    NOTICES: (5, timedelta(seconds=30)),
}
"""Queue → how many mails of an owner may wait before the next mail is delayed, and by how much. The owner of
a code is the requesting client, of any other mail the recipient."""

TEMPLATES: Final = {
    "license_key": "the key after a purchase",
    "license_keys": "several keys of one purchase",
    "license_ending": "the license ends soon",
    "new_computer": "a new computer was activated",
    "lost_key": "the keys of an address that requested them",
    "sign_in_code": "a code for the customer's page",
    "webhook_disabled": "to the vendor: a webhook endpoint was disabled",
    "sale_problems": "to the vendor: sales wait for a person",
    "test": "a test for the vendor",
}
_QUEUE_OF: Final = {
    "sign_in_code": CODES,
    "license_ending": NOTICES,
    "new_computer": NOTICES,
    "webhook_disabled": NOTICES,
    "sale_problems": NOTICES,
}
"""Template → its queue; `KEYS` for all other templates."""

FOR_VENDOR: Final = frozenset({"test", "webhook_disabled", "sale_problems"})
"""Templates of mails to the vendor, in English as the console is."""

_PRIVATE: Final[Mapping[str, tuple[str, ...]]] = {
    "sign_in_code": ("code",),
    "webhook_disabled": ("endpoint", "host", "reason"),
    "sale_problems": ("count",),
}
"""Template → the encrypted values of a job that it gets; none of them is chosen by a client."""

_COMPUTERS_OF_DAY: Final = 20
"""Mails about new computers of a license in a day (D-296)."""

_SKIPPED: Final = "its license was not valid then, or had no address any more"
"""The reason why a mail was not sent, though nothing failed."""

MAX_KEYS: Final = 1_000
"""License keys of a mail."""

SCAN_SECONDS: Final = 6 * 3600.0
_CHUNK: Final = 1_000
_LABEL: Final = b"mail"


class MailService:
    """Queues and renders mails; does nothing without `LICSERVER_MAIL_HOST`.

    1. A `send_…` method adds a job in the caller's transaction: ids and a template, never a license key.
    2. The background process claims the job (`jobs.mail`), and calls `render`.
    3. `render` loads the licenses as they are then, and returns the message, or None without a recipient.

    Example::

        with context.transaction() as tx:
            add_licenses(tx, licenses, "my-app")
            MailService(tx).send_issued(licenses)

    `check_sendable`, `resend_key` and `send_test` raise an `InvalidInputError` if mail is off or the address
    cannot be used; the other `send_…` methods return how many mails, or whether a mail, was queued.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queue, self._counts = context.repositories.queue, context.repositories.daily_counts

    @property
    def is_on(self) -> bool:
        """Whether the settings name a mail server."""
        return self._context.settings.mail_host is not None

    def check_sendable(self, address: str | None, count: int = 1) -> None:
        """Raise an `InvalidInputError` with advice if license keys cannot be mailed to an address."""
        self._check_is_on()
        if not address:
            raise InvalidInputError("a key can be mailed only to a customer with an e-mail address; add it")
        if count > MAX_KEYS:
            raise InvalidInputError(f"at most {MAX_KEYS} keys can be mailed at once")
        _check_address(address)

    def _check_is_on(self) -> None:
        if not self.is_on:
            raise InvalidInputError("mail is off: set LICSERVER_MAIL_HOST and LICSERVER_MAIL_SENDER")

    def send_keys(self, license_ids: Iterable[bytes]) -> int:
        """Queue the mails of `send_issued`, for licenses by their ids."""
        ids = list(dict.fromkeys(license_ids))
        return self.send_issued(self._context.repositories.licenses.find_all(ids)) if ids else 0

    def send_issued(self, licenses: Iterable[IssuedLicense]) -> int:
        """Queue a mail to each customer with the keys of new licenses, in the transaction that issues them.

        Each mail is sent once. Return the number of mails; licenses without an address get none.
        """
        if not self.is_on:
            return 0
        customers = defaultdict[tuple[str, str | None], list[bytes]](list)
        for license_ in licenses:
            if license_.customer_email:
                customers[license_.customer_email, license_.customer_language].append(license_.id)
        return sum(
            self._add_keys(f"license_key/{ids[first].hex()}", ids[first : first + MAX_KEYS], address)
            for (address, _), ids in customers.items()
            for first in range(0, len(ids), MAX_KEYS)
        )

    def resend_key(self, reference: str) -> None:
        """Queue another mail with a license's key to its customer.

        Raises:
            InvalidInputError: Mail is off, the license has no address, or it is not valid.
        """
        with self._context.transaction() as tx:
            license_, mail = find_license(tx, reference), MailService(tx)
            mail.check_sendable(license_.customer_email)
            if (state := license_state(license_, tx.now())) is not LicenseState.ACTIVE:
                raise InvalidInputError(f"this license is {state}, so its key is not mailed")
            key = f"license_key/{license_.id.hex()}/{secrets.token_hex(8)}"
            mail._add_keys(key, [license_.id], license_.customer_email)
            tx.write_audit("license.mail", audit_object(license_))

    def _add_keys(self, key: str, ids: Sequence[bytes], address: str | None) -> bool:
        template = "license_key" if len(ids) == 1 else "license_keys"
        return self._add(key, template, ids, address=address)

    def send_ending(self) -> None:
        """Queue a mail for each license that ends soon, once for each last day of a license.

        A subscription counts only if its end is known: no mail is sent before a renewal (D-260).
        """
        days = self._context.settings.mail_ending_days
        if not (self.is_on and days):
            return
        licenses, now = self._context.repositories.licenses, self._context.settled_now()
        until = now + timedelta(days=days)
        self._add_ending(now, lambda after: licenses.list_ending(now.date(), until.date(), after, _CHUNK))
        self._add_ending(now, lambda after: licenses.list_ending_subscriptions(now, until, after, _CHUNK))

    def _add_ending(self, now: datetime, load: Callable[[bytes], Sequence[Any]]) -> None:
        after = b""
        while rows := load(after):
            with self._context.transaction() as tx:
                for row in rows:
                    key = f"license_ending/{row.id.hex()}/{_last_day(row)}"
                    while tx.repositories.queue.is_early(NOTICES, key, now):
                        key = f"again/{key}"
                    MailService(tx)._add(key, "license_ending", [row.id])  # noqa: SLF001 - this class
            after = rows[-1].id

    def send_activation(self, event_id: str, license_id: bytes) -> bool:
        """Queue the mail about a newly activated computer, if the settings enable it.

        The mail does not name the computer: an app may send any text as its domain.
        """
        if not self._context.settings.mails_activations:
            return False
        license_hash, counts = self._context.vault.pseudonym("new computers", license_id.hex()), self._counts
        if counts.add(license_hash, self._context.now().date()) > _COMPUTERS_OF_DAY:
            return False
        return self._add(f"new_computer/{event_id}", "new_computer", [license_id])

    def send_lost_keys(self, address: str) -> bool:
        """Queue the mail with all valid keys of an address; return False if it has none."""
        if not (self.is_on and self._find_valid(address)):
            return False
        return self._add(f"lost_key/{secrets.token_hex(8)}", "lost_key", to=address)

    def send_code(
        self, address: str, code: str, language: str | None = None, client: str | None = None
    ) -> bool:
        """Queue the mail with a code for the account page, in the page's language.

        `client` is the requesting client as a keyed hash: requests of others do not delay this mail (D-264).
        """
        key, to = f"sign_in_code/{secrets.token_hex(8)}", address
        return self._add(key, "sign_in_code", owner=client, to=to, code=code, language=language or "")

    def send_disabled(self, endpoint: str, host: str, reason: str) -> bool:
        """Queue the mail to the vendor about a disabled webhook endpoint, if the settings have an address."""
        to, key = self._context.settings.mail_admin, f"webhook_disabled/{secrets.token_hex(8)}"
        if to is None:
            return False
        return self._add(key, "webhook_disabled", to=to, endpoint=endpoint, host=host, reason=reason)

    def send_problems(self, count: int) -> bool:
        """Queue the mail to the vendor about sales with open problems, if the settings have an address."""
        to, key = self._context.settings.mail_admin, f"sale_problems/{secrets.token_hex(8)}"
        return False if to is None else self._add(key, "sale_problems", to=to, count=str(count))

    def send_test(self, address: str) -> bool:
        """Queue a test mail."""
        self._check_is_on()
        _check_address(address)
        return self._add(f"test/{secrets.token_hex(8)}", "test", to=address)

    def _add(
        self,
        key: str,
        template: str,
        license_ids: Sequence[bytes] = (),
        owner: str | None = None,
        address: str | None = None,
        **private: str,
    ) -> bool:
        """Add a job for an owner, by default its recipient; `private` values, such as a code, are encrypted.

        The recipient is `to`, otherwise the customer of the license, whose `address` may be known already.
        """
        if not self.is_on:
            return False
        payload: dict[str, Any] = {"template": template}
        if license_ids:
            payload["license_id"] = license_ids[0].hex()
        if len(license_ids) > 1:
            payload["license_ids"] = [license_id.hex() for license_id in license_ids]
        if private:
            sealed = self._context.vault.encrypt(json.dumps(private).encode(), _LABEL)
            payload["encrypted"] = b64encode(sealed).decode()
        queue = _QUEUE_OF.get(template, KEYS)
        to = private.get("to") or address or self._find_address(license_ids)
        if not to:
            return False
        owner = owner or self._context.vault.pseudonym("mail", to.casefold()).hex()
        return self._queue.add(queue, key, payload, self._context.now(), QueueShare(owner, *_SHARES[queue]))

    def _find_address(self, license_ids: Sequence[bytes]) -> str | None:
        license_ = self._context.repositories.licenses.find(license_ids[0]) if license_ids else None
        return None if license_ is None else license_.customer_email

    def list_jobs(
        self, state: JobState | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[Job]:
        """Return a page of queued and sent mails, the latest first."""

        def load(before: int | None, limit: int) -> Sequence[Job]:
            pages = [self._queue.list_page(queue, state, before, limit) for queue in QUEUES]
            return list(heapq.merge(*pages, key=lambda job: job.id, reverse=True))[:limit]

        return page_by_id(load, cursor, limit)

    def skip(self, job: Job) -> bool:
        """Finish the job of a mail that `render` returns nothing for; return True."""
        self._queue.finish(job, self._context.now(), _SKIPPED)
        return True

    def send_skipped(self, licenses: Iterable[IssuedLicense]) -> int:
        """Queue the mails again that were not sent because these licenses were revoked; return how many."""
        keys = [f"license_key/{license_.id.hex()}" for license_ in licenses]
        return self._queue.revive_skipped(KEYS, keys, self._context.now()) if self.is_on else 0

    def retry(self, id_: int) -> None:
        """Send a mail again."""
        with self._context.transaction() as tx:
            if not any(tx.repositories.queue.revive(queue, [id_], tx.now()) for queue in QUEUES):
                raise NotFoundError(f"there is no sent or failed mail {id_}; `licserver mail list` shows all")
            tx.write_audit("mail.retry", ("mail", str(id_)))

    # --- rendering ---

    def render(self, job: Job) -> EmailMessage | None:
        """Return the message of a job; None without a recipient, such as after an erasure."""
        template, private = job.payload["template"], self._decrypt(job)
        to, language = private.get("to", ""), private.get("language") or None
        values: dict[str, Any] = {name: private[name] for name in _PRIVATE.get(template, ())}
        licenses = self._load_licenses(job)
        if "license_id" in job.payload:
            if not licenses:
                return None
            to = licenses[0].customer_email or ""
            if template == "license_ending":  # may be the end of its subscription
                last = date.fromisoformat(job.key.rpartition("/")[2])
                licenses[0] = replace(licenses[0], expires_on=last)
        elif template == "lost_key":
            licenses = self._find_valid(to)
        if licenses:
            described = [self._describe(license_) for license_ in licenses]
            values |= {**described[0], "licenses": described}
            language = language or next(
                filter(None, (license_.customer_language for license_ in licenses)), None
            )
        return self._compose(template, to, values, job.key, language)

    def _load_licenses(self, job: Job) -> list[IssuedLicense]:
        """Load the valid licenses of a job, all of the first license's address."""
        ids = job.payload.get("license_ids") or [*filter(None, [job.payload.get("license_id")])]
        licenses = (
            self._context.repositories.licenses.find_all([bytes.fromhex(id_) for id_ in ids]) if ids else []
        )
        place = {id_: number for number, id_ in enumerate(ids)}
        licenses = sorted(licenses, key=lambda license_: place[license_.id.hex()])
        valid = [
            license_
            for license_ in licenses
            if license_state(license_, self._context.now()) is LicenseState.ACTIVE
        ]
        addresses = [license_.customer_email for license_ in valid if license_.customer_email]
        return (
            [license_ for license_ in valid if license_.customer_email == addresses[0]] if addresses else []
        )

    def _decrypt(self, job: Job) -> dict[str, str]:
        if "encrypted" not in job.payload:
            return {}
        private: dict[str, str] = json.loads(
            self._context.vault.decrypt(b64decode(job.payload["encrypted"]), _LABEL)
        )
        return private

    def _find_valid(self, address: str) -> list[IssuedLicense]:
        licenses = find_by_email(self._context, address)
        return [
            license_
            for license_ in licenses
            if license_state(license_, self._context.now()) is LicenseState.ACTIVE
        ]

    def _describe(self, license_: IssuedLicense) -> dict[str, Any]:
        key = self._context.vault.decrypt_key(license_.encrypted_key, license_.id)
        return {"key": key, "product": license_.product_name, "license": license_}

    def preview(self, template: str, language: str | None = None) -> EmailMessage:
        """Render a template with made-up values."""
        if template not in TEMPLATES:
            raise NotFoundError(f"there is no template {template!r}; choose from {', '.join(TEMPLATES)}")
        if language is not None and find_language(language) is None:
            raise InvalidInputError(f"{language!r} is not a valid language code; write it like de")
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
        example = {
            "key": "CP-XXXXXX-XXXXXX-XXXXXX-XXXXXX-XXXXXX",
            "product": "Example App",
            "license": license_,
        }
        values = {
            **example,
            "code": "123456",
            "licenses": [example, example] if template == "license_keys" else [example],
        }
        values |= {"endpoint": "ep_1c9f2a7be034", "host": "example.com", "reason": "it answered 410 Gone"}
        values |= {"count": "3"}
        return self._compose(template, "customer@example.com", values, "preview", find_language(language))

    def _compose(
        self, template: str, to: str, values: Mapping[str, Any], key: str, language: str | None
    ) -> EmailMessage:
        settings = self._context.settings
        has_page = settings.account and settings.base_url is not None
        values = {**values, "page": f"{settings.base_url}/account" if has_page else ""}
        chosen = LANGUAGES[0] if template in FOR_VENDOR else language
        text = self._templates.render(template, chosen, values)
        sender = parse_sender(settings.mail_sender or "licserver@example.com")
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        return build_message(sender, to, text, self._context.now(), digest)

    @cached_property
    def _templates(self) -> Templates:
        settings = self._context.settings
        return Templates(settings.data_dir / "templates" / "mail", settings.mail_language)


def _last_day(row: Any) -> date:
    """Return the last day of a license, or of its subscription if the row has an earlier end of it."""
    ended_at: datetime | None = getattr(row, "subscription_ended_at", None)
    last: date = date.max if row.expires_on is None else row.expires_on
    return last if ended_at is None else min(last, (ended_at - timedelta(microseconds=1)).date())


def open_private(vault: KeyVault, sealed: bytes) -> str:
    """Return the encrypted values of a job, such as an address, as JSON."""
    return vault.decrypt(sealed, _LABEL).decode()


def _check_address(address: str) -> None:
    try:
        parse_address(address)
    except InvalidAddressError as problem:
        raise InvalidInputError(str(problem)) from None
