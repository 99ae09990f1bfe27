"""Offline license files: issued for a machine without a network, which takes a slot as a verify would."""

from datetime import datetime
from typing import Final, NamedTuple

from licserver.domain.decisions import Valid, VerifyRefusal
from licserver.domain.extensions import DEFAULT_DAYS, MAX_DAYS, NO_ADDRESS, evaluate_offline, file_end
from licserver.domain.records import Environment, Machine
from licserver.errors import ConflictError, InvalidInputError
from licserver.protocol.offline_files import parse_request, sign_file
from licserver.protocol.response_signatures import live_keys
from licserver.protocol.webhooks import EventType
from licserver.security.redaction import mask_machine
from licserver.services.context import Service
from licserver.services.license_terms import read_domain
from licserver.services.licenses import audit_object, event_data, find_license

_REFUSALS: Final = {
    VerifyRefusal.REVOKED: "this license is revoked; no file can be issued",
    VerifyRefusal.EXPIRED: "this license has expired; no file can be issued",
    VerifyRefusal.ENVIRONMENT: "all slots of this license are taken; free one, then issue the file",
}


class RefusedFileError(ConflictError):
    """The license is not valid for this machine.

    Args:
        refusal: As a verify of the machine would be refused.
    """

    def __init__(self, refusal: VerifyRefusal) -> None:
        super().__init__(_REFUSALS.get(refusal, "the product of this license accepts no imported keys"))
        self.refusal = refusal


class IssuedFile(NamedTuple):
    """A file, and what it is for."""

    name: str
    text: str
    domain: str
    ends_at: datetime


class OfflineFileService(Service):
    """Issues license files."""

    def issue(self, reference: str, request: str, days: int = DEFAULT_DAYS) -> IssuedFile:
        """Issue a file for the machine that made the request, and take a slot unless it has one.

        Raises:
            RefusedFileError: The license is revoked or expired, or all slots are taken.
            InvalidInputError: What was typed is no request, or the installation has no signing key.
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
        with self._context.transaction() as tx:
            found = find_license(tx, reference, locked=True)
            if parsed.slug not in ("", found.product_slug):
                raise InvalidInputError(
                    f"the request is of the app {parsed.slug!r}, and the license for {found.product_slug!r}"
                )
            key, now = tx.vault.decrypt_key(found.encrypted_key, found.id), tx.now().replace(microsecond=0)
            ends_at = file_end(found, now, days)
            licenses = tx.repositories.licenses
            snapshot = licenses.find_snapshot(found.id, environment)
            verdict = evaluate_offline(key, snapshot, environment, tx.now())  # as a verify decides (D-08)
            if not isinstance(verdict, Valid):
                raise RefusedFileError(verdict)
            if verdict.takes_slot:
                machine = mask_machine(Machine(app_version=parsed.app_version), key)
                licenses.add_activation(found.id, environment, tx.now(), machine)
                tx.add_events(EventType.ACTIVATION_CREATED, event_data(found, **environment._asdict()))
            licenses.hold_offline(found.id, domain, ends_at)
            about = {"domain": domain, "ends_at": ends_at, "key_id": signing_key.public.id}
            tx.write_audit("license.file", audit_object(found), **about)
        slug = found.product_slug
        text = sign_file(verdict, slug, key, parsed.domain, now, ends_at, signing_key)
        return IssuedFile(f"{slug}-{now:%Y-%m-%d}.lic", text, domain, ends_at)

    def can_customers_issue(self) -> bool:
        """Return whether customers may make files for their machines."""
        has_key = bool(live_keys(self._context.vault.signing_keys))
        return has_key and self._context.settings.account_file_days > 0
