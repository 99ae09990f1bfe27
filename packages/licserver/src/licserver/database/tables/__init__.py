"""The tables, one definition for SQLite and PostgreSQL.

Every statement of the hot paths names a license: `licenses.id` is the key's index, and the
activations' primary key begins with it, so that both can be spread over machines by license.
"""

from licserver.database.tables import access, events, licenses, sales
from licserver.database.tables.types import metadata

__all__ = [
    "access",
    "events",
    "licenses",
    "metadata",
    "sales",
]  # all modules: then the metadata has all tables
