"""What deliveries of shops do: their facts are stored, and the licenses become what should exist."""

import os
from collections.abc import Sequence

from licserver.database.repositories.queue import Job
from licserver.database.repositories.sales import DEAD, DONE, WAITING, Source
from licserver.domain.records import Actor, ActorKind
from licserver.errors import BuryJobError, InvalidInputError
from licserver.services.context import Context, Service
from licserver.services.sales.reconciler import MAX_PROBLEM_CHARS, Report, SaleReconciler
from licserver.services.sales.rows import load_content, load_note, load_objects
from licserver.settings import Settings
from licserver.shops import SHOPS, ShopKind, paddle
from licserver.shops.contract import Fetch
from licserver.shops.facts import Fact, links_of


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
            fetches = reconciler.find_fetches(
                {*load_objects(event), *(link for fact in facts for link in links_of(fact))}
            )
        shop = SHOPS[source.kind]
        fetchable = tuple(fetch for fetch in fetches if shop.fetch_path(fetch) is not None)
        return (source.kind, key, source.url, source.is_test, fetchable) if fetchable else None

    def process(self, event_id: int, fetched: Sequence[Fact] = (), job: Job | None = None) -> bool:
        """Do what a delivery asks for; nothing if that was done before.

        Args:
            event_id: The delivery's.
            fetched: What the shop's API has reported of it.
            job: Finished in the same transaction.

        Returns:
            Whether the job was finished.

        Raises:
            BuryJobError: a person has to do something first; what could be done is done.
        """
        problem: str | None = None
        report = Report()
        try:
            while problem is None:
                with self._context.transaction() as tx:
                    problem = _apply_delivery(tx, event_id, fetched or (), report)
                    if job is not None and problem == "":
                        tx.repositories.queue.finish(job, tx.now())
        except InvalidInputError as wrong:  # rolled back; the same would fail again
            problem = str(wrong)[:MAX_PROBLEM_CHARS]
            self._context.repositories.sales.set_event(event_id, DEAD, problem, self._context.now())
        if problem:
            raise BuryJobError(problem)
        return job is not None


def find_key(source: Source, settings: Settings) -> str:
    """Return the key of a shop's API; empty if none is configured, or only one of the other mode."""
    if source.key_env is not None:
        return os.environ.get(source.key_env, "").strip()
    if source.kind is ShopKind.PADDLE and settings.paddle_api_key is not None:
        key = settings.paddle_api_key.get_secret_value()
        return key if paddle.is_sandbox(key) is source.is_test else ""
    return ""


def _apply_delivery(tx: Context, event_id: int, fetched: Sequence[Fact], report: Report) -> str | None:
    """Do a part; return None if more is to be done, else what a person has to do, or nothing."""
    sales = tx.repositories.sales
    source = sales.find_source_of(event_id, locked=True)
    event = sales.find_event(event_id)  # after the lock: another process may have done it meanwhile
    if source is None or event is None or event.content is None or event.state != WAITING:
        return ""
    actor = Actor(ActorKind.SYSTEM, f"source {source.name}")
    reconciler = SaleReconciler(tx.acting_as(actor), source, report)
    facts = [*load_content(event), *fetched]
    reconciler.store(facts)
    if not reconciler.reconcile({*load_objects(event), *(link for fact in facts for link in links_of(fact))}):
        return None
    problem = reconciler.problem()
    state, reason = (DEAD, problem) if problem else (DONE, str(report))
    reason = "; ".join(filter(None, (reason, load_note(event))))
    sales.set_event(event_id, state, reason, tx.now())
    if not problem:
        reconciler.revive_dead()
    return problem
