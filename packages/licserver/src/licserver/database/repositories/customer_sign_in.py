"""Sessions of the customer's page, and the codes that begin them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import bindparam, case, delete, func, insert, literal, select, update

from licserver.database.repositories.base import Repository
from licserver.database.repositories.instants import settle
from licserver.database.tables.access import account_codes, account_sessions
from licserver.domain.customer_sign_in import CodeCounts
from licserver.security.key_vault import ID_BYTES

_PER_LICENSE: Final = 20
"""Sessions of a license at a time: the owner of a key must not fill the table."""

_codes: Final = account_codes.c
_is_client: Final = _codes.client == bindparam("client")
_is_address: Final = _codes.address == bindparam("address")
_is_network: Final = _codes.network == bindparam("network")
_COUNTS: Final = select(
    *(
        func.count(case((condition, literal(1))))
        for condition in (_is_client & _is_address, _is_client, _is_address, _is_network)
    )
).where(_is_network, _codes.expires_at > bindparam("now"))


class AccountSessionRepository(Repository):
    """Sessions of the customer's page, with a row for each license that they may see."""

    def add(
        self, token_hash: bytes, license_ids: Sequence[bytes], expires_at: datetime, now: datetime
    ) -> None:
        """Begin a session; delete all that have ended, and the oldest ones beyond a license's number."""
        columns = account_sessions.c
        row = {"token_hash": token_hash, "expires_at": expires_at}
        with self._writing() as connection:
            connection.execute(delete(account_sessions).where(columns.expires_at <= settle(connection, now)))
            connection.execute(
                insert(account_sessions), [{**row, "license_id": license_id} for license_id in license_ids]
            )
            for license_id in license_ids:
                of_it = columns.license_id == license_id
                by_end = select(columns.token_hash).where(of_it).order_by(columns.expires_at.desc())
                if surplus := connection.scalars(by_end.offset(_PER_LICENSE)).all():
                    is_surplus = columns.token_hash.in_(surplus)
                    connection.execute(delete(account_sessions).where(of_it, is_surplus))

    def find(self, token_hash: bytes, now: datetime) -> list[bytes]:
        """Load the ids of the licenses that a session may see; none if it has ended."""
        rows = account_sessions.c
        statement = select(rows.license_id).where(rows.token_hash == token_hash, rows.expires_at > now)
        return [row.license_id for row in self._all(statement)]

    def remove(self, token_hash: bytes) -> None:
        """End a session."""
        self._execute(delete(account_sessions).where(account_sessions.c.token_hash == token_hash))


class CodeRequest(NamedTuple):
    """The client and the e-mail address of a request for a code; keyed digests of 16 bytes each."""

    address: bytes
    client: bytes
    network: bytes


class SentCode(NamedTuple):
    """A code: its hash, the keyed digest of the address it was sent to, and the licenses of that address."""

    code_hash: bytes
    address: bytes
    license_ids: list[bytes]


class AccountCodeRepository(Repository):
    """Codes that were sent by mail, for sessions of the customer's page."""

    def add(
        self,
        token_hash: bytes,
        code_hash: bytes,
        request: CodeRequest,
        license_ids: Sequence[bytes],
        expires_at: datetime,
    ) -> None:
        """Store a code."""
        row = {"token_hash": token_hash, "code_hash": code_hash, "attempts": 0, "expires_at": expires_at}
        row |= {"license_ids": b"".join(license_ids), **request._asdict()}
        self._execute(insert(account_codes).values(row))

    def lock(self, network: bytes, now: datetime) -> None:
        """Let other codes of a network wait until the transaction ends; delete all that have expired."""
        if self._database.is_remote:  # else the whole file is locked
            key = func.hashtextextended(network.hex(), 0)
            self._scalar(select(func.pg_advisory_xact_lock(key)))
        with self._writing() as connection:
            before = settle(connection, now)
            connection.execute(delete(account_codes).where(account_codes.c.expires_at <= before))

    def count(self, request: CodeRequest, now: datetime) -> CodeCounts:
        """Count the valid codes that a client and its network have requested."""
        return CodeCounts(*self._first(_COUNTS, **request._asdict(), now=now))

    def exists(self, token_hash: bytes, now: datetime) -> bool:
        """Return whether a browser was sent a code that is valid."""
        codes = account_codes.c
        valid = select(codes.token_hash).where(codes.token_hash == token_hash, codes.expires_at > now)
        return self._first(valid) is not None

    def count_attempt(self, token_hash: bytes, limit: int, now: datetime) -> SentCode | None:
        """Count an attempt; return the code, or None after too many attempts."""
        codes = account_codes.c
        is_valid = (codes.token_hash == token_hash) & (codes.attempts < limit) & (codes.expires_at > now)
        counted = update(account_codes).where(is_valid).values(attempts=codes.attempts + 1)
        with self._writing() as connection:
            row = connection.execute(
                counted.returning(codes.code_hash, codes.address, codes.license_ids)
            ).first()
        if row is None:
            return None
        ids = row.license_ids
        license_ids = [ids[start : start + ID_BYTES] for start in range(0, len(ids), ID_BYTES)]
        return SentCode(row.code_hash, row.address, license_ids)

    def remove(self, token_hash: bytes) -> None:
        """Delete a code."""
        self._execute(delete(account_codes).where(account_codes.c.token_hash == token_hash))
