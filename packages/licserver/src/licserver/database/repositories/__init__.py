"""Reads and writes of everything that a vendor manages: plain SQLAlchemy, one repository a subject."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from licserver.database.engine import Database
from licserver.database.repositories.audit import AuditRepository
from licserver.database.repositories.customers import (
    AccountCodeRepository,
    AccountSessionRepository,
    MoveRepository,
    SeatRepository,
    TrialRepository,
    UseRepository,
)
from licserver.database.repositories.license_search import LicenseSearchRepository
from licserver.database.repositories.licenses import LicenseRepository, SubscriptionRepository
from licserver.database.repositories.products import PlanRepository, ProductRepository, ReleaseRepository
from licserver.database.repositories.queue import QueueRepository
from licserver.database.repositories.sales import SaleRepository
from licserver.database.repositories.statistics import RefusalRepository, StatisticsRepository
from licserver.database.repositories.tokens import IdempotencyRepository, TokenRepository
from licserver.database.repositories.users import (
    LoginRepository,
    SecondFactorRepository,
    SessionRepository,
    UserRepository,
)
from licserver.database.repositories.webhooks import WebhookRepository

__all__ = ["Repositories"]


class Repositories:
    """All repositories, on one database or, from `transaction`, within one transaction."""

    def __init__(self, database: Database, connection: Connection | None = None) -> None:
        self._database, self._connection = database, connection
        self.products = ProductRepository(database, connection)
        self.releases = ReleaseRepository(database, connection)
        self.plans = PlanRepository(database, connection)
        self.licenses = LicenseRepository(database, connection)
        self.license_search = LicenseSearchRepository(database, connection)
        self.subscriptions = SubscriptionRepository(database, connection)
        self.moves = MoveRepository(database, connection)
        self.trials = TrialRepository(database, connection)
        self.seats = SeatRepository(database, connection)
        self.uses = UseRepository(database, connection)
        self.audit = AuditRepository(database, connection)
        self.tokens = TokenRepository(database, connection)
        self.users = UserRepository(database, connection)
        self.sessions = SessionRepository(database, connection)
        self.account_codes = AccountCodeRepository(database, connection)
        self.account_sessions = AccountSessionRepository(database, connection)
        self.second_factors = SecondFactorRepository(database, connection)
        self.logins = LoginRepository(database, connection)
        self.statistics = StatisticsRepository(database, connection)
        self.refusals = RefusalRepository(database, connection)
        self.queue = QueueRepository(database, connection)
        self.sales = SaleRepository(database, connection)
        self.webhooks = WebhookRepository(database, connection)
        self.idempotency = IdempotencyRepository(database, connection)

    @contextmanager
    def transaction(self) -> Iterator["Repositories"]:
        """Open a transaction; within one, go on with it. Other writers wait until the block ends."""
        if self._connection is not None:
            yield self
            return
        with self._database.writing() as connection:
            yield Repositories(self._database, connection)
