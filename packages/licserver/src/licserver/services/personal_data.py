"""Export and erasure of a customer's personal data (GDPR, articles 15, 17 and 20)."""

import json
import logging
from base64 import b64decode
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from licserver.database.engine import connect
from licserver.database.repositories import Repositories
from licserver.database.repositories.base import in_batches
from licserver.database.repositories.erasure import BATCH, PersonEraser, list_batches
from licserver.database.repositories.personal_columns import Row
from licserver.database.repositories.personal_data import (
    PersonalData,
    PersonIdentifiers,
    holds_address,
    to_plain,
)
from licserver.database.schema import read_version
from licserver.database.timelines import Timelines
from licserver.domain.personal_data import ERASED, AddressPattern, find_addresses, fold_address, is_address
from licserver.errors import InvalidInputError, LicserverError, NotFoundError, SecretsError
from licserver.security.private_files import new_file
from licserver.services.context import Context, Service
from licserver.services.license_lookups import fold_email
from licserver.services.licenses import revoke_licenses
from licserver.services.mail import open_private
from licserver.services.tokens import open_response
from licserver.settings import Settings
from licserver.shops.facts import Fact, dump_fact, load_fact

_log = logging.getLogger("licserver.personal_data")

FORMAT: Final = 1
FILE: Final = "erased-addresses.json"
"""In the data folder, from which a restore, which replaces the database, repeats the erasures."""

_JSON: Final = {"details", "payload", "body", "content"}  # columns whose text is JSON
_HASH: Final = "erased address"
_SPELLING: Final = "erased spelling"
_NAME_DIGITS: Final = 12

_LICENSES: Final = 100
"""Licenses that are erased in a transaction."""

_VACUUMED: Final = 64 << 20  # bytes of a SQLite file, which are written anew in half a second

_ROUNDS: Final = 3  # what is stored while an erasure goes on is erased as well


class ErasureRecord(NamedTuple):
    """The erasure of an address: its instant, and whether its licenses were kept."""

    at: datetime
    keep_licenses: bool

    def dump(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {"at": self.at.isoformat(), "keep_licenses": self.keep_licenses}


class PersonalDataService(Service):
    """Exports and erases the data of the customer with a mail address."""

    def export(self, email: str) -> dict[str, Any]:
        """Return all data of an address for JSON, with the license keys, and audit the export.

        Of a license of another customer, whose note may name the address, only the text with it is returned.

        Raises:
            NotFoundError: The address has no data.
        """
        address = _read(email)
        pattern, held = self._find(address)
        if not held.rows:
            raise _nothing(address)
        with self._context.transaction() as tx:
            tx.write_audit("customer.export", self._object(address), rows=_count(held))
        own = frozenset(held.license_ids)
        records = {
            name: [_describe(name, row, own, pattern) for row in rows]
            for name, rows in sorted(held.rows.items())
        }
        for record, row in zip(records.get("licenses", ()), held.rows.get("licenses", ()), strict=True):
            if row["id"] in own:
                with suppress(SecretsError):  # an altered row
                    record["license_key"] = self._context.vault.decrypt_key(row["encrypted_key"], row["id"])
        return {
            "format": FORMAT,
            "email": address,
            "exported_at": self._context.now().isoformat(),
            "records": records,
        }

    def count(self, email: str) -> dict[str, int]:
        """Return the number of rows of an address, by table."""
        _, held = self._find(_read(email))
        return {name: len(rows) for name, rows in sorted(held.rows.items())}

    def erase(self, email: str, *, keep_licenses: bool = False) -> dict[str, int]:
        """Erase all data of an address; return the number of changed and deleted rows, by table.

        Its licenses are deleted; licenses that a shop has sold are revoked, and kept without personal data.
        With `keep_licenses` all licenses stay valid. It is done in short transactions: after a kill at any
        point, the same call erases the rest.

        Raises:
            NotFoundError: The address has no data.
        """
        address = _read(email)
        erasure = ErasureRecord(self._context.now(), keep_licenses)
        pattern, held = self._find(address)
        if not held.rows:
            self._clean_files([pattern])  # after an erasure that was killed before its last step
            raise _nothing(address)
        self._remember(address, erasure)
        counts, first = Counter[str](), pattern  # of which all spellings are known
        for _ in range(_ROUNDS):
            counts += self._erase(address, erasure, pattern, held)
            pattern, held = self._find(address)
            if not held.rows:
                break
        self._clean_files([first])
        return dict(counts)

    def erase_again(self, further: Mapping[str, ErasureRecord] | None = None) -> int:
        """Repeat all erasures, as after a restore; return the number of addresses that had data.

        Data from after an erasure stays: the customer has bought again.
        """
        erasures = {**self._list_erasures(), **_load_file(self._context.settings), **(further or {})}
        erased = dict[str, AddressPattern]()
        for address in self._list_addresses() if erasures else ():
            if erasure := erasures.get(self._hash(address)):
                pattern, held = self._find(address, None if erasure.at >= self._context.now() else erasure.at)
                if held.rows:
                    self._erase(address, erasure, pattern, held)
                    erased.setdefault(fold_address(address), pattern)
        with self._context.transaction() as tx:
            for name, erasure in erasures.items():
                tx.repositories.personal_data.add_erasure(name, json.dumps(erasure.dump()).encode())
        if erased:
            self._clean_files(erased.values())
        return len(erased)

    def rename(self, facts: Sequence[Fact]) -> list[Fact]:
        """Return facts of a shop with the names that orders got whose ids have an erased address.

        Such an order would issue its licenses again. A customer's own address stays: that is a new purchase.
        """
        return [self._rename(fact) for fact in facts]

    def _rename(self, fact: Fact) -> Fact:
        text = dumped = dump_fact(fact)
        for address in sorted({*find_addresses(text)}) if "@" in text or "%40" in text else ():
            if self.is_erased(address):
                text = AddressPattern(address).erase(text, self._name)
        return fact if text == dumped else load_fact(text, getattr(fact, "email", None))

    def is_erased(self, address: str) -> bool:
        """Return whether the data of an address was erased."""
        return self._context.repositories.personal_data.is_erased(self._hash(address))

    # --- finding

    def _find(self, address: str, before: datetime | None = None) -> tuple[AddressPattern, PersonalData]:
        repository, name = self._context.repositories.personal_data, self._context.vault.pseudonym
        spellings = {address, *repository.find_spellings(AddressPattern(address))}
        pattern = AddressPattern(address, spellings)
        identifiers = PersonIdentifiers(
            {name("mail", spelling.casefold()).hex() for spelling in spellings},
            {name("account", fold_email(spelling)) for spelling in spellings},
            *self._find_encrypted(pattern),
        )
        return pattern, repository.find(pattern, identifiers, before)

    def _find_encrypted(self, pattern: AddressPattern) -> tuple[list[int], list[int]]:
        """Return the ids of jobs and of recorded responses that hold an address, encrypted."""
        ids: dict[str, list[int]] = {"jobs": [], "receipts": []}
        for table, row, text in self._decrypt_all():
            if pattern.is_in(text):
                ids[table].append(row["id"])
        return ids["jobs"], ids["receipts"]

    def _decrypt_all(self) -> Iterator[tuple[str, Row, str]]:
        vault = self._context.vault
        for table, row in self._context.repositories.personal_data.list_encrypted():
            with suppress(SecretsError):  # encrypted with other secrets
                if table == "jobs":
                    yield table, row, open_private(vault, b64decode(json.loads(row["payload"])["encrypted"]))
                else:
                    yield table, row, open_response(vault, row)

    def _list_addresses(self) -> list[str]:
        """Return every text in the database that may be a mail address, each once."""
        addresses = {*self._context.repositories.personal_data.list_addresses()}
        for _, _, text in self._decrypt_all():
            addresses.update(find_addresses(text))
        return sorted(addresses)

    # --- erasing

    def _erase(
        self, address: str, record: ErasureRecord, pattern: AddressPattern, held: PersonalData
    ) -> Counter[str]:
        """Erase what was found, a batch in each transaction; return the numbers of rows, by table.

        Licenses come last: by their address everything else is found again if this ends before.
        """
        now, ids = self._context.now(), held.license_ids
        kept_ids = {*ids} if record.keep_licenses else self._context.repositories.personal_data.find_sold(ids)
        erasure = PersonEraser(pattern, self._name, now, frozenset(ids), frozenset(kept_ids))
        details = {"rows": _count(held), "keep_licenses": record.keep_licenses}
        with self._context.transaction() as tx:  # first: it is known even if this ends before it is done
            tx.write_audit("customer.erase", self._object(address), **details)
        counts = Counter[str]()
        for table, keys in list_batches(held.rows, erasure.ids):
            counts[table] += self._context.repositories.personal_data.erase(table, keys, erasure)
        for batch in in_batches(sorted(ids), _LICENSES):
            with self._context.transaction() as tx:
                if not record.keep_licenses:
                    _revoke(tx, [id_ for id_ in batch if id_ in kept_ids])
                counts.update(tx.repositories.personal_data.erase_licenses(batch, erasure))
        later = self._context.repositories.personal_data.list_mentions(erasure.ids, now)
        for table, mentions in groupby(later, itemgetter(0)):
            for keys in in_batches([key for _, key in mentions], BATCH):
                counts[table] += self._context.repositories.personal_data.erase(table, keys, erasure)
        return +counts

    def _clean_files(self, patterns: Iterable[AddressPattern]) -> None:
        """Remove what was erased from where SQLite no longer reads it."""
        database = self._context.database
        file, is_empty = database.file, database.empty_log()
        forms = {form.encode().lower() for pattern in patterns for form in pattern.forms}  # as in the file
        if file is not None and database.holds(forms):
            if file.stat().st_size > _VACUUMED:
                _log.warning(
                    "free space of %s still has what was erased: run `sqlite3 %s VACUUM` in a quiet minute, "
                    "as no app can be activated while it runs",
                    file.name,
                    file.name,
                )
            else:
                database.vacuum()
                is_empty = database.empty_log()
        if not is_empty:
            _log.warning(
                "SQLite's write-ahead log still has what was erased, because a program reads the database: "
                "end it, and run `licserver customer erase` again"
            )

    def _name(self, spelling: str) -> str:
        """Return what takes the place of an address: a keyed hash, as for its next delivery of a shop."""
        return f"{ERASED} {self._context.vault.pseudonym(_SPELLING, spelling).hex()[:_NAME_DIGITS]}"

    def _remember(self, address: str, erasure: ErasureRecord) -> None:
        name, settings = self._hash(address), self._context.settings
        with self._context.transaction() as tx:
            tx.repositories.personal_data.add_erasure(name, json.dumps(erasure.dump()).encode())
        erasures = {**self._list_erasures(), **_load_file(settings), name: erasure}
        content = json.dumps({hash_: erasures[hash_].dump() for hash_ in sorted(erasures)}, indent=1)
        with new_file(settings.data_dir / FILE, replace=True) as file:
            file.write(content.encode() + b"\n")

    def _list_erasures(self) -> dict[str, ErasureRecord]:
        stored = self._context.repositories.personal_data.list_erasures()
        return {name: _load(json.loads(note)) for name, note in stored.items()}

    def _hash(self, address: str) -> str:
        """Return a keyed hash, which cannot be computed without the installation's secrets."""
        return self._context.vault.pseudonym(_HASH, fold_address(address)).hex()

    def _object(self, address: str) -> tuple[str, str]:
        return "customer", self._hash(address)


def _revoke(tx: Context, ids: Sequence[bytes]) -> None:
    licenses = tx.repositories.licenses.find_all(ids, locked=True) if ids else []
    if valid := [license_ for license_ in licenses if license_.revoked_at is None]:
        revoke_licenses(tx, valid, None)


def load_erasures(settings: Settings) -> dict[str, ErasureRecord]:
    """Return the erasures in the data folder and in the database that a restore is about to replace.

    An unreadable database is ignored: the file has the same erasures, except those of other machines.
    """
    erasures = _load_file(settings)
    with (
        suppress(LicserverError),
        closing(connect(settings.database, Timelines(settings.data_dir, keep=False))) as old,
    ):
        if (old.file is None or old.file.exists()) and read_version(old) is not None:
            stored = Repositories(old).personal_data.list_erasures()
            erasures = {name: _load(json.loads(note)) for name, note in stored.items()} | erasures
    return erasures


def _load_file(settings: Settings) -> dict[str, ErasureRecord]:
    path: Path = settings.data_dir / FILE
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    try:
        return {name: _load(note) for name, note in json.loads(text).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInputError(
            f"{path} cannot be read. A restore erases again by the hashes in it; put back a copy of it"
        ) from None


def _load(note: Mapping[str, Any]) -> ErasureRecord:
    return ErasureRecord(datetime.fromisoformat(note["at"]), note["keep_licenses"] is True)


def _read(email: str) -> str:
    if not is_address(address := email.strip()):
        raise InvalidInputError("this is not a valid email address; write it like ann@example.com")
    return address


def _nothing(address: str) -> NotFoundError:
    return NotFoundError(f"no data is stored about {address}")


def _count(held: PersonalData) -> int:
    return sum(map(len, held.rows.values()))


def _describe(table: str, row: Row, own: Collection[bytes], pattern: AddressPattern) -> dict[str, Any]:
    """Return a row for JSON; of a license that is not one of `own`, its id and each text with the address."""
    record = to_plain(table, row)
    license_id = row["id"] if table == "licenses" else row.get("license_id")
    if license_id is not None and license_id not in own:
        with_address = {name for name, value in record.items() if holds_address(pattern, name, value)}
        record = {
            name: value for name, value in record.items() if name in {"id", "license_id", *with_address}
        }
    for name in _JSON & record.keys():
        with suppress(ValueError, TypeError):
            record[name] = json.loads(record[name])
    return record
