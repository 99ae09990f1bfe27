"""What a vendor can do, once, for the command line, the admin API, the console and whatever else offers it.

Each operation checks everything first, and then changes the books and the audit log in one transaction.
"""

from licserver.domain.records import LicenseTerms
from licserver.services.audit import AuditFilter
from licserver.services.audit import History as _History
from licserver.services.idempotency import IdempotencyConflictError, ReplayedError
from licserver.services.idempotency import Receipts as _Receipts
from licserver.services.issuing import ISSUE_BATCH
from licserver.services.license_lists import LicenseFilter
from licserver.services.license_lists import Lists as _Lists
from licserver.services.license_terms import MAX_INDEXED
from licserver.services.pagination import MAX_PAGE, Page, page_of
from licserver.services.releases import MAX_CHANGELOG
from licserver.services.retention import Keeping as _Keeping
from licserver.services.second_factors import SecondFactors as _SecondFactors
from licserver.services.statistics import Figures as _Figures
from licserver.services.subscriptions import Subscriptions as _Subscriptions
from licserver.services.tokens import Tokens as _Tokens
from licserver.services.transfer import Moving as _Moving


class Vendor(
    _Lists, _Moving, _Keeping, _Subscriptions, _History, _Tokens, _SecondFactors, _Figures, _Receipts
):
    """The vendor's operations on one data folder; each kind has a room of its own.

    Args:
        settings: Which folder and which database.
        clock: For the instants that are noted.
        actor: Who acts, for the audit log; `acting_as` names somebody else.
        new_database: Whether an empty database may be set up for secrets that belong to one (D-158).

    Raises:
        VaultError: when the secrets cannot be read, or are lost.
        StoreError: when the database cannot be used.
        SettingsError: when the bucket cannot be used as it is named.
    """


__all__ = [
    "ISSUE_BATCH",
    "MAX_CHANGELOG",
    "MAX_INDEXED",
    "MAX_PAGE",
    "AuditFilter",
    "IdempotencyConflictError",
    "LicenseFilter",
    "LicenseTerms",
    "Page",
    "ReplayedError",
    "Vendor",
    "page_of",
]
