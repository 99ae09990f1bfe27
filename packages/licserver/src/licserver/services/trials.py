"""Trials: one for each machine and product, which becomes a purchased license when it is converted."""

from contextlib import suppress
from datetime import date
from typing import Any, Final

from licserver.domain.decisions import generate_license_key, is_slug
from licserver.domain.records import IssuedLicense, LicenseTerms, Product
from licserver.domain.trials import KEPT, LIMITS_COUNT_FOR, TrialRefusal, evaluate_new, evaluate_started
from licserver.errors import ConflictError, NotFoundError, TooManyMovesError
from licserver.services.context import Context
from licserver.services.licenses import LicenseService, add_licenses, find_license
from licserver.services.self_service import SelfService

PLAN: Final = "trial"
"""The name of the plan that a product's trials have, if there is one."""

_BATCH: Final = 500  # licenses that are deleted in one transaction


class TrialService:
    """Starts, converts and sweeps trials."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def start(
        self, slug: str, machine: str, address: str, domain: str | None = None
    ) -> tuple[IssuedLicense, str] | TrialRefusal:
        """Start the trial of a machine, or find the one that runs; return the license and its key.

        Args:
            slug: The product.
            machine: A hash that the client makes of the machine's id; stored as a keyed hash (D-233).
            address: Of the client, as limits count it; stored likewise, for a day.
            domain: Of the installation, which takes the place of an earlier one of the same machine.
        """
        product = self._context.repositories.products.find(slug) if is_slug(slug) else None
        if product is None:
            return TrialRefusal.PRODUCT_NOT_FOUND
        pseudonym = self._context.vault.pseudonym
        machine_hash, address_hash = pseudonym("trial machine", machine), pseudonym("trial address", address)
        # Without a lock first: neither a repeated request nor a flood may hold up others.
        found = _find(self._context, product, machine_hash) or _judge_new(
            self._context, product, address_hash
        )
        if isinstance(found, date):
            with self._context.transaction() as tx:
                tx.repositories.trials.lock(product.id)
                found = _find(tx, product, machine_hash) or _judge_new(tx, product, address_hash)
                if isinstance(found, date):
                    plan = PLAN if tx.repositories.plans.lock(product.id, [PLAN]) else None
                    terms = LicenseTerms(expires_on=found, trial=True, plan=plan)
                    found = LicenseService(tx).prepare(product, terms, generate_license_key())
                    add_licenses(tx, [found], product.slug)
                    tx.repositories.trials.add(product.id, machine_hash, found.id, address_hash, tx.now())
        if isinstance(found, TrialRefusal):
            return found
        if domain is not None and found.slots is not None and found.slots_used >= found.slots:
            with suppress(TooManyMovesError, NotFoundError):  # verify refuses it then
                SelfService(self._context).make_room(found, domain)
        return found, LicenseService(self._context).decrypt_key(found)

    def convert(self, reference: str, **terms: Any) -> IssuedLicense:
        """Make a purchased license of a trial; its key and its activations stay (D-235).

        Args:
            reference: The key, or the id of the license.
            **terms: As of `LicenseService.change`; by default it has no last day and no plan.
        """
        with self._context.transaction() as tx:
            if not find_license(tx, reference, locked=True).trial:
                raise ConflictError("this license is no trial; change its terms instead")
            return LicenseService(tx).change(
                reference, **{"expires_on": None, "plan": None, **terms, "trial": False}
            )

    def sweep(self) -> int:
        """Delete the licenses of trials that ended long ago; return how many. Their machines stay known."""
        now, trials = self._context.now(), self._context.repositories.trials
        trials.forget_addresses(now - LIMITS_COUNT_FOR)
        total = 0
        while deleted := trials.delete_ended((now - KEPT).date(), _BATCH):
            total += deleted
        return total


def _find(context: Context, product: Product, machine: bytes) -> IssuedLicense | TrialRefusal | None:
    """Return the license of a machine's trial, or why it gets none; None if it has not had one."""
    found = context.repositories.trials.find(product.id, machine)
    if found is None:
        return None
    license_ = found.license_id and context.repositories.licenses.find(found.license_id)
    return evaluate_started(license_ or None, context.now())


def _judge_new(context: Context, product: Product, address: bytes) -> date | TrialRefusal:
    now, settings = context.now(), context.settings
    started = context.repositories.trials.count(product.id, address, now - LIMITS_COUNT_FOR)
    limits = settings.trial_limit, settings.trial_address_limit
    return evaluate_new(product.trial_days, now.date(), started, limits)
