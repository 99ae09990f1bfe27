"""Setting a database up, and refusing one that was written with other secrets."""

from sqlalchemy import select

from licserver.errors import StoreError
from licserver.store.engine import Database, connect
from licserver.store.tables import facts, metadata

_FINGERPRINT = "vault_fingerprint"


def open_database(url: str, fingerprint: bytes) -> Database:
    """Open the vendor's database; an empty one is set up first.

    Args:
        url: SQLAlchemy URL.
        fingerprint: `Vault.fingerprint` of the secrets at hand.

    Raises:
        StoreError: when the database belongs to other secrets: no key could be found in it.
        StoreUnavailable: when it cannot be opened.
    """
    database = connect(url)
    with database.writing() as connection:
        metadata.create_all(connection)
        known = connection.scalar(select(facts.c.value).where(facts.c.name == _FINGERPRINT))
        if known is None:
            connection.execute(facts.insert().values(name=_FINGERPRINT, value=fingerprint))
    if known not in {None, fingerprint}:
        database.close()
        raise StoreError(
            "this database was written with other secrets; put the secrets file that belongs to it "
            "beside it, or its content into LICSERVER_SECRETS"
        )
    return database
