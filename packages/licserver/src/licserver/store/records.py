"""The vendor's books as a whole."""

from licserver.store.audit import AuditBooks
from licserver.store.licenses import LicenseBooks
from licserver.store.products import ProductBooks
from licserver.store.receipts import ReceiptBooks
from licserver.store.search import SearchBooks
from licserver.store.tokens import TokenBooks
from licserver.store.tries import TryBooks
from licserver.store.users import UserBooks


class Records(
    ProductBooks, LicenseBooks, SearchBooks, AuditBooks, TokenBooks, UserBooks, ReceiptBooks, TryBooks
):
    """All of the vendor's books; each kind has a room of its own."""
