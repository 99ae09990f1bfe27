"""The vendor's books as a whole."""

from licserver.database.repositories.audit import AuditRepository
from licserver.database.repositories.idempotency import IdempotencyRepository
from licserver.database.repositories.license_search import LicenseSearchRepository
from licserver.database.repositories.licenses import LicenseRepository
from licserver.database.repositories.login_attempts import FailedLoginRepository
from licserver.database.repositories.logins import LoginRepository
from licserver.database.repositories.products import ProductRepository
from licserver.database.repositories.second_factors import SecondFactorRepository
from licserver.database.repositories.sessions import SessionRepository
from licserver.database.repositories.tokens import TokenRepository
from licserver.database.repositories.users import UserRepository


class Repositories(
    ProductRepository,
    LicenseRepository,
    LicenseSearchRepository,
    AuditRepository,
    TokenRepository,
    UserRepository,
    SessionRepository,
    SecondFactorRepository,
    LoginRepository,
    IdempotencyRepository,
    FailedLoginRepository,
):
    """All of the vendor's books; each kind has a room of its own."""
