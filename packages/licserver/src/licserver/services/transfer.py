"""Import and export of licenses, as rows of a file (`licserver.protocol.license_files`)."""

import enum
import heapq
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import date, datetime
from operator import itemgetter
from typing import Any, Final, NamedTuple

from licserver.database.repositories import Repositories
from licserver.database.staging import Staging, staging
from licserver.domain.decisions import (
    KEY_PREFIX,
    MAX_IMPORTED_KEY,
    MIN_IMPORTED_KEY,
    generate_license_key,
    is_imported_key,
    is_license_key,
    mask_key,
)
from licserver.domain.environments import (
    InvalidDomainError,
    is_printable,
    normalise_domain,
    normalise_ip,
    parse_ip,
)
from licserver.domain.records import TERMS, IssuedLicense, Product
from licserver.domain.text import extract_words, plural
from licserver.errors import InvalidInputError, NotFoundError
from licserver.protocol.license_files import ActivationRow, LicenseRow, Line, Problem, Skipped
from licserver.security.redaction import mask
from licserver.services import license_terms
from licserver.services.context import Context
from licserver.services.licenses import MAX_REASON, LicenseService
from licserver.services.products import ProductService


class Existing(enum.StrEnum):
    """What an import does with a line whose license is in the database with other terms."""

    REFUSE = "refuse"
    KEEP = "keep"
    CHANGE = "change"


MAX_CHANGES: Final = 1_000  # of one import: others wait for its transaction
_FIXED: Final = {"product_id", "subscription_id"}  # what no change of a license changes


class Action(enum.StrEnum):
    """What an import does with a line."""

    CREATE = "create"
    CHANGE = "change"
    UNCHANGED = "unchanged"
    SKIP = "skip"
    REFUSE = "refuse"


class PlannedLine(NamedTuple):
    """A line of a file, and what an import does with it; the key is masked."""

    line: int
    action: Action
    license_key: str
    detail: str


_COLUMNS: Final = {"product_id": "product", "subscription_id": "subscription"}

MAX_PROBLEMS: Final = 100  # problems listed one by one; a file with more has one that is in all lines


_KEPT: Final = sorted(
    {one.name for one in fields(LicenseRow)} & {one.name for one in fields(IssuedLicense)} - {*TERMS}
)
"""What a file has of a license beside its terms and its key."""

_NEEDED: Final = (
    ("subscription_ended_at", "subscription_id", "subscription"),
    ("revoked_reason", "revoked_at", "revoked_at"),
)
"""What is meaningless alone: an end without a subscription could never be undone."""


def _describe(
    slug: str,
    slots: int | None,
    expires_on: date | None,
    lifetime: bool,
    revoked_at: datetime | None,
) -> str:
    seats = "unlimited slots" if slots is None else f"{slots} {plural(slots, 'slot')}"
    until = "for a lifetime" if lifetime else "" if expires_on is None else f"until {expires_on}"
    return ", ".join(filter(None, (slug, seats, until, "revoked" if revoked_at else "")))


class LicenseImport:
    """Licenses of a file, in temporary tables; they block no other writer until `commit`."""

    def __init__(self, context: Context, staged: Staging) -> None:
        self._context, self._staged, self._now = context, staged, context.now()
        self._licenses = LicenseService(context)
        self._products: dict[str, Product | None] = {}
        self.problems: list[Problem] = []
        self.skipped: list[Skipped] = []
        self.unchanged: list[int] = []
        self.changes: dict[int, tuple[str, dict[str, Any]]] = {}
        self.count = 0
        self.wrong = 0

    def read(self, rows: Iterable[Line], existing: Existing = Existing.REFUSE) -> None:
        """Read all rows; collect up to a hundred problems in `problems`, and count all of them in `wrong`.

        A license that is in the database already with the same terms is in `unchanged`; with other terms
        `existing` decides. `count` licenses are new.
        """
        for line, row in rows:
            if isinstance(row, Problem):
                self._add_problem(row)
                continue
            if isinstance(row, Skipped):
                self.skipped.append(row)
                continue
            try:
                self._stage(line, row)
            except InvalidInputError as problem:
                self._add_problem(Problem(line, str(problem)))
            self.count += 1
        for line, first in self._staged.duplicates():
            self._add_problem(Problem(line, f"license_key: is also in line {first}"))
        self._read_existing(existing)
        self._staged.drop([*self.unchanged, *self.changes])
        self.count -= len(self.unchanged) + len(self.changes)
        self.problems.sort(key=lambda problem: problem.line)

    def _read_existing(self, existing: Existing) -> None:
        for line, license_id, different in self._staged.existing():
            if not different or existing is Existing.KEEP:
                self.unchanged.append(line)
                continue
            names = ", ".join(_COLUMNS.get(name, name) for name in different)
            if existing is Existing.REFUSE:
                message = f"license_key: is in the database already, with other terms: {names}"
                self._add_problem(Problem(line, message))
            elif _FIXED & different.keys():
                self._add_problem(
                    Problem(line, f"license_key: is in the database already; cannot change {names}")
                )
            elif len(self.changes) >= MAX_CHANGES:
                self._add_problem(
                    Problem(line, f"more than {MAX_CHANGES:,} licenses to change; split the file")
                )
            else:
                self.changes[line] = (license_id.hex(), different)

    def plan(self) -> Iterator[PlannedLine]:
        """Return what will be done with each line, in their order; of those with problems up to a hundred."""
        wrong = {problem.line: problem.message for problem in self.problems}
        return heapq.merge(
            (PlannedLine(line, Action.REFUSE, "", message) for line, message in sorted(wrong.items())),
            (PlannedLine(line, Action.SKIP, "", reason) for line, reason in self.skipped),
            (PlannedLine(line, Action.UNCHANGED, "", "is in the database") for line in self.unchanged),
            (PlannedLine(line, Action.CHANGE, "", ", ".join(new)) for line, (_, new) in self.changes.items()),
            self._plan_new(wrong),
        )

    def _plan_new(self, wrong: Container[int]) -> Iterator[PlannedLine]:
        slugs = {product.id: slug for slug, product in self._products.items() if product is not None}
        for line, license_id, encrypted, generated, product_id, *terms in self._staged.rows():
            if line in wrong:
                continue
            key = "" if generated else mask_key(self._context.vault.decrypt_key(encrypted, license_id))
            yield PlannedLine(line, Action.CREATE, key or "a new key", _describe(slugs[product_id], *terms))

    def _add_problem(self, problem: Problem) -> None:
        self.wrong += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def _stage(self, line: int, row: LicenseRow) -> None:
        key = row.license_key or generate_license_key()
        product, ipv6_prefix = self._product(row.product), self._context.settings.ipv6_prefix
        _check_key(key, product)
        _check_row(row)
        terms = license_terms.validate_terms(row, ipv6_prefix)
        if terms.note is not None:
            terms = replace(terms, note=mask(terms.note, key))
        kept = {name: value for name in _KEPT if (value := getattr(row, name)) is not None}
        license_ = replace(self._licenses.prepare(product, terms, key), **kept)
        activations = _read_activations(row.activations, license_.issued_at, self._now, ipv6_prefix)
        words = extract_words(license_.customer_email, license_.revoked_reason, license_.note)
        self._staged.add(line, license_, activations, words, generated=row.license_key is None)

    def _product(self, slug: str) -> Product:
        if slug not in self._products:
            try:
                self._products[slug] = ProductService(self._context).get(slug)
            except NotFoundError:
                self._products[slug] = None
        product = self._products[slug]
        if product is None:
            raise InvalidInputError(f"product: there is no {slug!r}; add it first")
        return product

    def prepare(self) -> None:
        """Do the slow part of `commit` that blocks no other writer; nothing is visible yet."""
        self._staged.prepare()

    def commit(self) -> int:
        """Write all licenses in one transaction, or none if a key was added meanwhile."""
        with self._staged.committing() as connection:
            tx = replace(self._context, repositories=Repositories(self._context.database, connection))
            for reference, different in sorted(
                self.changes.values(), key=itemgetter(0)
            ):  # the order of all locks
                _change(LicenseService(tx), reference, different)
            tx.write_audit("license.import", ("license", "-"), count=self.count)
        return self.count

    def generated_keys(self) -> Iterator[tuple[int, str]]:
        """Return line and key of the licenses whose keys were drawn; they are stored after `commit`."""
        for line, license_id, encrypted in self._staged.generated():
            yield line, self._context.vault.decrypt_key(encrypted, license_id)


class TransferService:
    """Imports and exports licenses."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @contextmanager
    def start_import(self) -> Iterator[LicenseImport]:
        """Begin an import; what is not committed at the end of the block leaves no trace."""
        with staging(self._context.database) as staged:
            yield LicenseImport(self._context, staged)

    def export(self, slug: str | None = None) -> Iterator[LicenseRow]:
        """Return all licenses with their keys, or those of one product, as of one moment; it is audited."""
        product = None if slug is None else ProductService(self._context).get(slug)
        with self._context.transaction() as tx:
            tx.write_audit(
                "license.export", ("license", "-") if product is None else ("product", product.slug)
            )
        return self._export(None if product is None else product.id)

    def _export(self, product_id: int | None) -> Iterator[LicenseRow]:
        for license_, activations in self._context.repositories.licenses.list_with_activations(product_id):
            yield LicenseRow(
                license_key=self._context.vault.decrypt_key(license_.encrypted_key, license_.id),
                product=license_.product_slug,
                activations=tuple(
                    ActivationRow(*one.environment, one.activated_at, one.last_seen_at) for one in activations
                ),
                **{name: getattr(license_, name) for name in (*TERMS, *_KEPT)},
            )


def _change(licenses: LicenseService, reference: str, different: Mapping[str, Any]) -> None:
    terms = {name: value for name, value in different.items() if name != "revoked_at"}
    if "revoked_at" in different and different["revoked_at"] is None:
        licenses.reinstate(reference)
    elif "revoked_at" in different:
        licenses.revoke(reference, "in the imported file")
    if "allowed" in terms:
        terms["allowed"] = tuple(terms["allowed"].splitlines())
    if terms:
        licenses.change(reference, **terms)


def _check_key(key: str, product: Product) -> None:
    if is_license_key(key):
        return
    if is_imported_key(key):
        if not product.accepts_imported_keys:
            raise InvalidInputError(
                "license_key: is not a CP- key; to accept such keys: "
                f"licserver product change {product.slug} --accept-imported-keys"
            )
        return
    if key.startswith(KEY_PREFIX):
        raise InvalidInputError("license_key: must be CP- and five groups of six letters and digits")
    if any(map(str.isspace, key)):
        raise InvalidInputError("license_key: must be one key without blanks")
    if MIN_IMPORTED_KEY <= len(key) <= MAX_IMPORTED_KEY and key.isascii() and key.isprintable():
        raise InvalidInputError("license_key: reads like a mistyped CP- key, which an app would correct")
    raise InvalidInputError(
        f"license_key: must have {MIN_IMPORTED_KEY} to {MAX_IMPORTED_KEY:,} letters, digits and ASCII signs"
    )


def _check_row(row: LicenseRow) -> None:
    """Validate what only an import sets."""
    for name, needed, column in _NEEDED:
        if getattr(row, name) is not None and getattr(row, needed) is None:
            raise InvalidInputError(f"{name}: needs {column} beside it")
    for name in ("product_name", "revoked_reason"):
        text = getattr(row, name)
        if text is not None and not is_printable(text):
            raise InvalidInputError(f"{name}: must be one line of text")
    if len(row.revoked_reason or "") > MAX_REASON:
        raise InvalidInputError(f"revoked_reason: must be of at most {MAX_REASON} characters")


def _read_activations(
    rows: tuple[ActivationRow, ...], issued_at: datetime, now: datetime, ipv6_prefix: int
) -> list[tuple[Any, ...]]:
    taken = {}
    for row in rows:
        try:
            domain = normalise_domain(row.domain)
        except InvalidDomainError as problem:
            raise InvalidInputError(f"activations: a domain {problem}") from None
        address = parse_ip(row.ip.strip())
        if address is None:
            raise InvalidInputError("activations: an ip must be an address")
        ip = normalise_ip(address, ipv6_prefix)
        # Never without an instant: a sweep would free the slot, and no search by domain would find it.
        taken[domain, ip] = (domain, ip, row.activated_at or issued_at, row.last_seen_at or now)
    return list(taken.values())
