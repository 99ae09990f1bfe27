"""The vendor's books as a whole."""

from licserver.database.repositories.audit import AuditBooks
from licserver.database.repositories.idempotency import ReceiptBooks
from licserver.database.repositories.license_search import SearchBooks
from licserver.database.repositories.licenses import LicenseBooks
from licserver.database.repositories.login_attempts import TryBooks
from licserver.database.repositories.logins import LoginRepository
from licserver.database.repositories.products import ProductBooks
from licserver.database.repositories.second_factors import SecondFactorRepository
from licserver.database.repositories.sessions import SessionRepository
from licserver.database.repositories.tokens import TokenBooks
from licserver.database.repositories.users import UserBooks


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
