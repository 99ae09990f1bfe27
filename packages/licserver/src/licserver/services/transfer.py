"""Import and export of licenses, as rows of a file (`licserver.protocol.license_files`)."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from licserver.database.repositories.license_rows import held_licenses
from licserver.database.repositories.repository import Repositories
from licserver.database.staging import Staging, staging
from licserver.domain.decisions import draw_key, has_key_shape
from licserver.domain.environments import BadDomain, is_printable, normalise_domain, normalise_ip, parse_ip
from licserver.domain.records import LicenseTerms, Product
from licserver.domain.search_words import words_of
from licserver.errors import Unknown, WrongUse
from licserver.protocol.license_files import ActivationRow, LicenseRow, Problem
from licserver.services import license_terms
from licserver.services.issuing import Agreed, Issuing
from licserver.services.licenses import MAX_REASON

MAX_PROBLEMS: Final = 100
"""Problems that are told one by one; a file with more has one that is in all lines."""


_NEEDED: Final = {"subscription_ended_at": "subscription", "revoked_reason": "revoked_at"}
"""What means nothing alone (D-148): what ended without a subscription could never be resumed."""


class Incoming:
    """Licenses that were read, and are in nobody's way until `commit`.

    Args:
        vendor: Whose.
        staged: Where they are put aside.
    """

    def __init__(self, vendor: "Moving", staged: Staging) -> None:
        self._vendor, self._staged, self._now = vendor, staged, vendor._clock()  # noqa: SLF001 - our own
        self._products: dict[str, Product | None] = {}
        self.problems: list[Problem] = []
        self.count = 0
        self.wrong = 0

    def read(self, rows: Iterable[tuple[int, LicenseRow | Problem]]) -> None:
        """Read all rows; what is wrong goes into `problems`, up to a hundred, and `wrong` counts it.

        Args:
            rows: From `licserver.protocol.license_files.read_rows`.

        Raises:
            StoreUnavailable: when the database fails.
        """
        for line, row in rows:
            if isinstance(row, Problem):
                self._complain(row)
                continue
            try:
                self._put_aside(line, row)
            except WrongUse as problem:
                self._complain(Problem(line, str(problem)))
            self.count += 1
        for line, first in self._staged.twice():
            self._complain(Problem(line, f"license_key: stands in line {first} already"))
        for line in self._staged.taken():
            self._complain(Problem(line, "license_key: is in the books already"))
        self.problems.sort(key=lambda problem: problem.line)

    def _complain(self, problem: Problem) -> None:
        self.wrong += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def _put_aside(self, line: int, row: LicenseRow) -> None:
        key = row.license_key or draw_key()
        if not has_key_shape(key):
            raise WrongUse("license_key: must be CP- and five groups of six letters and digits")
        agreed = self._vendor._agree_on_row(row, self._product(row.product))  # noqa: SLF001 - our own
        new = self._vendor.prepare(agreed, key, row.issued_at)
        record = {
            name: getattr(new, name)
            for name in new.__dataclass_fields__
            if name not in {"allowed", "product_name"}
        }
        record |= {
            "allowed": "\n".join(new.allowed),
            "product_name": row.product_name or new.product_name,
            "revoked_at": row.revoked_at,
            "revoked_reason": row.revoked_reason,
        }
        taken = self._vendor._read_activations(row.activations, new.issued_at, self._now)  # noqa: SLF001 - our own
        words = words_of(new.customer_email, new.note)
        self._staged.add(line, record, taken, words, drawn=row.license_key is None)

    def _product(self, slug: str) -> Product:
        if slug not in self._products:
            try:
                self._products[slug] = self._vendor.product(slug)
            except Unknown:
                self._products[slug] = None
        product = self._products[slug]
        if product is None:
            raise WrongUse(f"product: there is no {slug!r}; add it first")
        return product

    def prepare(self) -> None:
        """Do so much of `commit` as can take its time, because nobody waits for it; nothing counts yet.

        Raises:
            As `commit`.
        """
        self._staged.prepare()

    def commit(self) -> int:
        """Put all of them into the books, in one transaction.

        Returns:
            How many.

        Raises:
            Conflict: when one has come into the books meanwhile; then none was put there.
            StoreUnavailable: when the database fails; the same.
        """
        with self._staged.moving() as connection:
            books = Repositories(self._vendor.database, connection)
            self._vendor._note(books, "license.import", ("license", "-"), count=self.count)  # noqa: SLF001 - our own
        return self.count

    def drawn_keys(self) -> Iterator[tuple[int, str]]:
        """Give line and key of the licenses whose keys were drawn; they are in the books after `commit`."""
        for line, license_id, sealed in self._staged.drawn():
            yield line, self._vendor.vault.open(sealed, license_id)


class Moving(Issuing):
    """Imports and exports."""

    @contextmanager
    def importing(self) -> Iterator[Incoming]:
        """Take licenses in for a block; what was not committed at its end is gone without a trace."""
        with staging(self.database) as staged:
            yield Incoming(self, staged)

    def export_licenses(self, slug: str | None = None) -> Iterator[LicenseRow]:
        """Give all licenses with their keys, or those of one product, as of one moment; it is noted.

        Raises:
            Unknown: for an unknown product.
            VaultError: when a key was altered.
        """
        product = None if slug is None else self.product(slug)
        with self._records.together() as books:
            object_ = ("license", "-") if product is None else ("product", product.slug)
            self._note(books, "license.export", object_)
        return self._export(product)

    def _export(self, product: Product | None) -> Iterator[LicenseRow]:
        for row, sealed_key, license_id in held_licenses(
            self.database, None if product is None else product.id
        ):
            yield row._replace(license_key=self.vault.open(sealed_key, license_id))

    def _agree_on_row(self, row: LicenseRow, product: Product) -> Agreed:
        """Check what a row says, as `agree` checks what is agreed for a new license."""
        license_terms.check_lifetime(lifetime=row.lifetime, has_expiry=row.expires_on is not None)
        license_terms.check_slots(row.slots)
        if row.subscription is not None:
            license_terms.check_subscription(row.subscription)
        for name, needed in _NEEDED.items():
            if getattr(row, name) is not None and getattr(row, needed) is None:
                raise WrongUse(f"{name}: needs {needed} beside it")
        for name in ("product_name", "revoked_reason"):
            text = getattr(row, name)
            if text is not None and not is_printable(text):
                raise WrongUse(f"{name}: must be one line of text")
        if len(row.revoked_reason or "") > MAX_REASON:
            raise WrongUse(f"revoked_reason: must be of at most {MAX_REASON} characters")
        agreed = LicenseTerms(
            slots=row.slots,
            expires_on=row.expires_on,
            lifetime=row.lifetime,
            support_until=row.support_until,
            subscription_id=row.subscription,
            allowed=license_terms.read_entries(row.allowed, self.settings.ipv6_prefix) if row.allowed else (),
            customer_email=license_terms.read_email(row.customer_email),
            note=license_terms.read_note(row.note),
        )
        return Agreed(product, agreed, row.subscription_ended_at)

    def _read_activations(
        self, rows: tuple[ActivationRow, ...], issued_at: datetime, now: datetime
    ) -> list[tuple[Any, ...]]:
        taken = {}
        for row in rows:
            try:
                domain = normalise_domain(row.domain)
            except BadDomain as problem:
                raise WrongUse(f"activations: a domain {problem}") from None
            address = parse_ip(row.ip.strip())
            if address is None:
                raise WrongUse("activations: an ip must be an address")
            ip = normalise_ip(address, self.settings.ipv6_prefix)
            # Never without an instant: a sweep would free it as one not seen since, and no search by domain
            # would find it (D-105, D-90).
            taken[domain, ip] = (domain, ip, row.activated_at or issued_at, row.last_seen_at or now)
        return list(taken.values())
