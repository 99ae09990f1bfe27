"""Offline license files, for machines without a network; a file takes a slot as a verify does."""

from datetime import datetime
from typing import Final, NamedTuple

from licserver.database.repositories.webhooks import activation_event
from licserver.domain.decisions import Valid, VerifyRefusal
from licserver.domain.offline_files import DEFAULT_DAYS, MAX_DAYS, NO_ADDRESS, evaluate_offline, file_end
from licserver.domain.records import Environment, IssuedLicense, Machine
from licserver.errors import ConflictError, InvalidInputError
from licserver.protocol.offline_files import parse_request, sign_file
from licserver.protocol.response_signatures import live_keys
from licserver.security.redaction import mask_machine
from licserver.services.context import CUSTOMER, Context, Service
from licserver.services.license_lookups import audit_object, find_license
from licserver.services.validation import read_domain

_REFUSALS: Final = {
    VerifyRefusal.REVOKED: "this license is revoked; no file can be issued",
    VerifyRefusal.EXPIRED: "this license has expired; no file can be issued",
    VerifyRefusal.ENVIRONMENT: "all slots of this license are taken; free one, then issue the file",
}

_MACHINES_OF_DAY: Final = 100
"""Machines that a customer activates by files in a day, where the license has no limit."""


class RefusedFileError(ConflictError):
    """The license is not valid for this machine.

    Args:
        refusal: The refusal of a verify by this machine.
    """

    def __init__(self, refusal: VerifyRefusal) -> None:
        super().__init__(_REFUSALS.get(refusal, "the product of this license accepts no imported keys"))
        self.refusal = refusal


class IssuedFile(NamedTuple):
    """A license file with its name, the machine's domain, and its end."""

    name: str
    text: str
    domain: str
    ends_at: datetime


class OfflineFileService(Service):
    """Issues license files."""

    def issue(self, reference: str, request: str, days: int = DEFAULT_DAYS) -> IssuedFile:
        """Issue a file for the machine of a request, and take a slot unless the machine holds a slot.

        Raises:
            RefusedFileError: The license is revoked or expired, or all slots are taken.
            InvalidInputError: The text is no request, or the installation has no signing key.
        """
        parsed = parse_request(request)
        if not 1 <= days <= MAX_DAYS:
            raise InvalidInputError(f"a license file is valid for 1 to {MAX_DAYS} days")
        live = live_keys(self._context.vault.signing_keys)
        if not live:
            raise InvalidInputError(
                "license files must be signed, and there is no signing key; "
                "add one with `licserver signing-key add`, and pin its public key in the app"
            )
        signing_key = live[0].private
        domain = read_domain(parsed.domain, "the request is for a domain that")
        environment = Environment(domain, NO_ADDRESS)
        settled = self._context.settled_now()  # a file cannot be revoked
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference, locked=True)
            if parsed.slug not in ("", license_.product_slug):
                raise InvalidInputError(
                    f"the request is of the app {parsed.slug!r}, and the license for "
                    f"{license_.product_slug!r}"
                )
            key, now = (
                tx.vault.decrypt_key(license_.encrypted_key, license_.id),
                settled.replace(microsecond=0),
            )
            ends_at = file_end(license_, now, days)
            licenses = tx.repositories.licenses
            snapshot = licenses.find_snapshot(license_.id, environment)
            verdict = evaluate_offline(key, snapshot, environment, tx.now())  # as a verify decides
            if not isinstance(verdict, Valid):
                raise RefusedFileError(verdict)
            if verdict.takes_slot:
                if tx.actor == CUSTOMER and license_.slots is None:
                    _count_file(tx, license_)
                machine = mask_machine(Machine(app_version=parsed.app_version), key)
                licenses.add_activation(license_.id, environment, tx.now(), machine)
                tx.add_new_events(activation_event(license_.id, environment, now))
            licenses.hold_offline(license_.id, domain, ends_at)
            about = {"domain": domain, "ends_at": ends_at, "key_id": signing_key.public.id}
            tx.write_repeatable_audit("license.file", audit_object(license_), domain, **about)
        slug = license_.product_slug
        text = sign_file(verdict, slug, key, parsed.domain, now, ends_at, signing_key)
        return IssuedFile(f"{slug}-{now:%Y-%m-%d}.lic", text, domain, ends_at)

    def can_customers_issue(self) -> bool:
        """Return whether customers may issue files for their machines."""
        has_key = bool(live_keys(self._context.vault.signing_keys))
        return has_key and self._context.settings.account_file_days > 0


def _count_file(tx: Context, license_: IssuedLicense) -> None:
    """Count a machine that a customer activates by a file; refuse too many in a day (D-296)."""
    license_hash = tx.vault.pseudonym("license files", license_.id.hex())
    if tx.repositories.daily_counts.add(license_hash, tx.now().date()) > _MACHINES_OF_DAY:
        raise RefusedFileError(VerifyRefusal.ENVIRONMENT)
