"""Process the deliveries of shops: store their facts, and bring the licenses to what should exist."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from licserver.database.repositories.queue import Job
from licserver.database.repositories.sales import DEAD, DONE, WAITING, Source, StoredEvent
from licserver.domain.records import Actor, ActorKind
from licserver.errors import BuryJobError, InvalidInputError, RetryJobError, StatementRefusedError
from licserver.services.context import Context, Service
from licserver.services.personal_data import PersonalDataService
from licserver.services.sales.contract_loader import read_own_key
from licserver.services.sales.plans import LargePlan, read_basis
from licserver.services.sales.problems import ProblemService
from licserver.services.sales.reconciler import MAX_PROBLEM_CHARS, Report, SaleReconciler
from licserver.services.sales.rows import load_content, load_note, load_objects
from licserver.settings import Settings
from licserver.shops import ROWS, SHOPS, ShopKind
from licserver.shops.contract import Fetch, ProblemKind, SaleProblem
from licserver.shops.facts import Fact, links_of

_WAIT: Final = timedelta(seconds=5)
_SAME_CONTRACT: Final = "another delivery of the same order is being processed; this one goes on after it"


class SaleService(Service):
    """Processes deliveries, each in short transactions that can end at any point and be done again."""

    def find_fetches(
        self, event_id: int, fetched: Sequence[Fact] = ()
    ) -> tuple[ShopKind, str, str | None, bool, tuple[Fetch, ...]] | None:
        """Return what to ask the shop's API for; None if nothing is missing, or no key is configured.

        Args:
            event_id: Of a delivery.
            fetched: What was fetched for it already.

        Returns:
            The shop, the key of its API, the address of that if it is the shop's own, whether it is the test
            mode, and what is missing.
        """
        sales = self._context.repositories.sales
        source = sales.find_source_of(event_id)
        key = "" if source is None else find_key(source, self._context.settings)
        event = sales.find_event(event_id) if key else None
        if source is None or event is None or event.state != WAITING:
            return None
        with self._context.transaction() as tx:
            locked = tx.repositories.sales.find_source(source.name, locked=True)
            if locked is None:
                return None
            reconciler, facts = SaleReconciler(tx, locked, Report()), [*load_content(event), *fetched]
            reconciler.store(facts)
        objects = {*load_objects(event), *(link for fact in facts for link in links_of(fact))}
        # Not within the transaction: a contract of 10,000 licenses takes a second.
        fetches = SaleReconciler(self._context, source, Report()).find_fetches(objects)
        shop = SHOPS[source.kind]
        fetchable = tuple(fetch for fetch in fetches if shop.fetch_path(fetch) is not None)
        # If the API refuses the others, what is needed is known.
        fetchable = tuple(fetch for fetch in fetchable if fetch.is_needed) or fetchable
        return (source.kind, key, source.url, source.is_test, fetchable) if fetchable else None

    def process(self, event_id: int, fetched: Sequence[Fact] = (), job: Job | None = None) -> bool:
        """Do what a delivery asks for; nothing if that was done before.

        Args:
            event_id: The delivery's.
            fetched: What the shop's API has reported of it.
            job: Finished, or given up, in the same transaction.

        Returns:
            Whether the job was finished or given up.

        Raises:
            BuryJobError: Without a job: a person has to do something first; what could be done is done.
        """
        work = self.start(event_id, fetched, job)
        while not work.go_on():
            pass
        return job is not None

    def start(
        self, event_id: int, fetched: Sequence[Fact] = (), job: Job | None = None, *, stays: bool = False
    ) -> "DeliveryWork":
        """Return the work of a delivery, as `process` does it, to be done a part at a time.

        Args:
            stays: Do what is known, and let the delivery wait for the rest.
        """
        return DeliveryWork(self._context, event_id, fetched, job, stays=stays)


class _Progress(NamedTuple):
    """The state of a delivery's work after a part of it.

    Args:
        is_over: Whether nothing is left to do.
        problem: What a person has to do; empty if nothing.
    """

    is_over: bool
    problem: str = ""


_TO_BE_CONTINUED: Final = _Progress(is_over=False)


class DeliveryWork:
    """The work of a delivery, done in parts: others are served between them."""

    def __init__(
        self, context: Context, event_id: int, fetched: Sequence[Fact], job: Job | None, *, stays: bool
    ) -> None:
        self._context, self._event_id, self._fetched, self._job = context, event_id, fetched, job
        self._stays = stays
        self._report, self._is_large = Report(), False
        self._plan: LargePlan | None = None

    def go_on(self) -> bool:
        """Do a part, a transaction of 0.2 s at most; return whether all is done.

        Raises:
            BuryJobError: Without a job: a person has to do something first; what could be done is done.
            RetryJobError: another delivery of the same contract is being processed.
        """
        try:
            progress = self._do_part()
        except InvalidInputError as wrong:  # rolled back; the same would fail again
            progress = _Progress(is_over=True, problem=str(wrong)[:MAX_PROBLEM_CHARS])
            with self._context.transaction() as tx:
                tx.repositories.sales.set_event(self._event_id, DEAD, progress.problem, tx.now())
                self._end_job(tx, progress)
        except StatementRefusedError as refused:
            if self._job is None or self._job.attempts > 1:  # a lock may have been held for long
                self._ask_about_refusal(refused)
            raise
        if progress.problem and self._job is None:
            raise BuryJobError(progress.problem)
        return progress.is_over

    def _ask_about_refusal(self, refused: StatementRefusedError) -> None:
        """Show that the database refuses what follows from a delivery, which is tried again."""
        with self._context.transaction() as tx:
            source = tx.repositories.sales.find_source_of(self._event_id)
            event = tx.repositories.sales.find_event(self._event_id)
            objects = set() if event is None else self._list_objects(event)[1]
            if source is None or not objects:
                return
            about = min(objects)  # an order before a subscription
            text = (
                f"{about.replace(':', ' ', 1)}: the database has refused what it reports ({refused}); "
                "nothing of it is done, and it is tried again: see the server's log"
            )
            problem = SaleProblem(f"refused:{about}", ProblemKind.REFUSED, text, about)
            ProblemService(tx).update(source.name, [about], [problem], [])

    def _do_part(self) -> _Progress:
        if self._is_large and (self._plan is None or self._plan.is_over):
            self._plan = self._make_plan()
        with self._context.transaction() as tx:
            progress = self._apply(tx)
            if progress.is_over:
                self._end_job(tx, progress)
        return progress

    def _end_job(self, tx: Context, progress: _Progress) -> None:
        """Finish the job, or give it up, together with its delivery.

        Later, another delivery may have let this one go on meanwhile, and its job would be dead.
        """
        if self._job is None:
            return
        if progress.problem:
            tx.repositories.queue.bury(self._job, tx.now(), progress.problem)
        elif not self._stays:
            tx.repositories.queue.finish(self._job, tx.now())

    def _make_plan(self) -> LargePlan | None:
        sales = self._context.repositories.sales
        source, event = sales.find_source_of(self._event_id), sales.find_event(self._event_id)
        if source is None or event is None or event.state != WAITING:
            return None
        return SaleReconciler(self._context, source, self._report).plan(self._list_objects(event)[1])

    def _list_objects(self, event: StoredEvent) -> tuple[list[Fact], set[str]]:
        """Return the facts of a delivery, and the objects that it is about."""
        facts = [*load_content(event), *PersonalDataService(self._context).rename(self._fetched)]
        return facts, {*load_objects(event), *(link for fact in facts for link in links_of(fact))}

    def _apply(self, tx: Context) -> _Progress:
        sales = tx.repositories.sales
        source = sales.find_source_of(self._event_id, locked=True)
        event = sales.find_event(self._event_id)  # after the lock: another process may have done it meanwhile
        if source is None or event is None or event.content is None or event.state != WAITING:
            return _Progress(is_over=True)
        actor = Actor(ActorKind.SYSTEM, f"source {source.name}")
        reconciler = SaleReconciler(tx.acting_as(actor), source, self._report)
        facts, objects = self._list_objects(event)
        reconciler.store(facts)
        if not self._is_current(tx, source, objects):
            self._plan = None
            return _TO_BE_CONTINUED
        if not reconciler.reconcile(objects, self._plan):
            self._is_large = True
            return _TO_BE_CONTINUED
        problem = reconciler.problem()
        if self._stays and not problem:
            return _Progress(is_over=True)
        state, reason = (DEAD, problem) if problem else (DONE, str(self._report))
        reason = "; ".join(filter(None, (reason, load_note(event))))
        sales.set_event(event.id, state, reason, tx.now())
        if not problem:
            reconciler.revive_dead()
        return _Progress(is_over=True, problem=problem)

    def _is_current(self, tx: Context, source: Source, objects: Collection[str]) -> bool:
        """Return whether nothing has changed of what the plan is made of."""
        if self._plan is None:
            return True
        basis, planned = read_basis(tx.repositories, source, objects), self._plan.basis
        if basis.sold != planned.sold:  # two that load the contract again and again would never end
            raise RetryJobError(_SAME_CONTRACT, tx.now() + _WAIT)
        return basis == planned


def find_key(source: Source, settings: Settings) -> str:
    """Return the key of a shop's API; empty if none is configured, or only one of the other mode."""
    if source.key_env is not None:
        return read_own_key(source)
    keys = {ShopKind.PADDLE: settings.paddle_api_key}  # settings that have the key of a kind of shop
    setting, is_test_key = keys.get(source.kind), ROWS[source.kind].is_test_key
    key = "" if setting is None else setting.get_secret_value()
    is_of_mode = is_test_key is None or is_test_key(key) is source.is_test
    return key if is_of_mode else ""
