"""The database: the only room that knows SQLAlchemy.

Synchronous, and one code path for every engine. `BatchStore` answers the public endpoints, many
requests at a time; `Records` keeps the vendor's books; both stand on one `Database`. `migrate`, which
brings a database to the schema of this program, is imported by who needs it.
"""

from licserver.store.audit import Entry
from licserver.store.batch import Admission, BatchStore, Claim, Sighting, UpdateAsk
from licserver.store.engine import Database
from licserver.store.licenses import Activation, IssuedLicense, NewLicense, Subscription
from licserver.store.receipts import Receipt
from licserver.store.records import Records
from licserver.store.schema import is_in_use, open_database
from licserver.store.seen import Seen, note_seen
from licserver.store.tokens import Token
from licserver.store.users import UserRow

__all__ = [
    "Activation",
    "Admission",
    "BatchStore",
    "Claim",
    "Database",
    "Entry",
    "IssuedLicense",
    "NewLicense",
    "Receipt",
    "Records",
    "Seen",
    "Sighting",
    "Subscription",
    "Token",
    "UpdateAsk",
    "UserRow",
    "is_in_use",
    "note_seen",
    "open_database",
]
