"""All services of an installation: opened together, on behalf of an acting user."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from licserver.artifacts import open_artifacts
from licserver.clock import Clock, system_clock
from licserver.database.replica import Replica
from licserver.database.repositories import Repositories
from licserver.database.repositories.tokens import IdempotencyKey
from licserver.database.schema import is_in_use, open_database
from licserver.database.timelines import Timelines
from licserver.domain.records import SYSTEM, Actor
from licserver.errors import InvalidInputError
from licserver.security.secrets_file import expects_database, note_database, open_vault
from licserver.services.audit import AuditService, RetentionService
from licserver.services.context import Context
from licserver.services.customer_sign_in import CustomerSignInService
from licserver.services.licenses import LicenseService
from licserver.services.mail import MailService
from licserver.services.manual_changes import ManualChangeService
from licserver.services.moves import MoveService
from licserver.services.offline_files import OfflineFileService
from licserver.services.patches import PatchService
from licserver.services.personal_data import PersonalDataService
from licserver.services.products import PlanService, ProductService
from licserver.services.releases import ReleaseService, RolloutService
from licserver.services.sales.deliveries import SaleService
from licserver.services.sales.problems import ProblemService
from licserver.services.seats import SeatService
from licserver.services.second_factors import SecondFactorService
from licserver.services.sources import SourceService
from licserver.services.subscriptions import SubscriptionService
from licserver.services.support import SupportService
from licserver.services.tokens import IdempotencyService, IdempotentResult, Response, TokenService
from licserver.services.transfer import TransferService
from licserver.services.trials import TrialService
from licserver.services.users import LoginService, UserService
from licserver.services.uses import UseService
from licserver.services.webhooks import WebhookService
from licserver.settings import Settings

Prepared = TypeVar("Prepared")


class Services:
    """All services of an installation, on behalf of an acting user.

    1. `open_services` opens the secrets, the database and the artifacts.
    2. `acting_as` returns the services of an actor, whose name the audit log gets.
    3. Each operation is a transaction; `transaction` joins several in a single transaction.
    4. `close` ends background threads, and closes the database.

    Example::

        with closing(open_services(settings)) as services:
            vendor = services.acting_as(Actor(ActorKind.USER, "ann"))
            with vendor.transaction() as tx:
                tx.products.add("my-app", "My App")
                license_, key = tx.licenses.issue("my-app", LicenseTerms(slots=2))

    All operations raise only subclasses of `LicserverError`; a failed operation changes nothing.
    """

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
        self.uses = UseService(context)
        self.rollouts = RolloutService(context)
        self.licenses = LicenseService(context)
        self.personal_data = PersonalDataService(context)
        self.support = SupportService(context)
        self.moves = MoveService(context)
        self.trials = TrialService(context)
        self.seats = SeatService(context)
        self.customer_sign_in = CustomerSignInService(context)
        self.offline_files = OfflineFileService(context)
        self.subscriptions = SubscriptionService(context)
        self.sources = SourceService(context)
        self.sales = SaleService(context)
        self.sale_problems = ProblemService(context)
        self.manual_changes = ManualChangeService(context)
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
        """Run several operations in a single transaction: all of them, or none when the block raises.

        Other writers wait until it ends: nothing slow belongs there, such as storing a file.
        """
        with self.context.transaction() as context:
            yield Services(context)

    def run_once(
        self,
        key: IdempotencyKey,
        prepare: Callable[[], Prepared],
        operation: Callable[["Services", Prepared], Response],
    ) -> IdempotentResult:
        """Run an operation and record its response in a single transaction, or replay the recorded response.

        Args:
            key: Identifies the operation.
            prepare: Slow work before the transaction, such as storing a file.
            operation: Runs within the transaction, with services bound to it and the result of `prepare`;
                if it raises, nothing is changed or recorded.
        """
        recorded = self.idempotency.find(key)
        if recorded is None:
            try:
                prepared = prepare()
                with self.transaction() as tx:
                    response = operation(tx, prepared)
                    tx.idempotency.record(key, response)
                return IdempotentResult(response, is_replayed=False)
            except InvalidInputError:
                # The same request, sent twice at once, may have caused this: return its response.
                recorded = self.idempotency.find(key)
                if recorded is None:
                    raise
        return IdempotentResult(recorded, is_replayed=True)

    def end_soon(self) -> None:
        """Shorten all waits for a remote database: the process is about to end."""
        self.database.end_soon()
        if self.context.replica is not None:
            self.context.replica.database.end_soon()

    def close(self) -> None:
        """Stop the background threads, and close the database and the replica."""
        self.context.threads.close()
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
    """Open an installation; the caller closes the services.

    With `new_database` an empty database is set up although the secrets belong to another database.

    Raises:
        LicserverError: The database is empty, and the secrets belong to another database.
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
