"""Imports of licenses: rows of a file, compared with the database, then written in a single transaction."""

import enum
import heapq
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

from licserver.database.repositories import Repositories
from licserver.database.staging import COMPARED, Staging
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
from licserver.domain.records import LISTS, TERMS, IssuedLicense, LicenseTerms, Machine, Product
from licserver.domain.text import extract_words, plural, read_machine
from licserver.errors import InvalidInputError, NotFoundError
from licserver.protocol.conversion import join_problems
from licserver.protocol.damaged_keys import (
    DigitKeys,
    describe_damage,
    describe_doubt,
    describe_doubtful_date,
)
from licserver.protocol.license_files import (
    InvalidLine,
    LicenseRow,
    Line,
    SkippedLine,
)
from licserver.security.redaction import mask, mask_machine
from licserver.services import license_terms, validation
from licserver.services.context import Context
from licserver.services.license_lookups import find_license
from licserver.services.licenses import MAX_REASON_CHARS, LicenseService
from licserver.services.products import check_plans, find_product
from licserver.services.subscriptions import SubscriptionService

MAX_CHANGES: Final = 1_000  # of an import: other writers wait for its transaction
MAX_PROBLEMS: Final = 100  # listed problems; a file with more has the same problem in all lines
_CLOCKS: Final = timedelta(days=1)  # by which another system may be ahead without a warning
_FIXED: Final = {"product_id", "subscription_id"}  # columns that cannot be changed
_COLUMNS: Final = {"product_id": "product", "subscription_id": "subscription"}
_FIELDS: Final = {field: column for column, field in _COLUMNS.items()}
KEPT: Final = sorted(
    {column.name for column in fields(LicenseRow)}
    & {column.name for column in fields(IssuedLicense)} - {*TERMS}
)
"""Columns of a license in a file, beside its terms and its key."""


class Existing(enum.StrEnum):
    """The choice for lines whose license is in the database with other terms."""

    REFUSE = "refuse"
    KEEP = "keep"
    CHANGE = "change"


class Action(enum.StrEnum):
    """The action of an import for a line."""

    CREATE = "create"
    CHANGE = "change"
    UNCHANGED = "unchanged"
    SKIP = "skip"
    REFUSE = "refuse"


class PlannedLine(NamedTuple):
    """A line of a file with its action; the key is masked, and empty if it is unknown."""

    line: int
    action: Action
    license_key: str
    detail: str


class LicenseImport:
    """An import of a file's licenses, staged in temporary tables.

    1. `read` validates all rows, and compares them with the database; `problems` has the faults.
    2. `plan` lists the action for each line.
    3. `prepare` does slow work that blocks no other writer.
    4. `commit` writes all licenses in a single transaction.
    5. `generated_keys` returns the new keys of lines without a key.

    Example::

        with services.transfer.start_import() as incoming:
            incoming.read(read_rows("csv", file))
            if not incoming.wrong:
                incoming.prepare()
                incoming.commit()

    `read` raises an `InvalidInputError` for a file that is not UTF-8; faulty rows raise nothing, they are
    counted in `wrong`. `commit` raises a `ConflictError` if a key was added in the meantime.
    """

    def __init__(self, context: Context, staged: Staging) -> None:
        self._context, self._staged, self._now = context, staged, context.now()
        self._licenses = LicenseService(context)
        self._products: dict[str, Product | None] = {}
        self._plans: dict[str, set[str]] = {}  # names of plans in the file, by product
        self.problems: list[InvalidLine] = []
        # Up to a hundred, of `doubtful` lines, which are imported unchanged.
        self.warnings: list[InvalidLine] = []
        self.skipped: list[SkippedLine] = []
        self.unchanged: list[int] = []
        self.changes: dict[int, tuple[str, dict[str, Any]]] = {}
        self._masked: dict[int, str] = {}  # keys of lines without a new license
        self._compared: dict[frozenset[str] | None, int] = {}  # sets of the fields of lines, by number
        self._copies: dict[int, int] = {}  # number of licenses, of lines with several
        self._digit_keys = DigitKeys()
        self.count = 0
        self.wrong = 0
        self.doubtful = 0
        self.keyless = 0  # lines without a key

    def read(self, rows: Iterable[Line], existing: Existing = Existing.REFUSE) -> None:
        """Read all rows; collect up to a hundred problems in `problems`, and count all of them in `wrong`.

        A license that is in the database with the same terms is in `unchanged`; with other terms `existing`
        decides. `count` licenses are new.
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
            self._add_problem(InvalidLine(line, f"license_key: is also in line {first}"))
        self._read_existing(existing)
        existing_lines = [*self.unchanged, *self.changes]
        self._staged.drop(existing_lines)
        self.count -= sum(self._copies.get(line, 1) for line in existing_lines)
        lines, count, doubt = self._digit_keys.find_shorter()
        for line in lines:
            self._add_warning(line, doubt)
        self.doubtful += count - len(lines)
        self.problems.sort(key=lambda problem: problem.line)
        self.warnings.sort(key=lambda problem: problem.line)

    def _read_line(self, line: int, row: LicenseRow | InvalidLine | SkippedLine) -> None:
        if isinstance(row, InvalidLine):
            self._add_problem(row)
        elif isinstance(row, SkippedLine):
            self.skipped.append(row)
        else:
            try:
                self._stage_copies(line, row)
            except InvalidInputError as problem:
                message = self._list_problems(row) or str(problem)
                self._add_problem(InvalidLine(line, message), row.license_key)
            self.count += row.copies

    def _read_existing(self, existing: Existing) -> None:
        for line, license_id, masked, different in self._staged.existing(list(map(_compare, self._compared))):
            self._masked[line] = masked
            if not different or existing is Existing.KEEP:
                self.unchanged.append(line)
                continue
            names = ", ".join(_COLUMNS.get(name, name) for name in different)
            if existing is Existing.REFUSE:
                message = f"license_key: is in the database already, with other terms: {names}"
                self._add_problem(InvalidLine(line, message))
            elif _FIXED & different.keys():
                message = f"license_key: is in the database already; cannot change {names}"
                self._add_problem(InvalidLine(line, message))
            elif len(self.changes) >= MAX_CHANGES:
                message = f"more than {MAX_CHANGES:,} licenses to change; split the file"
                self._add_problem(InvalidLine(line, message))
            else:
                self.changes[line] = (license_id.hex(), different)

    def plan(self) -> Iterator[PlannedLine]:
        """Return the action for each line in order; up to a hundred lines with problems."""
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
        for row in self._staged.rows():
            if row.line not in wrong:
                key = "a new key" if row.generated else row.masked_key
                detail = ", ".join([slugs[row.product_id], *_describe_terms(row)])
                yield PlannedLine(row.line, Action.CREATE, key, detail)

    def describe_keyless(self) -> str | None:
        """Return a warning of lines that would be issued again with the next import; None without any."""
        match self.keyless:
            case 0:
                return None
            case 1:
                return "1 line has no key: each import issues a new license for it"
            case count:
                return f"{count} lines have no key: each import issues new licenses for them"

    def _add_problem(self, problem: InvalidLine, key: str | None = None) -> None:
        self.wrong += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem._replace(message=mask(problem.message)))  # of a file without header
            if key:
                self._masked[problem.line] = mask_key(key)

    def _add_warning(self, line: int, doubt: str, field: str = "license_key") -> None:
        self.doubtful += 1
        if len(self.warnings) < MAX_PROBLEMS:
            self.warnings.append(InvalidLine(line, f"{field}: {doubt}"))

    def _stage_copies(self, line: int, row: LicenseRow) -> None:
        """Stage a line; of several licenses the first has the line's key and activations."""
        self._stage(line, row)
        for field in ("expires_on", "support_until"):
            if doubt := describe_doubtful_date(getattr(row, field)):
                self._add_warning(line, doubt, field)
        for field in ("issued_at", "revoked_at"):
            at: datetime | None = getattr(row, field)
            doubt = describe_doubtful_date(at and at.date())
            if at is not None and at > self._now + _CLOCKS:
                doubt = f"is {at.date()}, which has not come yet"
            if doubt:
                self._add_warning(line, doubt, field)
        if row.license_key is not None:
            self._digit_keys.add(line, row.license_key)
            if doubt := describe_doubt(row.license_key):
                self._add_warning(line, doubt)
        else:
            self.keyless += 1
        if row.copies > 1:
            self._copies[line] = row.copies
            for _ in range(row.copies - 1):
                self._stage(line, replace(row, license_key=None, activations=()))

    def _stage(self, line: int, row: LicenseRow) -> None:
        key = row.license_key or generate_license_key()
        product, ipv6_prefix = self._product(row.product), self._context.settings.ipv6_prefix
        _check_key(key, product)
        _check_row(row)
        terms = license_terms.validate_terms(row, ipv6_prefix)
        plans = self._plans.setdefault(product.slug, set())
        if terms.plan is not None and terms.plan not in plans:
            check_plans(self._context, product.id, product.slug, {terms.plan})
            plans.add(terms.plan)
        if terms.note is not None:
            terms = replace(terms, note=mask(terms.note, key))
        stored_fields = {name: value for name in KEPT if (value := getattr(row, name)) is not None}
        license_ = replace(self._licenses.prepare(product, terms, key), **stored_fields)
        activations = _read_activations(row, key, license_.issued_at, self._now, ipv6_prefix)
        words = extract_words(license_.customer_email, license_.revoked_reason, license_.note)
        field_set = self._compared.setdefault(row.given, len(self._compared))
        self._staged.add(
            line, license_, activations, words, generated=row.license_key is None, given=field_set
        )

    def _list_problems(self, row: LicenseRow) -> str | None:
        """Return all problems of a refused line, where `_stage` stops at the first."""
        ipv6_prefix = self._context.settings.ipv6_prefix
        checks: list[Callable[[], object]] = [lambda: self._product(row.product)]
        if row.license_key is not None and self._products.get(row.product) is not None:
            checks.append(partial(_check_key, row.license_key, self._product(row.product)))
        checks.append(partial(_check_row, row))
        checks.append(
            partial(
                license_terms.check_lifetime, lifetime=row.lifetime, has_expiry=row.expires_on is not None
            )
        )
        checks += [
            partial(license_terms.validate_fields, {name: getattr(row, name)}, ipv6_prefix) for name in TERMS
        ]
        problems = []
        for check in checks:
            try:
                check()
            except InvalidInputError as problem:
                problems.append(str(problem))
        return join_problems(problems)

    def _product(self, slug: str) -> Product:
        if slug not in self._products:
            try:
                self._products[slug] = find_product(self._context, slug)
            except NotFoundError:
                self._products[slug] = None
        product = self._products[slug]
        if product is None:
            raise InvalidInputError(
                f"product: there is no {slug!r}; add it first, or add --product {slug!r}=SLUG"
            )
        return product

    def prepare(self) -> None:
        """Do the slow part of `commit` that blocks no other writer; the licenses are not visible yet."""
        self._staged.prepare()

    def commit(self) -> int:
        """Write all licenses in a single transaction, or none if a key was added in the meantime."""
        with self._staged.committing() as connection:
            tx = replace(self._context, repositories=Repositories(self._context.database, connection))
            for slug, names in sorted(self._plans.items()):  # again: a plan may have been removed since
                check_plans(tx, self._product(slug).id, slug, names)
            _end_subscriptions(tx, self.changes.values())
            in_order = sorted(self.changes.values(), key=itemgetter(0))  # the order of all locks
            for reference, different in in_order:
                _change(LicenseService(tx), reference, different)
            tx.write_audit("license.import", ("license", "-"), count=self.count)
        return self.count

    def generated_keys(self) -> Iterator[tuple[int, str]]:
        """Yield line and key of the licenses with generated keys; they are stored after `commit`."""
        for line, license_id, encrypted in self._staged.generated():
            yield line, self._context.vault.decrypt_key(encrypted, license_id)


_PLAIN: Final = LicenseTerms()
_DESCRIBED: Final = {"slots", "expires_on", "lifetime"}
_LONG: Final = {"customer_email", "note", "overrides"}  # shown by name only


def _describe_terms(license_: Any) -> Iterator[str]:
    """Yield the slots, the end, and all terms of a staged row that differ from the defaults."""
    slots = license_.slots
    yield "unlimited slots" if slots is None else f"{slots} {plural(slots, 'slot')}"
    if license_.lifetime:
        yield "for a lifetime"
    elif license_.expires_on is not None:
        yield f"until {license_.expires_on}"
    elif not license_.subscription_id:
        yield "without an end"
    for name in TERMS:
        value, words = getattr(license_, name), _COLUMNS.get(name, name).replace("_", " ")
        if name not in _DESCRIBED and value not in (getattr(_PLAIN, name), "", None):
            is_short = not isinstance(value, bool) and name not in _LONG
            yield f"{words} {' '.join(str(value).split())}" if is_short else words
    if license_.revoked_at is not None:
        yield "revoked"


def _compare(field_names: frozenset[str] | None) -> Container[str]:
    """Return the columns in which a line with these fields is compared with its license (D-186)."""
    return (
        COMPARED
        if field_names is None
        else {_FIELDS.get(name, name) for name in field_names} | {"product_id"}
    )


def _change(licenses: LicenseService, reference: str, different: Mapping[str, Any]) -> None:
    """Change the terms of a license that differ from its line."""
    if "revoked_at" in different and different["revoked_at"] is None:
        licenses.reinstate(reference)
    elif "revoked_at" in different:
        licenses.revoke(reference, different["revoked_reason"] or "in the imported file")
    terms = {name: value for name, value in different.items() if name in TERMS}
    if terms.get("lifetime"):  # the file may have only either of both columns
        terms["expires_on"] = None
    if terms.get("expires_on") is not None:
        terms["lifetime"] = False
    terms |= {name: tuple(terms[name].splitlines()) for name in LISTS if name in terms}
    if "overrides" in terms:
        terms["overrides"] = load(terms["overrides"])
    if terms:
        licenses.change(reference, **terms)


def _end_subscriptions(tx: Context, changes: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """End the subscriptions of changed lines with an end; sorted, so that transactions do not deadlock."""
    ends = {
        (find_license(tx, reference).subscription_id or "", at)
        for reference, different in changes
        if (at := different.get("subscription_ended_at")) is not None
    }
    for subscription_id, at in sorted(ends):
        SubscriptionService(tx).end(subscription_id, at)


# --- validation of a line, besides its license's terms ----------------------------------------


def _check_key(key: str, product: Product) -> None:
    """Validate a license key that was sold for a product, here or elsewhere."""
    if damage := describe_damage(key):
        raise InvalidInputError(f"license_key: {damage}")
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
    """Validate the fields that only imports set."""
    if row.subscription_ended_at is not None and row.subscription_id is None:  # could never be undone
        raise InvalidInputError("subscription_ended_at: needs subscription beside it")
    if row.revoked_reason is not None and row.revoked_at is None:
        raise InvalidInputError("revoked_reason: needs revoked_at beside it")
    for name in ("product_name", "revoked_reason"):
        text = getattr(row, name)
        if text is not None and not is_printable(text):
            raise InvalidInputError(f"{name}: must be one line of text")
    if len(row.revoked_reason or "") > MAX_REASON_CHARS:
        raise InvalidInputError(f"revoked_reason: must be of at most {MAX_REASON_CHARS} characters")


def _read_activations(
    license_row: LicenseRow, key: str, issued_at: datetime, now: datetime, ipv6_prefix: int
) -> list[tuple[Any, ...]]:
    """Return the activations of a line as rows of the database; each environment once."""
    taken = {}
    for row in license_row.activations:
        domain = validation.read_domain(row.domain, "activations: a domain")
        ip = validation.find_ip(row.ip.strip(), ipv6_prefix)
        if ip is None:
            raise InvalidInputError("activations: an ip must be an address")
        # Never without an instant: a sweep would free the slot, and no search by domain would find it.
        dates = row.activated_at or issued_at, row.last_seen_at or now
        machine = mask_machine(read_machine(row.label, row.app_version) or Machine(), key)
        taken[domain, ip] = (domain, ip, *dates, *machine, row.offline_until)
    return list(taken.values())
