"""Reads and writes of everything that a vendor manages: plain SQLAlchemy, one repository a subject."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from licserver.database.engine import Database
from licserver.database.repositories import (
    audit,
    clock,
    customer_sign_in,
    license_search,
    licenses,
    moves,
    personal_data,
    products,
    queue,
    sales,
    seats,
    statistics,
    tokens,
    trials,
    users,
    uses,
    webhooks,
)

__all__ = ["Repositories"]


class Repositories:
    """All repositories, on one database or, from `transaction`, within one transaction."""

    def __init__(self, database: Database, connection: Connection | None = None) -> None:
        self._database, self._connection = database, connection
        self.products = products.ProductRepository(database, connection)
        self.releases = products.ReleaseRepository(database, connection)
        self.plans = products.PlanRepository(database, connection)
        self.licenses = licenses.LicenseRepository(database, connection)
        self.license_search = license_search.LicenseSearchRepository(database, connection)
        self.subscriptions = licenses.SubscriptionRepository(database, connection)
        self.personal_data = personal_data.PersonalDataRepository(database, connection)
        self.moves = moves.MoveRepository(database, connection)
        self.trials = trials.TrialRepository(database, connection)
        self.seats = seats.SeatRepository(database, connection)
        self.uses = uses.UseRepository(database, connection)
        self.audit = audit.AuditRepository(database, connection)
        self.tokens = tokens.TokenRepository(database, connection)
        self.users = users.UserRepository(database, connection)
        self.sessions = users.SessionRepository(database, connection)
        self.account_codes = customer_sign_in.AccountCodeRepository(database, connection)
        self.account_sessions = customer_sign_in.AccountSessionRepository(database, connection)
        self.second_factors = users.SecondFactorRepository(database, connection)
        self.logins = users.LoginRepository(database, connection)
        self.daily_counts = users.DailyCountRepository(database, connection)
        self.statistics = statistics.StatisticsRepository(database, connection)
        self.refusals = statistics.RefusalRepository(database, connection)
        self.queue = queue.QueueRepository(database, connection)
        self.sales = sales.SaleRepository(database, connection)
        self.webhooks = webhooks.WebhookRepository(database, connection)
        self.clock = clock.ClockRepository(database, connection)
        self.idempotency = tokens.IdempotencyRepository(database, connection)

    @contextmanager
    def transaction(self) -> Iterator["Repositories"]:
        """Open a transaction; within one, go on with it. Other writers wait until the block ends."""
        if self._connection is not None:
            yield self
            return
        with self._database.writing() as connection:
            yield Repositories(self._database, connection)
