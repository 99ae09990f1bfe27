"""The vendor's books as a whole."""

from licserver.store.audit import AuditBooks
from licserver.store.licenses import LicenseBooks
from licserver.store.products import ProductBooks
from licserver.store.search import SearchBooks
from licserver.store.tokens import TokenBooks


class Records(ProductBooks, LicenseBooks, SearchBooks, AuditBooks, TokenBooks):
    """All of the vendor's books; each kind has a room of its own."""
