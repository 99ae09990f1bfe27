"""Licenses: issued, changed, revoked, their slots freed, and their subscriptions ended."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from licserver.database.repositories.licenses import Activation, Subscription
from licserver.domain.decisions import (
    generate_license_key,
    is_expired,
    is_imported_key,
    is_license_key,
    mask_key,
)
from licserver.domain.environments import is_printable
from licserver.domain.records import TERMS, Environment, IssuedLicense, LicenseTerms, Product
from licserver.domain.text import KeyPart, find_reference
from licserver.errors import ConflictError, InvalidInputError, NotFoundError, SecretsError
from licserver.protocol.webhooks import EventType
from licserver.security.redaction import mask
from licserver.services import license_terms, lists
from licserver.services.context import Context, Service
from licserver.services.lists import LicenseFilter, Page, check_limit, cut_page, read_place
from licserver.services.products import check_plans, find_product
from licserver.services.releases import ReleaseService
from licserver.services.webhooks import expired_event, write_subscription_end

ISSUE_BATCH: Final = 10_000
"""Licenses issued in one transaction: large enough to be fast, small enough to let others write."""

MAX_REASON: Final = 500  # characters of a reason
_CHANGEABLE: Final = {*TERMS} - {"subscription_id"}

_ALL: Final = LicenseFilter()


class LicenseService(Service):
    """Issues, finds and changes licenses; a `reference` is a license key or an id (32 hex digits)."""

    def issue(self, slug: str, terms: LicenseTerms) -> tuple[IssuedLicense, str]:
        """Issue one license; return it and its key."""
        key, product, terms = generate_license_key(), find_product(self._context, slug), self._validate(terms)
        new = self.prepare(product, terms, key)
        with self._context.transaction() as tx:
            add_licenses(tx, [new], slug)
            return LicenseService(tx).get(new.id.hex()), key

    def issue_batches(self, slug: str, terms: LicenseTerms, count: int = 1) -> Iterator[list[str]]:
        """Issue licenses; yield their keys in batches, each committed. All is checked before the first."""
        if count < 1:
            raise InvalidInputError("the count must be at least 1")
        return self._issue_batches(find_product(self._context, slug), self._validate(terms), count)

    def _issue_batches(self, product: Product, terms: LicenseTerms, count: int) -> Iterator[list[str]]:
        for done in range(0, count, ISSUE_BATCH):
            keys = [generate_license_key() for _ in range(min(ISSUE_BATCH, count - done))]
            now = self._context.now()
            with self._context.transaction() as tx:
                add_licenses(tx, [self.prepare(product, terms, key, now) for key in keys], product.slug)
            yield keys

    def prepare(
        self,
        product: Product,
        terms: LicenseTerms,
        key: str,
        issued_at: datetime | None = None,
        product_name: str | None = None,
    ) -> IssuedLicense:
        """Return the record of a license that is about to be issued; nothing is written."""
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
        """Return one license."""
        return find_license(self._context, reference)

    def find_by_key(self, key: str) -> IssuedLicense | None:
        """Return the license of a key that an app or a customer sends, as `find_by_key`."""
        return find_by_key(self._context, key)

    def get_all(self, ids: Iterable[str]) -> list[IssuedLicense]:
        """Return licenses by their ids; what is no id, or of no license, is left out."""
        read = [bytes.fromhex(one) for one in ids if license_terms.has_id_shape(one)]
        return self._context.repositories.licenses.find_all(read) if read else []

    def list_all(self, slug: str | None = None) -> Iterator[IssuedLicense]:
        """Return all licenses, or those of one product, by the instant of issue."""
        product_id = None if slug is None else find_product(self._context, slug).id
        return self._context.for_lists().repositories.licenses.list_all(product_id)

    def search(
        self, which: LicenseFilter = _ALL, cursor: str | None = None, limit: int = 50
    ) -> Page[IssuedLicense]:
        """Return a page of licenses: the latest first; by expiry or by what matches if searched for that."""
        context, position = self._context.for_lists(), lists.read_cursor(cursor)
        return lists.read_page(context, *lists.plan(context, which, position), position, limit)

    def count(self, which: LicenseFilter = _ALL) -> tuple[int, bool] | None:
        """Count what a search finds: the number, and whether there are more; None if that takes long."""
        context = self._context.for_lists()
        return context.repositories.license_search.count(*lists.plan(context, which, None))

    def find_pasted(self, text: str) -> IssuedLicense | None:
        """Return the license of a key, or of a link to the console, in a text that somebody pasted."""
        with suppress(InvalidInputError, NotFoundError):
            return find_license(self._context, find_reference(text) or text)
        return None

    def find_similar(self, part: KeyPart) -> list[IssuedLicense]:
        """Return licenses whose keys fit a part of one."""
        ids = lists.find_by_key_part(self._context, part)[: lists.MAX_PAGE]
        return self._context.repositories.licenses.find_all(ids)

    def list_entitled(
        self, slug: str, version: str, cursor: str | None = None, limit: int = 50
    ) -> Page[IssuedLicense]:
        """Return a page of the licenses that may download a release; none once it is withdrawn."""
        release, product = ReleaseService(self._context).get(slug, version), find_product(self._context, slug)
        return lists.list_entitled(self._context.for_lists(), product, release, cursor, limit)

    def list_activations(
        self, reference: str, cursor: str | None = None, limit: int = 50
    ) -> Page[Activation]:
        """Return a page of a license's activations, by domain and address."""
        check_limit(limit)
        after, license_id = read_place(cursor, str, str), self.get(reference).id
        found = self._context.repositories.licenses.list_activations_page(license_id, after, limit + 1)
        return cut_page(found, limit, lambda last: last.environment)

    def list_all_activations(self, license_: IssuedLicense) -> list[Activation]:
        """Return a license's activations, in the order in which they took their slots."""
        return self._context.repositories.licenses.list_activations(license_.id)

    def mask_key(self, license_: IssuedLicense) -> str:
        """Return the masked key; an altered row must not end a list, or hide that a change is done."""
        try:
            return mask_key(self.decrypt_key(license_))
        except SecretsError:
            return "unreadable"

    def decrypt_key(self, license_: IssuedLicense) -> str:
        """Return a license's key, which is for nobody to see: `reveal` is audited."""
        return self._context.vault.decrypt_key(license_.encrypted_key, license_.id)

    def reveal(self, reference: str) -> str:
        """Return a license's whole key, and record who asked for it."""
        with self._context.transaction() as tx:
            found = find_license(tx, reference)
            key = self.decrypt_key(found)
            tx.write_audit("license.reveal", audit_object(found))
        return key

    def change(
        self, reference: str, *, was: Mapping[str, Any] | None = None, **changes: Any
    ) -> IssuedLicense:
        """Change terms, all but the subscription; what is not named stays.

        A value in `was`, as the user saw it, that has changed meanwhile is a `ConflictError`.
        """
        if not changes.keys() <= _CHANGEABLE:
            raise TypeError(f"not changeable: {', '.join(changes.keys() - _CHANGEABLE)}")
        prefix = self._context.settings.ipv6_prefix
        wanted = license_terms.validate_fields(changes, prefix)
        seen = license_terms.validate_fields(was or {}, prefix)
        with self._context.transaction() as tx:
            found = find_license(tx, reference, locked=True)
            for name, value in wanted.items():
                wanted[name] = self._mask_key_in(value, found) if isinstance(value, str) else value
            _check_unchanged(found, seen, wanted)
            expires_on = wanted.get("expires_on", found.expires_on)
            lifetime = wanted.get("lifetime", found.lifetime)
            license_terms.check_lifetime(lifetime=lifetime, has_expiry=expires_on is not None)
            new = {name: value for name, value in wanted.items() if value != getattr(found, name)}
            if new:
                check_plans(tx, found.product_id, found.product_slug, {new.get("plan")})
                tx.repositories.licenses.change(found, **new)
                details = {name: _audit_change(name, getattr(found, name), new[name]) for name in new}
                tx.write_audit("license.change", audit_object(found), **details)
                if not is_expired(found, tx.now()):
                    _write_expiry(tx, replace(found, **new))
        return self.get(reference)

    def allow(self, reference: str, entry: str) -> IssuedLicense:
        """Add an entry to a license's allow-list; it takes no slot."""
        (read,) = license_terms.read_entries((entry,), self._context.settings.ipv6_prefix)
        with self._context.transaction() as tx:
            kept = find_license(tx, reference, locked=True).allowed
            return LicenseService(tx).change(reference, allowed=(*kept, read))  # each is kept once

    def disallow(self, reference: str, entry: str) -> IssuedLicense:
        """Remove an entry from the allow-list; an environment that matched it needs a slot from now on."""
        (read,) = license_terms.read_entries((entry,), self._context.settings.ipv6_prefix)
        with self._context.transaction() as tx:
            kept = find_license(tx, reference, locked=True).allowed
            if read not in kept:
                raise NotFoundError(f"{entry!r} is not in this license's allow-list")
            return LicenseService(tx).change(reference, allowed=tuple(one for one in kept if one != read))

    def revoke(self, reference: str, reason: str | None = None) -> IssuedLicense:
        """Revoke a license; one that is revoked already stays as it is."""
        if reason is not None and (not is_printable(reason) or len(reason) > MAX_REASON):
            raise InvalidInputError(f"a reason must be one line of text of at most {MAX_REASON} characters")
        with self._context.transaction() as tx:
            found = find_license(tx, reference, locked=True)
            if found.revoked_at is None:
                reason = None if reason is None else self._mask_key_in(reason, found)
                tx.repositories.licenses.change(found, revoked_at=tx.now(), revoked_reason=reason)
                tx.write_audit("license.revoke", audit_object(found), reason=reason)
                tx.add_events(EventType.LICENSE_REVOKED, event_data(found))
        return self.get(reference)

    def reinstate(self, reference: str) -> IssuedLicense:
        """Undo a revocation; a license that is not revoked stays as it is."""
        with self._context.transaction() as tx:
            found = find_license(tx, reference, locked=True)
            if found.revoked_at is not None:
                tx.repositories.licenses.change(found, revoked_at=None, revoked_reason=None)
                tx.write_audit("license.reinstate", audit_object(found), was=found.revoked_reason)
                tx.add_events(EventType.LICENSE_REINSTATED, event_data(found))
                _write_expiry(tx, replace(found, revoked_at=None))
        return self.get(reference)

    def deactivate(self, reference: str, domain_or_ip: str) -> int:
        """Free the slots of a domain or an address; return how many were freed."""
        domain = license_terms.read_domain(domain_or_ip)
        ip = license_terms.find_ip(domain_or_ip.strip(), self._context.settings.ipv6_prefix)
        with self._context.transaction() as tx:
            found = find_license(tx, reference)
            freed = tx.repositories.licenses.deactivate(found.id, domain, ip)
            if freed == 0:
                advice = "`licserver license show` lists what is"
                raise NotFoundError(f"{domain_or_ip!r} is not activated for this license; {advice}")
            tx.write_audit("license.deactivate", audit_object(found), environment=domain, freed=freed)
            tx.add_events(EventType.ACTIVATION_FREED, event_data(found, freed=freed))
        return freed

    def free_slot(self, reference: str, environment: Environment) -> None:
        """Free one slot, and no other of the same domain or address."""
        with self._context.transaction() as tx:
            found = find_license(tx, reference)
            is_text = all(map(is_printable, environment))
            if not (is_text and tx.repositories.licenses.remove_activation(found.id, environment)):
                raise NotFoundError("this activation does not exist any more; it may have been freed already")
            where = " ".join(environment)
            tx.write_audit("license.deactivate", audit_object(found), environment=where, freed=1)
            tx.add_events(EventType.ACTIVATION_FREED, event_data(found, freed=1))

    def _mask_key_in(self, text: str, license_: IssuedLicense) -> str:
        """Mask keys, also the license's own, which no pattern recognises if it was sold elsewhere.

        A key is stored encrypted, or not at all.
        """
        with suppress(SecretsError):  # an altered row must not prevent a revocation
            return mask(text, self.decrypt_key(license_))
        return mask(text)


def find_license(context: Context, reference: str, *, locked: bool = False) -> IssuedLicense:
    """Return one license; a `locked` one can be changed by nobody else until the transaction ends."""
    text = reference.strip()
    is_id, is_ours = license_terms.has_id_shape(text), is_license_key(text)
    # An imported key may have the shape of an id, as those of Easy Digital Downloads have.
    ids = [bytes.fromhex(text)] if is_id else []
    if is_ours or is_imported_key(text):
        ids.append(context.vault.license_id(text))
    for license_id in ids:
        if (found := context.repositories.licenses.find(license_id, locked=locked)) is not None:
            return found
    if is_id or is_ours:
        raise NotFoundError("there is no such license; `licserver license list` shows the ids of all")
    raise InvalidInputError("this is neither a license key (CP- and five groups of six) nor a license id")


def find_by_key(context: Context, key: str, *, locked: bool = False) -> IssuedLicense | None:
    """Return the license of a key that an app or a customer sends; None if no license has exactly this key.

    One that was sold elsewhere counts if its product accepts such keys (D-185). A text that cannot be a key
    is looked up as well, so that all refusals take the same time.
    """
    found = context.repositories.licenses.find(context.vault.license_id(key), locked=locked)
    if found is None or is_license_key(key):
        return found
    product = find_product(context, found.product_slug)
    return found if is_imported_key(key) and product.accepts_imported_keys else None


def audit_object(found: IssuedLicense) -> tuple[str, str]:
    """Return a license as the audit log names it."""
    return "license", found.id.hex()


def event_data(license_: IssuedLicense, **more: Any) -> dict[str, Any]:
    """Return the data of an event about a license."""
    return {"license_id": license_.id.hex(), **more}


def _write_expiry(tx: Context, license_: IssuedLicense) -> None:
    """Write the event of a license that has expired by a change, and not because a day is over."""
    if license_.revoked_at is None and is_expired(license_, tx.now()):
        tx.add_new_events(expired_event(license_, tx.now()))


def _audit_change(name: str, old: Any, new: Any) -> Any:
    """Return both values, or of a text only that it changed: the audit log holds no personal data (D-92)."""
    if name == "overrides":  # values may be texts
        old, new = old or {}, new or {}
        return sorted(one for one in {*old, *new} if (one in old, old.get(one)) != (one in new, new.get(one)))
    if name == "plan":
        return [old, new]
    return "changed" if isinstance(old, str) or isinstance(new, str) else [old, new]


def add_licenses(tx: Context, new: list[IssuedLicense], slug: str) -> None:
    """Write new licenses, and one line of the audit log: one for each of a million would bury the others."""
    object_ = ("license", new[0].id.hex()) if len(new) == 1 else ("product", slug)
    check_plans(tx, new[0].product_id, slug, {one.plan for one in new})
    # Read here, within the transaction: a subscription may have ended a moment ago.
    subscriptions = sorted({one.subscription_id for one in new if one.subscription_id is not None})
    ends = {one: tx.repositories.subscriptions.lock(one) for one in subscriptions}
    if ends:
        new = [replace(one, subscription_ended_at=ends.get(one.subscription_id or "")) for one in new]
    tx.repositories.licenses.add_all(new)
    tx.write_audit("license.issue", object_, product=slug, count=len(new))
    tx.add_events(EventType.LICENSE_ISSUED, *map(event_data, new))


def _check_unchanged(found: IssuedLicense, seen: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to overwrite what somebody else changed since it was seen, unless both want the same."""
    names = [name for name, value in seen.items() if getattr(found, name) not in (value, wanted.get(name))]
    if names:
        changed = ", ".join(name.replace("_", " ") for name in names)
        raise ConflictError(
            f"somebody else has changed this license meanwhile ({changed}): compare, and send it again"
        )


class SubscriptionService(Service):
    """Ends and resumes subscriptions, and follows them as a shop reports them."""

    def end(self, subscription_id: str, at: datetime | None = None) -> int:
        """End a subscription, now or at an instant; again to move it. Return how many licenses it has."""
        at = (at or self._context.now()).astimezone(UTC)
        self.get(subscription_id)
        return self.follow(subscription_id, at, "subscription.end")

    def resume(self, subscription_id: str) -> int:
        """Undo the end of a subscription; return how many licenses are linked to it."""
        self.get(subscription_id)
        return self.follow(subscription_id, None, "subscription.resume")

    def follow(
        self, subscription_id: str, ends_at: datetime | None, action: str = "subscription.change"
    ) -> int:
        """Store the end that a shop reports; return how many licenses the subscription has, if any yet."""
        with self._context.transaction() as tx:
            # Locked first: a license issued meanwhile ends as well.
            before = tx.repositories.subscriptions.lock(subscription_id)
            count = tx.repositories.subscriptions.set_end(subscription_id, ends_at)
            if count:
                tx.write_audit(action, ("subscription", subscription_id), at=ends_at, licenses=count)
                write_subscription_end(tx, subscription_id, before, ends_at)
        return count

    def link(self, ids: Iterable[bytes], subscription_id: str) -> None:
        """Link licenses to a subscription, unless they are linked to one; their end is for `follow`."""
        license_terms.check_subscription(subscription_id)
        with self._context.transaction() as tx:
            for one in sorted(ids):
                if find_license(tx, one.hex()).subscription_id is None:
                    found = find_license(tx, one.hex(), locked=True)
                    tx.repositories.licenses.change(found, subscription_id=subscription_id)
                    tx.write_audit("license.change", audit_object(found), subscription_id="changed")

    def get(self, subscription_id: str) -> Subscription:
        """Return one subscription."""
        license_terms.check_subscription(subscription_id)
        found = self._context.repositories.subscriptions.find(subscription_id)
        if found is None:
            raise NotFoundError(f"no license is linked to a subscription {subscription_id!r}")
        return found

    def list_page(self, cursor: str | None = None, limit: int = 50) -> Page[Subscription]:
        """Return a page of all subscriptions, by id."""
        check_limit(limit)
        place = read_place(cursor, str)
        subscriptions = self._context.for_lists().repositories.subscriptions
        found = subscriptions.list_page(place[0] if place else None, limit + 1)
        return cut_page(found, limit, lambda last: [last.id])
