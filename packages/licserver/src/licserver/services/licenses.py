"""Licenses that were issued: looked at, changed, revoked."""

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, TypedDict, Unpack

from licserver.database.repositories.licenses import IssuedLicense
from licserver.database.repositories.repository import Repositories
from licserver.domain.decisions import has_key_shape
from licserver.domain.environments import BadDomain, is_printable, normalise_domain, normalise_ip, parse_ip
from licserver.domain.records import Environment
from licserver.errors import Conflict, Unknown, WrongUse
from licserver.security.key_vault import ID_BYTES
from licserver.security.redaction import mask
from licserver.services import license_terms
from licserver.services.products import Products

MAX_REASON = 500
"""Characters of a reason."""


class Changes(TypedDict, total=False):
    """What of a license can be changed; as in `licserver.domain.records.LicenseTerms`."""

    slots: int | None
    expires_on: date | None
    lifetime: bool
    support_until: date | None
    allowed: tuple[str, ...]
    customer_email: str | None
    note: str | None


def has_id_shape(text: str) -> bool:
    """Tell whether `text` can be a license's id, as it is shown."""
    return len(text) == 2 * ID_BYTES and all(char in "0123456789abcdef" for char in text)


def _check_seen(found: IssuedLicense, seen: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to write over what somebody else wrote since it was seen; the same wish twice is none."""
    names = [name for name, value in seen.items() if getattr(found, name) not in (value, wanted.get(name))]
    if names:
        told = ", ".join(name.replace("_", " ") for name in names)
        raise Conflict(
            f"somebody else has changed this license meanwhile ({told}): compare, and send it again"
        )


_PERSONAL = frozenset({"customer_email", "note"})
"""Of these the audit log says only that they changed: who forgets a customer need not look there (D-92)."""


class Licenses(Products):
    """What customers hold."""

    def license(self, reference: str) -> IssuedLicense:
        """One license, by its key or by its id (32 hexadecimal digits).

        Raises:
            Unknown: when there is none; the message does not repeat the key.
            WrongUse: when the reference can be neither.
        """
        return self._license(self._records, reference)

    def licenses(self, slug: str | None = None) -> Iterator[IssuedLicense]:
        """All licenses, or those of one product, by the instant of issue.

        Raises:
            Unknown: for an unknown product.
        """
        return self._records.licenses(None if slug is None else self.product(slug).id)

    def key(self, license_: IssuedLicense) -> str:
        """Unseal a license's key, to show some of it (`rules.mask_key`); for all of it, `reveal`.

        Raises:
            VaultError: when it was altered.
        """
        return self.vault.open(license_.sealed_key, license_.id)

    def reveal(self, reference: str) -> str:
        """Give a license's whole key, and note who wanted it.

        Raises:
            Unknown, WrongUse: as `license`.
            VaultError: when it was altered.
        """
        with self._records.together() as books:
            found = self._license(books, reference)
            key = self.key(found)
            self._note_license(books, "license.reveal", found)
        return key

    def activations(self, license_: IssuedLicense) -> list[tuple[Environment, datetime]]:
        """A license's activations with the instants at which they took their slots."""
        return self._records.activations(license_.id)

    def change(
        self, reference: str, *, was: Changes | None = None, **changes: Unpack[Changes]
    ) -> IssuedLicense:
        """Change what is agreed; what is not named stays.

        Args:
            reference: Which license.
            was: What the one who changes it had seen, where that matters.
            changes: What is to be.

        Raises:
            Unknown, WrongUse: as `license`; `WrongUse` also for terms that cannot be.
            Conflict: when somebody else has changed meanwhile what `was` tells; nothing is changed then.
        """
        wanted, seen = self._read_changes(changes), self._read_changes(was or {})
        with self._records.together() as books:
            found = self._license(books, reference, locked=True)
            _check_seen(found, seen, wanted)
            expires_on = wanted.get("expires_on", found.expires_on)
            license_terms.check_lifetime(
                lifetime=wanted.get("lifetime", found.lifetime), has_expiry=expires_on is not None
            )
            new = {name: value for name, value in wanted.items() if value != getattr(found, name)}
            if new:
                books.edit(found, **new)
                told = {
                    name: "changed" if name in _PERSONAL else [getattr(found, name), value]
                    for name, value in new.items()
                }
                self._note_license(books, "license.change", found, **told)
        return self.license(reference)

    def allow(self, reference: str, entry: str) -> IssuedLicense:
        """Add an owner's entry to a license; it takes no slot (D-04).

        Raises:
            Unknown, WrongUse: as `license`; `WrongUse` also when the entry cannot be read.
        """
        (read,) = license_terms.read_entries((entry,), self.settings.ipv6_prefix)
        return self._change_allowed(reference, lambda held: (*held, read) if read not in held else held)

    def disallow(self, reference: str, entry: str) -> IssuedLicense:
        """Take an owner's entry back; what uses the license by it needs a slot from now on.

        Raises:
            Unknown, WrongUse: as `license`; `Unknown` also when there is no such entry.
        """
        (read,) = license_terms.read_entries((entry,), self.settings.ipv6_prefix)

        def without(held: tuple[str, ...]) -> tuple[str, ...]:
            if read not in held:
                raise Unknown(f"{entry!r} is not in this license's allow-list")
            return tuple(one for one in held if one != read)

        return self._change_allowed(reference, without)

    def revoke(self, reference: str, reason: str | None = None) -> IssuedLicense:
        """Revoke a license; one that is revoked already stays as it is.

        Raises:
            Unknown, WrongUse: as `license`; `WrongUse` also for a reason that is no line of text.
        """
        if reason is not None and (not is_printable(reason) or len(reason) > MAX_REASON):
            raise WrongUse(f"a reason must be one line of text of at most {MAX_REASON} characters")
        reason = (
            None if reason is None else mask(reason)
        )  # a whole key stands sealed in the books, or not at all
        with self._records.together() as books:
            found = self._license(books, reference, locked=True)
            if found.revoked_at is None:
                books.revoke(found.id, reason, self._clock())
                self._note_license(books, "license.revoke", found, reason=reason)
        return self.license(reference)

    def reinstate(self, reference: str) -> IssuedLicense:
        """Take a revocation back; a license that is not revoked stays as it is.

        Raises:
            Unknown, WrongUse: as `license`.
        """
        with self._records.together() as books:
            found = self._license(books, reference, locked=True)
            if found.revoked_at is not None:
                books.reinstate(found.id)
                self._note_license(books, "license.reinstate", found, was=found.revoked_reason)
        return self.license(reference)

    def deactivate(self, reference: str, domain_or_ip: str) -> int:
        """Free the slots of a domain or of an address.

        Returns:
            How many slots were freed.

        Raises:
            Unknown: when there is no such license, or no such activation.
            WrongUse: when it can be neither.
        """
        try:
            domain = normalise_domain(domain_or_ip)
        except BadDomain as problem:
            raise WrongUse(f"a domain {problem}") from None
        address = parse_ip(domain_or_ip.strip())
        ip = None if address is None else normalise_ip(address, self.settings.ipv6_prefix)
        with self._records.together() as books:
            found = self._license(books, reference)
            freed = books.deactivate(found.id, domain, ip)
            if freed == 0:
                raise Unknown(
                    f"{domain_or_ip!r} is not activated for this license; "
                    "`licserver license show` lists what is"
                )
            self._note_license(books, "license.deactivate", found, environment=domain, freed=freed)
        return freed

    def free(self, reference: str, environment: Environment) -> None:
        """Free one slot, and no other of the same domain or address.

        Raises:
            Unknown: when there is no such license, or no such activation (any more).
            WrongUse: when the reference can be neither a key nor an id.
        """
        with self._records.together() as books:
            found = self._license(books, reference)
            if not (all(map(is_printable, environment)) and books.free(found.id, environment)):
                raise Unknown("this activation is not there any more; somebody else may have freed it")
            self._note_license(books, "license.deactivate", found, environment=" ".join(environment), freed=1)

    def _read_changes(self, changes: Changes) -> dict[str, Any]:
        wanted: dict[str, Any] = {**changes}
        if "slots" in wanted:
            license_terms.check_slots(wanted["slots"])
        if "allowed" in wanted:
            wanted["allowed"] = license_terms.read_entries(wanted["allowed"], self.settings.ipv6_prefix)
        if "customer_email" in wanted:
            wanted["customer_email"] = license_terms.read_email(wanted["customer_email"])
        if "note" in wanted:
            wanted["note"] = license_terms.read_note(wanted["note"])
        return wanted

    def _change_allowed(self, reference: str, edit: Any) -> IssuedLicense:
        with self.together() as bound:
            found = bound._license(bound._records, reference, locked=True)  # noqa: SLF001 - our own
            return bound.change(reference, allowed=edit(found.allowed))

    def _license(self, books: Repositories, reference: str, *, locked: bool = False) -> IssuedLicense:
        found = books.license(self._license_id(reference), locked=locked)
        if found is None:
            raise Unknown("there is no such license; `licserver license list` shows the ids of all")
        return found

    def _license_id(self, reference: str) -> bytes:
        text = reference.strip()
        if has_id_shape(text):
            return bytes.fromhex(text)
        if not has_key_shape(text):
            raise WrongUse(
                "this has not the shape of a license key, CP- and five groups of six, nor of a license id"
            )
        return self.vault.license_id(text)

    def _note_license(self, books: Repositories, action: str, found: IssuedLicense, **details: Any) -> None:
        self._note(books, action, ("license", found.id.hex()), **details)
