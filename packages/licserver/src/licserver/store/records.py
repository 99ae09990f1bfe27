"""The vendor's books as a whole."""

from licserver.store.audit import AuditBooks
from licserver.store.licenses import LicenseBooks
from licserver.store.logins import LoginRepository
from licserver.store.products import ProductBooks
from licserver.store.receipts import ReceiptBooks
from licserver.store.search import SearchBooks
from licserver.store.second_factors import SecondFactorRepository
from licserver.store.sessions import SessionRepository
from licserver.store.tokens import TokenBooks
from licserver.store.tries import TryBooks
from licserver.store.users import UserBooks


class Records(
    ProductBooks,
    LicenseBooks,
    SearchBooks,
    AuditBooks,
    TokenBooks,
    UserBooks,
    SessionRepository,
    SecondFactorRepository,
    LoginRepository,
    ReceiptBooks,
    TryBooks,
):
    """All of the vendor's books; each kind has a room of its own."""
