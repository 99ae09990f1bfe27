"""What a vendor can do, once, for the command line, the admin API and the console.

Each operation checks everything first, then changes the data and the audit log in one transaction. What is
invalid raises an `InvalidInputError`, what does not exist a `NotFoundError`, what is taken a `ConflictError`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from licserver.artifacts import open_artifacts
from licserver.clock import Clock, system_clock
from licserver.database.replica import Replica
from licserver.database.repositories import Repositories
from licserver.database.repositories.audit import AuditFilter
from licserver.database.schema import is_in_use, open_database
from licserver.database.timelines import Timelines
from licserver.domain.records import SYSTEM, Actor
from licserver.security.secrets_file import expects_database, note_database, open_vault
from licserver.services.account import AccountService, SelfService, TrialService
from licserver.services.audit import AuditService, RetentionService
from licserver.services.consumption import ConsumptionService, SeatService
from licserver.services.context import Context
from licserver.services.licenses import ISSUE_BATCH, LicenseService, SubscriptionService
from licserver.services.lists import MAX_PAGE, LicenseFilter, Order, Page, page_of
from licserver.services.mail import MailService
from licserver.services.offline_files import OfflineFileService
from licserver.services.patches import PatchService
from licserver.services.products import PlanService, ProductService
from licserver.services.releases import ReleaseService, RolloutService
from licserver.services.sales import SaleService
from licserver.services.second_factors import SecondFactorService
from licserver.services.sources import SourceService
from licserver.services.support import SupportService
from licserver.services.tokens import IdempotencyConflictError, IdempotencyService, TokenService
from licserver.services.transfer import TransferService
from licserver.services.users import LoginService, UserService
from licserver.services.webhooks import WebhookService
from licserver.settings import Settings

__all__ = [
    "ISSUE_BATCH",
    "MAX_PAGE",
    "AuditFilter",
    "IdempotencyConflictError",
    "LicenseFilter",
    "Order",
    "Page",
    "Services",
    "open_services",
    "page_of",
]


class Services:
    """All services of an installation, for one acting user."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.settings = context.settings
        self.vault = context.vault
        self.database = context.database
        self.artifacts = context.artifacts
        self.actor = context.actor
        self.repositories = context.repositories
        self.products = ProductService(context)
        self.releases = ReleaseService(context)
        self.plans = PlanService(context)
        self.patches = PatchService(context)
        self.consumption = ConsumptionService(context)
        self.rollouts = RolloutService(context)
        self.licenses = LicenseService(context)
        self.support = SupportService(context)
        self.self_service = SelfService(context)
        self.trials = TrialService(context)
        self.seats = SeatService(context)
        self.account = AccountService(context)
        self.offline_files = OfflineFileService(context)
        self.subscriptions = SubscriptionService(context)
        self.sources = SourceService(context)
        self.sales = SaleService(context)
        self.users = UserService(context)
        self.logins = LoginService(context)
        self.second_factors = SecondFactorService(context)
        self.tokens = TokenService(context)
        self.audit = AuditService(context)
        self.statistics = context.repositories.statistics
        self.retention = RetentionService(context)
        self.transfer = TransferService(context)
        self.mail = MailService(context)
        self.webhooks = WebhookService(context)
        self.idempotency = IdempotencyService(context)

    def now(self) -> datetime:
        """Return the current instant."""
        return self.context.now()

    def acting_as(self, actor: Actor) -> "Services":
        """Return the same services for another actor; only the original is closed."""
        return Services(self.context.acting_as(actor))

    @contextmanager
    def transaction(self) -> Iterator["Services"]:
        """Run several operations in one transaction: all of them, or none when the block raises.

        Other writers wait until it ends: nothing slow belongs there, such as storing a file.
        """
        with self.context.transaction() as context:
            yield Services(context)

    def end_soon(self) -> None:
        """Wait no longer than a moment for a database on another machine: the process ends."""
        self.database.end_soon()
        if self.context.replica is not None:
            self.context.replica.database.end_soon()

    def close(self) -> None:
        """End what runs in the background, and close the database."""
        self.context.background.close()
        self.database.close()
        if self.context.replica is not None:
            self.context.replica.close()


def open_services(
    settings: Settings,
    clock: Clock = system_clock,
    actor: Actor = SYSTEM,
    *,
    new_database: bool = False,
) -> Services:
    """Open an installation; close the services when done.

    With `new_database` an empty database is set up even if the secrets belong to one already; otherwise that
    is a `LicserverError`.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    timelines = Timelines(settings.data_dir)
    vault = open_vault(settings, lambda: is_in_use(settings.database, timelines))
    expected = expects_database(settings, vault) and not new_database
    database = open_database(settings.database, vault.fingerprint, timelines, expected=expected)
    try:
        note_database(settings, vault)
        artifacts = open_artifacts(settings)
        url = settings.replica_url
        replica = None if url is None else Replica(url.get_secret_value(), vault.fingerprint, timelines)
    except BaseException:
        database.close()
        raise
    return Services(
        Context(settings, vault, database, artifacts, clock, actor, Repositories(database), replica=replica)
    )
