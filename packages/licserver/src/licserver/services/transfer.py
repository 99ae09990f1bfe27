"""Import and export of licenses, as rows of a file (`licserver.protocol.license_files`)."""

import enum
import heapq
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import datetime
from operator import itemgetter
from pathlib import PurePath
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
from licserver.domain.entitlements import load
from licserver.domain.environments import is_printable
from licserver.domain.records import LISTS, TERMS, IssuedLicense, Machine, Product
from licserver.domain.text import extract_words, plural, read_machine
from licserver.errors import InvalidInputError, NotFoundError
from licserver.protocol.foreign_exports import PRESETS, Conversion
from licserver.protocol.license_files import (
    FIELDS,
    FORMATS,
    ActivationRow,
    LicenseRow,
    Line,
    Problem,
    Skipped,
)
from licserver.security.redaction import mask, mask_machine
from licserver.services import license_terms
from licserver.services.context import Context, Service
from licserver.services.licenses import MAX_REASON, LicenseService
from licserver.services.products import check_plans, find_product

MAX_CHANGES: Final = 1_000  # of one import: others wait for its transaction
MAX_PROBLEMS: Final = 100  # problems listed one by one; a file with more has one that is in all lines
_FIXED: Final = {"product_id", "subscription_id"}  # what no change of a license changes
_COLUMNS: Final = {"product_id": "product", "subscription_id": "subscription"}
_KEPT: Final = sorted(
    {one.name for one in fields(LicenseRow)} & {one.name for one in fields(IssuedLicense)} - {*TERMS}
)
"""What a file has of a license beside its terms and its key."""


class Existing(enum.StrEnum):
    """What an import does with a line whose license is in the database with other terms."""

    REFUSE = "refuse"
    KEEP = "keep"
    CHANGE = "change"


class Action(enum.StrEnum):
    """What an import does with a line."""

    CREATE = "create"
    CHANGE = "change"
    UNCHANGED = "unchanged"
    SKIP = "skip"
    REFUSE = "refuse"


class PlannedLine(NamedTuple):
    """A line of a file, and what an import does with it; the key is masked, and empty if it is not known."""

    line: int
    action: Action
    license_key: str
    detail: str


class LicenseImport:
    """Licenses of a file, in temporary tables; they block no other writer until `commit`."""

    def __init__(self, context: Context, staged: Staging) -> None:
        self._context, self._staged, self._now = context, staged, context.now()
        self._licenses = LicenseService(context)
        self._products: dict[str, Product | None] = {}
        self._plans: dict[str, set[str]] = {}  # those that the file names, by product
        self.problems: list[Problem] = []
        self.skipped: list[Skipped] = []
        self.unchanged: list[int] = []
        self.changes: dict[int, tuple[str, dict[str, Any]]] = {}
        self._masked: dict[int, str] = {}  # keys of lines that bring no new license
        self.count = 0
        self.wrong = 0

    def read(self, rows: Iterable[Line], existing: Existing = Existing.REFUSE) -> None:
        """Read all rows; collect up to a hundred problems in `problems`, and count all of them in `wrong`.

        A license that is in the database already with the same terms is in `unchanged`; with other terms
        `existing` decides. `count` licenses are new.
        """
        try:
            for line, row in rows:
                self._read_line(line, row)
        except UnicodeDecodeError:
            raise InvalidInputError(
                "the file is not UTF-8 text; spreadsheets can save as “CSV UTF-8”"
            ) from None
        for line, first, masked in self._staged.duplicates():
            self._masked[line] = masked
            self._add_problem(Problem(line, f"license_key: is also in line {first}"))
        self._read_existing(existing)
        self._staged.drop([*self.unchanged, *self.changes])
        self.count -= len(self.unchanged) + len(self.changes)
        self.problems.sort(key=lambda problem: problem.line)

    def _read_line(self, line: int, row: LicenseRow | Problem | Skipped) -> None:
        if isinstance(row, Problem):
            self._add_problem(row)
        elif isinstance(row, Skipped):
            self.skipped.append(row)
        else:
            try:
                self._stage(line, row)
            except InvalidInputError as problem:
                self._add_problem(Problem(line, str(problem)), row.license_key)
            self.count += 1

    def _read_existing(self, existing: Existing) -> None:
        for line, license_id, masked, different in self._staged.existing():
            self._masked[line] = masked
            if not different or existing is Existing.KEEP:
                self.unchanged.append(line)
                continue
            names = ", ".join(_COLUMNS.get(name, name) for name in different)
            if existing is Existing.REFUSE:
                message = f"license_key: is in the database already, with other terms: {names}"
                self._add_problem(Problem(line, message))
            elif _FIXED & different.keys():
                message = f"license_key: is in the database already; cannot change {names}"
                self._add_problem(Problem(line, message))
            elif len(self.changes) >= MAX_CHANGES:
                message = f"more than {MAX_CHANGES:,} licenses to change; split the file"
                self._add_problem(Problem(line, message))
            else:
                self.changes[line] = (license_id.hex(), different)

    def plan(self) -> Iterator[PlannedLine]:
        """Return what will be done with each line, in their order; of those with problems up to a hundred."""
        wrong = {problem.line: problem.message for problem in self.problems}

        def plan(line: int, action: Action, detail: str) -> PlannedLine:
            return PlannedLine(line, action, self._masked.get(line, ""), detail)

        return heapq.merge(
            (plan(line, Action.REFUSE, message) for line, message in sorted(wrong.items())),
            (plan(line, Action.SKIP, reason) for line, reason in self.skipped),
            (plan(line, Action.UNCHANGED, "is in the database") for line in self.unchanged),
            (plan(line, Action.CHANGE, ", ".join(new)) for line, (_, new) in self.changes.items()),
            self._plan_new(wrong),
        )

    def _plan_new(self, wrong: Container[int]) -> Iterator[PlannedLine]:
        slugs = {product.id: slug for slug, product in self._products.items() if product is not None}
        rows = self._staged.rows()
        for line, masked, generated, product_id, slots, expires_on, lifetime, revoked_at in rows:
            if line not in wrong:
                seats = "unlimited slots" if slots is None else f"{slots} {plural(slots, 'slot')}"
                until = "for a lifetime" if lifetime else expires_on and f"until {expires_on}"
                words = (slugs[product_id], seats, until, revoked_at and "revoked")
                key = "a new key" if generated else masked
                yield PlannedLine(line, Action.CREATE, key, ", ".join(filter(None, words)))

    def _add_problem(self, problem: Problem, key: str | None = None) -> None:
        self.wrong += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
            if key:
                self._masked[problem.line] = mask_key(key)

    def _stage(self, line: int, row: LicenseRow) -> None:
        key = row.license_key or generate_license_key()
        product, ipv6_prefix = self._product(row.product), self._context.settings.ipv6_prefix
        _check_key(key, product)
        _check_row(row)
        terms = license_terms.validate_terms(row, ipv6_prefix)
        known = self._plans.setdefault(product.slug, set())
        if terms.plan is not None and terms.plan not in known:
            check_plans(self._context, product.id, product.slug, {terms.plan})
            known.add(terms.plan)
        if terms.note is not None:
            terms = replace(terms, note=mask(terms.note, key))
        kept = {name: value for name in _KEPT if (value := getattr(row, name)) is not None}
        license_ = replace(self._licenses.prepare(product, terms, key), **kept)
        activations = _read_activations(row, key, license_.issued_at, self._now, ipv6_prefix)
        words = extract_words(license_.customer_email, license_.revoked_reason, license_.note)
        self._staged.add(line, license_, activations, words, generated=row.license_key is None)

    def _product(self, slug: str) -> Product:
        if slug not in self._products:
            try:
                self._products[slug] = find_product(self._context, slug)
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
            for slug, names in sorted(self._plans.items()):  # again: one may have been removed meanwhile
                check_plans(tx, self._product(slug).id, slug, names)
            in_order = sorted(self.changes.values(), key=itemgetter(0))  # the order of all locks
            for reference, different in in_order:
                _change(LicenseService(tx), reference, different)
            tx.write_audit("license.import", ("license", "-"), count=self.count)
        return self.count

    def generated_keys(self) -> Iterator[tuple[int, str]]:
        """Return line and key of the licenses whose keys were drawn; they are stored after `commit`."""
        for line, license_id, encrypted in self._staged.generated():
            yield line, self._context.vault.decrypt_key(encrypted, license_id)


def make_conversion(
    now: datetime,
    preset: str | None,
    columns: Iterable[str],
    products: Iterable[str],
    slots: str | None,
) -> Conversion:
    """Return what a file's lines are in our fields.

    Args:
        preset: A name of `PRESETS`.
        columns: ``COLUMN=FIELD`` each; without a field the column is ignored.
        products: ``NAME=SLUG`` each, or a slug for all other names.
        slots: Of lines that name none.
    """
    chosen = {}
    for text in columns:
        column, equals, name = text.rpartition("=")
        if not equals or name not in ("", *FIELDS):
            raise InvalidInputError(
                f"--map {text!r}: write COLUMN=FIELD with one of these fields: {', '.join(FIELDS)}"
            )
        chosen[column] = name
    return Conversion(
        now=now,
        preset=None if preset is None else PRESETS[preset],
        columns=chosen,
        products={name: slug for name, _, slug in (one.rpartition("=") for one in products)},
        slots=slots,
    )


def choose_format(file_name: str, form: str | None, conversion: Conversion | None = None) -> str:
    """Return the format of a file: that of its preset, the one that is named, or that of its ending."""
    if conversion is not None and (preset := conversion.preset) is not None:
        if not preset.has_slots and conversion.slots is None:
            raise InvalidInputError(
                f"an export of {preset.title} has no activation limits; add --slots N, or --slots unlimited"
            )
        return preset.form
    chosen = form or PurePath(file_name).suffix.removeprefix(".").lower()
    if chosen not in FORMATS:
        raise InvalidInputError("the format of the file is not known; add --format csv or --format jsonl")
    return chosen


class TransferService(Service):
    """Imports and exports licenses."""

    @contextmanager
    def start_import(self) -> Iterator[LicenseImport]:
        """Begin an import; what is not committed at the end of the block leaves no trace."""
        with staging(self._context.database) as staged:
            yield LicenseImport(self._context, staged)

    def export(self, slug: str | None = None) -> Iterator[LicenseRow]:
        """Return all licenses with their keys, or those of one product, as of one moment; it is audited."""
        product = None if slug is None else find_product(self._context, slug)
        with self._context.transaction() as tx:
            object_ = ("license", "-") if product is None else ("product", product.slug)
            tx.write_audit("license.export", object_)
        return self._export(None if product is None else product.id)

    def _export(self, product_id: int | None) -> Iterator[LicenseRow]:
        licenses = self._context.for_lists().repositories.licenses
        for license_, activations in licenses.list_with_activations(product_id):
            yield LicenseRow(
                license_key=self._context.vault.decrypt_key(license_.encrypted_key, license_.id),
                product=license_.product_slug,
                activations=tuple(
                    ActivationRow(*where, first, last, label, version, offline_until)
                    for where, first, last, label, version, offline_until in activations
                ),
                **{name: getattr(license_, name) for name in (*TERMS, *_KEPT)},
            )


def _change(licenses: LicenseService, reference: str, different: Mapping[str, Any]) -> None:
    terms = {name: value for name, value in different.items() if name != "revoked_at"}
    if "revoked_at" in different and different["revoked_at"] is None:
        licenses.reinstate(reference)
    elif "revoked_at" in different:
        licenses.revoke(reference, "in the imported file")
    terms |= {name: tuple(terms[name].splitlines()) for name in LISTS if name in terms}
    if "overrides" in terms:
        terms["overrides"] = load(terms["overrides"])
    if terms:
        licenses.change(reference, **terms)


# --- what is validated of a line, besides its license's terms ---------------------------------


def _check_key(key: str, product: Product) -> None:
    """Validate a license key that was sold for a product, here or elsewhere."""
    if is_license_key(key) or (is_imported_key(key) and product.accepts_imported_keys):
        return
    if is_imported_key(key):
        raise InvalidInputError(
            "license_key: is not a CP- key; to accept such keys: "
            f"licserver product change {product.slug} --accept-imported-keys"
        )
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
    if row.subscription_ended_at is not None and row.subscription_id is None:  # could never be undone
        raise InvalidInputError("subscription_ended_at: needs subscription beside it")
    if row.revoked_reason is not None and row.revoked_at is None:
        raise InvalidInputError("revoked_reason: needs revoked_at beside it")
    for name in ("product_name", "revoked_reason"):
        text = getattr(row, name)
        if text is not None and not is_printable(text):
            raise InvalidInputError(f"{name}: must be one line of text")
    if len(row.revoked_reason or "") > MAX_REASON:
        raise InvalidInputError(f"revoked_reason: must be of at most {MAX_REASON} characters")


def _read_activations(
    license_row: LicenseRow, key: str, issued_at: datetime, now: datetime, ipv6_prefix: int
) -> list[tuple[Any, ...]]:
    """Return the slots that a line takes, as rows of the database; each environment once."""
    taken = {}
    for row in license_row.activations:
        domain = license_terms.read_domain(row.domain, "activations: a domain")
        ip = license_terms.find_ip(row.ip.strip(), ipv6_prefix)
        if ip is None:
            raise InvalidInputError("activations: an ip must be an address")
        # Never without an instant: a sweep would free the slot, and no search by domain would find it.
        dates = row.activated_at or issued_at, row.last_seen_at or now
        machine = mask_machine(read_machine(row.label, row.app_version) or Machine(), key)
        taken[domain, ip] = (domain, ip, *dates, *machine, row.offline_until)
    return list(taken.values())
