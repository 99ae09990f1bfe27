"""Licenses: issuing, changing, revoking, and freeing slots."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from licserver.domain.channel_offers import needs_release
from licserver.domain.decisions import generate_license_key, is_expired, mask_key
from licserver.domain.environments import is_printable
from licserver.domain.records import TERMS, Activation, Environment, IssuedLicense, LicenseTerms, Product
from licserver.domain.text import KeyPart, find_reference
from licserver.errors import ConflictError, InvalidInputError, NotFoundError, SecretsError
from licserver.protocol.webhooks import EventType
from licserver.security.redaction import mask
from licserver.services import license_search, license_terms, validation
from licserver.services.context import Context, Service
from licserver.services.license_events import expired_event
from licserver.services.license_lookups import audit_object, event_data, find_by_key, find_license
from licserver.services.license_search import LicenseFilter
from licserver.services.lists import MAX_PAGE, Page, check_limit, cut_page, read_cursor, read_place
from licserver.services.mail import MailService
from licserver.services.products import check_plans, find_product, read_version
from licserver.services.releases import ReleaseService

ISSUE_BATCH: Final = 2_000
"""Licenses issued in a transaction: others wait 0.2 s for it (0.5 s for 10,000, which are a tenth faster)."""


MAX_REASON_CHARS: Final = 500  # characters of a reason


_CHANGEABLE: Final = {*TERMS} - {"subscription_id"}


_ALL: Final = LicenseFilter()


class LicenseService(Service):
    """Issues, finds and changes licenses; a `reference` is a license key or an id (32 hex digits).

    1. `issue` and `issue_batches` validate the terms, then write licenses, audit lines and events.
    2. `get`, `search` and `list_activations` read; they never return a key.
    3. `change`, `revoke`, `reinstate` and `deactivate` lock the license, write it, and return it.
    4. `reveal` returns the key, and audits the request.

    Example::

        license_, key = services.licenses.issue("my-app", LicenseTerms(slots=2))
        services.licenses.change(key, slots=3)
        services.licenses.revoke(license_.id.hex(), "refunded")

    All methods raise a `NotFoundError` for an unknown license, and an `InvalidInputError` for a value that
    breaks a rule; `change` raises a `ConflictError` for a value that another user has changed.
    """

    def issue(self, slug: str, terms: LicenseTerms, *, is_mailed: bool = False) -> tuple[IssuedLicense, str]:
        """Issue a license, and mail its key with `is_mailed`; return the license and the key."""
        ((key,),) = self.issue_batches(slug, terms, is_mailed=is_mailed)
        return self.get(self._context.vault.license_id(key).hex()), key

    def issue_batches(
        self, slug: str, terms: LicenseTerms, count: int = 1, *, is_mailed: bool = False
    ) -> Iterator[list[str]]:
        """Issue licenses; yield their keys in batches, each committed. Validation comes before the first.

        With `is_mailed` the customer gets a single mail with all keys (`MailService.check_sendable`).
        """
        if count < 1:
            raise InvalidInputError("the count must be at least 1")
        product, terms = find_product(self._context, slug), self._validate(terms)
        if is_mailed:
            MailService(self._context).check_sendable(terms.customer_email, count)
        return self._issue_batches(product, terms, count, is_mailed=is_mailed)

    def _issue_batches(
        self, product: Product, terms: LicenseTerms, count: int, *, is_mailed: bool
    ) -> Iterator[list[str]]:
        for done in range(0, count, ISSUE_BATCH):
            keys = [generate_license_key() for _ in range(min(ISSUE_BATCH, count - done))]
            now = self._context.now()
            new = [self.prepare(product, terms, key, now) for key in keys]
            with self._context.transaction() as tx:
                add_licenses(tx, new, product.slug)
                if is_mailed:
                    MailService(tx).send_issued(new)
            yield keys

    def prepare(
        self,
        product: Product,
        terms: LicenseTerms,
        key: str,
        issued_at: datetime | None = None,
        product_name: str | None = None,
    ) -> IssuedLicense:
        """Return the record of a new license, without writing it."""
        return IssuedLicense(
            id=self._context.vault.license_id(key),
            encrypted_key=self._context.vault.encrypt_key(key),
            masked_key=mask_key(key),
            product_id=product.id,
            product_slug=product.slug,
            product_name=product_name or product.name,
            issued_at=issued_at or self._context.now(),
            **{name: getattr(terms, name) for name in TERMS},
        )

    def _validate(self, terms: LicenseTerms) -> LicenseTerms:
        return license_terms.validate_terms(terms, self._context.settings.ipv6_prefix)

    def get(self, reference: str) -> IssuedLicense:
        """Return a license."""
        return find_license(self._context, reference)

    def find_by_key(self, key: str) -> IssuedLicense | None:
        """Return the license of a key from an app or a customer, as `find_by_key`."""
        return find_by_key(self._context, key)

    def get_all(self, ids: Iterable[str]) -> list[IssuedLicense]:
        """Return licenses by their ids; omit malformed and unknown ids."""
        read = [bytes.fromhex(id_) for id_ in ids if validation.has_id_shape(id_)]
        return self._context.repositories.licenses.find_all(read) if read else []

    def list_all(self, slug: str | None = None) -> Iterator[IssuedLicense]:
        """Return all licenses, or those of a product, by the instant of issue."""
        product_id = None if slug is None else find_product(self._context, slug).id
        return self._context.for_lists().repositories.licenses.list_all(product_id)

    def search(
        self, which: LicenseFilter = _ALL, cursor: str | None = None, limit: int = 50
    ) -> Page[IssuedLicense]:
        """Return a page of matching licenses: the latest first, or in the order of the search."""
        context, position = self._context.for_lists(), read_cursor(cursor)
        return license_search.read_page(
            context, *license_search.plan(context, which, position), position, limit
        )

    def list_shared(self, slug: str | None = None) -> Iterator[IssuedLicense]:
        """Return the licenses that are marked as probably shared (D-335), the latest first."""
        which, cursor = LicenseFilter(product=slug, shared=True), None
        while True:
            page = self.search(which, cursor, MAX_PAGE)
            yield from page.items
            if (cursor := page.cursor) is None:
                return

    def is_shared(self, license_: IssuedLicense) -> bool:
        """Return whether a license is marked as probably shared."""
        return self._context.repositories.moves.is_shared(license_.id)

    def count(self, which: LicenseFilter = _ALL) -> tuple[int, bool] | None:
        """Count the matches of a search; return the number and whether there are more; None if it is slow."""
        context = self._context.for_lists()
        return context.repositories.license_search.count(*license_search.plan(context, which, None))

    def find_pasted(self, text: str) -> IssuedLicense | None:
        """Return the license of the key or the console link in a pasted text."""
        with suppress(InvalidInputError, NotFoundError):
            return find_license(self._context, find_reference(text) or text)
        return None

    def find_similar(self, part: KeyPart) -> list[IssuedLicense]:
        """Return licenses whose keys match a partial key."""
        ids = license_search.find_by_key_part(self._context, part)[:MAX_PAGE]
        return self._context.repositories.licenses.find_all(ids)

    def list_entitled(
        self, slug: str, version: str, cursor: str | None = None, limit: int = 50
    ) -> Page[IssuedLicense]:
        """Return a page of the licenses that may download a release; none once it is withdrawn."""
        release, product = ReleaseService(self._context).get(slug, version), find_product(self._context, slug)
        return license_search.list_entitled(self._context.for_lists(), product, release, cursor, limit)

    def list_below(
        self, slug: str, version: str, *, reported_only: bool = False
    ) -> Iterator[tuple[IssuedLicense, Activation]]:
        """Return the activations of a product that may run a version below this one, without its fix.

        An app reports its version once a day at most. One that has reported none may run any version, and is
        left out with `reported_only`.
        """
        read_version(version)  # what is no version has its own message
        release, product = ReleaseService(self._context).get(slug, version), find_product(self._context, slug)
        releases = self._context.repositories.releases.list_all(product.id)
        pairs = self._context.repositories.licenses.list_with_activations(product.id)
        for license_, activations in pairs:
            for activation in activations:
                reported = activation.app_version
                if needs_release(reported, release, releases) if reported is not None else not reported_only:
                    yield license_, activation

    def list_activations(
        self, reference: str, cursor: str | None = None, limit: int = 50
    ) -> Page[Activation]:
        """Return a page of a license's activations, by domain and address."""
        check_limit(limit)
        after, license_id = read_place(cursor, str, str), self.get(reference).id
        activations = self._context.repositories.licenses.list_activations_page(license_id, after, limit + 1)
        return cut_page(activations, limit, lambda last: last.environment)

    def list_first_activations(
        self, licenses: Sequence[IssuedLicense], limit: int
    ) -> list[tuple[list[Activation], bool]]:
        """Return the first activations of each license, by domain and address, and whether it has more."""
        few = [license_.id for license_ in licenses if license_.slots_used <= limit]
        repository = self._context.repositories.licenses
        activations = repository.list_few_activations(few)
        for license_ in licenses:
            if license_.id not in activations:
                activations[license_.id] = repository.list_activations_page(license_.id, None, limit + 1)
        return [
            (activations[license_.id][:limit], len(activations[license_.id]) > limit) for license_ in licenses
        ]

    def list_all_activations(self, license_: IssuedLicense) -> list[Activation]:
        """Return a license's activations, the oldest first."""
        return self._context.repositories.licenses.list_activations(license_.id)

    def mask_key(self, license_: IssuedLicense) -> str:
        """Return the masked key; an altered row raises nothing, so that lists and changes still work."""
        try:
            return mask_key(self.decrypt_key(license_))
        except SecretsError:
            return "unreadable"

    def decrypt_key(self, license_: IssuedLicense) -> str:
        """Return a license's key for internal use; use `reveal` to show it."""
        return self._context.vault.decrypt_key(license_.encrypted_key, license_.id)

    def reveal(self, reference: str) -> str:
        """Return a license's whole key, and audit the request."""
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference)
            key = self.decrypt_key(license_)
            tx.write_repeatable_audit("license.reveal", audit_object(license_))
        return key

    def change(
        self, reference: str, *, was: Mapping[str, Any] | None = None, **changes: Any
    ) -> IssuedLicense:
        """Change any terms except the subscription.

        Args:
            was: The values that the user saw; a `ConflictError` is raised if another user has changed them.
            **changes: The new values, by the names of `LicenseTerms`.
        """
        if not changes.keys() <= _CHANGEABLE:
            raise TypeError(f"not changeable: {', '.join(changes.keys() - _CHANGEABLE)}")
        prefix = self._context.settings.ipv6_prefix
        requested = license_terms.validate_fields(changes, prefix)
        seen = license_terms.validate_fields(was or {}, prefix)
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference, locked=True)
            for name, value in requested.items():
                requested[name] = self._mask_key_in(value, license_) if isinstance(value, str) else value
            _check_unchanged(license_, seen, requested)
            expires_on = requested.get("expires_on", license_.expires_on)
            lifetime = requested.get("lifetime", license_.lifetime)
            if license_.lifetime and "lifetime" not in requested and expires_on is not None:
                raise InvalidInputError("this key is for a lifetime; add --no-lifetime to let it expire")
            license_terms.check_lifetime(lifetime=lifetime, has_expiry=expires_on is not None)
            new = {name: value for name, value in requested.items() if value != getattr(license_, name)}
            if new:
                check_plans(tx, license_.product_id, license_.product_slug, {new.get("plan")})
                tx.repositories.licenses.change(license_, **new)
                details = {name: _audit_change(name, getattr(license_, name), new[name]) for name in new}
                tx.write_audit("license.change", audit_object(license_), **details)
                if not is_expired(license_, tx.now()):
                    _write_expiry(tx, replace(license_, **new))
        return self.get(reference)

    def allow(self, reference: str, entry: str) -> IssuedLicense:
        """Add an entry to a license's allow-list; it takes no slot."""
        (read,) = license_terms.read_entries((entry,), self._context.settings.ipv6_prefix)
        with self._context.transaction() as tx:
            allowed_entries = find_license(tx, reference, locked=True).allowed
            # Duplicates are removed.
            return LicenseService(tx).change(reference, allowed=(*allowed_entries, read))

    def disallow(self, reference: str, entry: str) -> IssuedLicense:
        """Remove an entry from the allow-list; an environment that matched it needs a slot from now on."""
        (read,) = license_terms.read_entries((entry,), self._context.settings.ipv6_prefix)
        with self._context.transaction() as tx:
            allowed_entries = find_license(tx, reference, locked=True).allowed
            if read not in allowed_entries:
                raise NotFoundError(f"{entry!r} is not in this license's allow-list")
            return LicenseService(tx).change(
                reference, allowed=tuple(allowed for allowed in allowed_entries if allowed != read)
            )

    def revoke(self, reference: str, reason: str | None = None) -> IssuedLicense:
        """Revoke a license; a revoked license is not changed."""
        if reason is not None and (not is_printable(reason) or len(reason) > MAX_REASON_CHARS):
            raise InvalidInputError(
                f"a reason must be one line of text of at most {MAX_REASON_CHARS} characters"
            )
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference, locked=True)
            if license_.revoked_at is None:
                revoke_licenses(
                    tx, [license_], None if reason is None else self._mask_key_in(reason, license_)
                )
        return self.get(reference)

    def reinstate(self, reference: str) -> IssuedLicense:
        """Undo a revocation; a license that is not revoked is not changed."""
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference, locked=True)
            if license_.revoked_at is not None:
                reinstate_licenses(tx, [license_])
        return self.get(reference)

    def deactivate(self, reference: str, domain_or_ip: str) -> int:
        """Free the slots of a domain or an address; return their number."""
        domain = validation.read_domain(domain_or_ip)
        ip = validation.find_ip(domain_or_ip.strip(), self._context.settings.ipv6_prefix)
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference)
            freed = tx.repositories.licenses.deactivate(license_.id, domain, ip)
            if freed == 0:
                advice = "`licserver license show` lists what is"
                raise NotFoundError(f"{domain_or_ip!r} is not activated for this license; {advice}")
            tx.write_audit("license.deactivate", audit_object(license_), environment=domain, freed=freed)
            tx.add_events(EventType.ACTIVATION_FREED, event_data(license_, freed=freed))
        return freed

    def free_slot(self, reference: str, environment: Environment) -> None:
        """Free the slot of exactly this environment."""
        with self._context.transaction() as tx:
            license_ = find_license(tx, reference)
            is_text = all(map(is_printable, environment))
            if not (is_text and tx.repositories.licenses.remove_activation(license_.id, environment)):
                raise NotFoundError("this activation does not exist any more; it may have been freed already")
            where = " ".join(environment)
            tx.write_audit("license.deactivate", audit_object(license_), environment=where, freed=1)
            tx.add_events(EventType.ACTIVATION_FREED, event_data(license_, freed=1))

    def _mask_key_in(self, text: str, license_: IssuedLicense) -> str:
        """Mask all keys in a text, also the license's own: no pattern recognises an imported key."""
        with suppress(SecretsError):  # an altered row must not prevent a revocation
            return mask(text, self.decrypt_key(license_))
        return mask(text)


def _write_expiry(tx: Context, license_: IssuedLicense) -> None:
    """Write the event of a license that a change has made expire; a scan finds the others."""
    if license_.revoked_at is None and is_expired(license_, tx.now()):
        tx.add_new_events(expired_event(license_, tx.now()))


def _audit_change(name: str, old: Any, new: Any) -> Any:
    """Return both values, or "changed" for text: the audit log holds no personal data (D-92)."""
    if name == "overrides":  # values may be texts
        old, new = old or {}, new or {}
        return sorted(key for key in {*old, *new} if (key in old, old.get(key)) != (key in new, new.get(key)))
    if name == "plan":
        return [old, new]
    return "changed" if isinstance(old, str) or isinstance(new, str) else [old, new]


def add_licenses(tx: Context, new: list[IssuedLicense], slug: str) -> None:
    """Write new licenses, and a single line of the audit log for all of them."""
    object_ = ("license", new[0].id.hex()) if len(new) == 1 else ("product", slug)
    check_plans(tx, new[0].product_id, slug, {license_.plan for license_ in new})
    # Read here, within the transaction: a subscription may have ended a moment ago.
    subscriptions = sorted(
        {license_.subscription_id for license_ in new if license_.subscription_id is not None}
    )
    ends = {
        subscription_id: tx.repositories.subscriptions.lock(subscription_id)
        for subscription_id in subscriptions
    }
    if ends:
        new = [
            replace(license_, subscription_ended_at=ends.get(license_.subscription_id or ""))
            for license_ in new
        ]
    tx.repositories.licenses.add_all(new)
    tx.write_audit("license.issue", object_, product=slug, count=len(new))
    tx.add_events(EventType.LICENSE_ISSUED, *map(event_data, new))


def revoke_licenses(tx: Context, licenses: Sequence[IssuedLicense], reason: str | None) -> None:
    """Revoke licenses that are locked and valid."""
    tx.repositories.licenses.change(*licenses, revoked_at=tx.now(), revoked_reason=reason)
    tx.write_audit("license.revoke", *map(audit_object, licenses), reason=reason)
    tx.add_events(EventType.LICENSE_REVOKED, *map(event_data, licenses))


def reinstate_licenses(tx: Context, licenses: Sequence[IssuedLicense]) -> None:
    """Undo the revocation of licenses that are locked and revoked for the same reason."""
    tx.repositories.licenses.change(*licenses, revoked_at=None, revoked_reason=None)
    tx.write_audit("license.reinstate", *map(audit_object, licenses), was=licenses[0].revoked_reason)
    tx.add_events(EventType.LICENSE_REINSTATED, *map(event_data, licenses))
    MailService(tx).send_skipped(licenses)
    for license_ in licenses:
        _write_expiry(tx, replace(license_, revoked_at=None))


def _check_unchanged(license_: IssuedLicense, seen: dict[str, Any], requested: dict[str, Any]) -> None:
    """Refuse to overwrite a change by another user since the page was loaded, unless both are equal."""
    names = [
        name for name, value in seen.items() if getattr(license_, name) not in (value, requested.get(name))
    ]
    if names:
        changed = ", ".join(name.replace("_", " ") for name in names)
        raise ConflictError(
            f"another user has changed this license in the meantime ({changed}): compare, and send it again"
        )
