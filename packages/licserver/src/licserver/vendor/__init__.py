"""What a vendor can do, once, for the command line, the admin API, the console and whatever else offers it.

Each operation checks everything first, and then changes the books and the audit log in one transaction.
"""

from licserver.model import LicenseTerms
from licserver.vendor.figures import Figures as _Figures
from licserver.vendor.history import AuditFilter
from licserver.vendor.history import History as _History
from licserver.vendor.issuing import ISSUE_BATCH
from licserver.vendor.keeping import Keeping as _Keeping
from licserver.vendor.lists import LicenseFilter
from licserver.vendor.lists import Lists as _Lists
from licserver.vendor.moving import Moving as _Moving
from licserver.vendor.pages import MAX_PAGE, Page, page_of
from licserver.vendor.receipts import AnsweredAlready, SentOtherwise
from licserver.vendor.receipts import Receipts as _Receipts
from licserver.vendor.releases import MAX_CHANGELOG
from licserver.vendor.second_factors import SecondFactors as _SecondFactors
from licserver.vendor.subscriptions import Subscriptions as _Subscriptions
from licserver.vendor.terms import MAX_INDEXED
from licserver.vendor.tokens import Tokens as _Tokens


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
    "AnsweredAlready",
    "AuditFilter",
    "LicenseFilter",
    "LicenseTerms",
    "Page",
    "SentOtherwise",
    "Vendor",
    "page_of",
]
