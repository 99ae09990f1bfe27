"""Trials: a single trial for each machine and product; it can become a purchased license."""

from contextlib import suppress
from datetime import date
from typing import Any, Final

from licserver.database.repositories.trials import TrialClient
from licserver.domain.decisions import generate_license_key, is_slug
from licserver.domain.environments import provider_network
from licserver.domain.records import IssuedLicense, LicenseTerms, Product
from licserver.domain.trials import (
    KEPT,
    LIMITS_COUNT_FOR,
    TrialCounts,
    TrialRefusal,
    evaluate_new,
    evaluate_started,
)
from licserver.errors import (
    ConflictError,
    NotFoundError,
    TooManyMovesError,
)
from licserver.services.context import Context, Service
from licserver.services.license_lookups import find_license
from licserver.services.licenses import LicenseService, add_licenses
from licserver.services.moves import MoveService

PLAN: Final = "trial"
"""The name of the plan of a product's trials, if the product has such a plan."""


_BATCH: Final = 500  # licenses that are deleted in a transaction


class TrialService(Service):
    """Starts, converts and sweeps trials."""

    def start(
        self, slug: str, machine: str, address: str, domain: str | None = None
    ) -> tuple[IssuedLicense, str] | TrialRefusal:
        """Start the trial of a machine, or find its running trial; return the license and its key.

        Args:
            slug: The product.
            machine: The client's hash of the machine's id; stored as a keyed hash.
            address: The client's address, as limits count it; stored as a keyed hash for a day.
            domain: The installation's domain, which replaces an earlier installation of the same machine.
        """
        product = self._context.repositories.products.find(slug) if is_slug(slug) else None
        if product is None:
            return TrialRefusal.PRODUCT_NOT_FOUND
        pseudonym = self._context.vault.pseudonym
        machine_hash, network = pseudonym("trial machine", machine), provider_network(address)
        client = TrialClient(pseudonym("trial address", address), pseudonym("trial network", network))
        # Without a lock first: neither repeated requests nor a flood may block other trials.
        result = _find_trial(self._context, product, machine_hash) or _evaluate_new(
            self._context, product, client
        )
        if isinstance(result, date):
            with self._context.transaction() as tx:
                tx.repositories.trials.lock(product.id)
                result = _find_trial(tx, product, machine_hash) or _evaluate_new(tx, product, client)
                if isinstance(result, date):
                    plan = PLAN if tx.repositories.plans.lock(product.id, [PLAN]) else None
                    terms = LicenseTerms(expires_on=result, trial=True, plan=plan)
                    result = LicenseService(tx).prepare(product, terms, generate_license_key())
                    add_licenses(tx, [result], product.slug)
                    tx.repositories.trials.add(product.id, machine_hash, result.id, client, tx.now())
        if isinstance(result, TrialRefusal):
            return result
        if domain is not None and result.slots is not None and result.slots_used >= result.slots:
            with suppress(TooManyMovesError, NotFoundError):  # verify refuses it then
                MoveService(self._context).make_room(result, domain)
        return result, LicenseService(self._context).decrypt_key(result)

    def convert(self, reference: str, **terms: Any) -> IssuedLicense:
        """Turn a trial into a purchased license with the same key and activations (D-235).

        Args:
            reference: The key or the id of the license.
            **terms: Changes as of `LicenseService.change`; by default the last day and the plan are removed.
        """
        with self._context.transaction() as tx:
            if not find_license(tx, reference, locked=True).trial:
                raise ConflictError("this license is not a trial; change its terms instead")
            return LicenseService(tx).change(
                reference, **{"expires_on": None, "plan": None, **terms, "trial": False}
            )

    def sweep(self) -> int:
        """Delete the licenses of trials that ended long ago, but not their machines; return the number."""
        now, trials = self._context.settled_now(), self._context.repositories.trials
        trials.forget_addresses(now - LIMITS_COUNT_FOR)
        total = 0
        while deleted := trials.delete_ended((now - KEPT).date(), _BATCH):
            total += deleted
        return total


def _find_trial(context: Context, product: Product, machine: bytes) -> IssuedLicense | TrialRefusal | None:
    """Return the license of a machine's trial, or its refusal; None for a machine without a trial."""
    trial = context.repositories.trials.find(product.id, machine)
    if trial is None:
        return None
    license_ = trial.license_id and context.repositories.licenses.find(trial.license_id)
    return evaluate_started(license_ or None, context.now())


def _evaluate_new(context: Context, product: Product, client: TrialClient) -> date | TrialRefusal:
    now, settings = context.now(), context.settings
    started = context.repositories.trials.count(product.id, client, now - LIMITS_COUNT_FOR)
    limits = TrialCounts(settings.trial_limit, settings.trial_address_limit, settings.trial_network_limit)
    return evaluate_new(product.trial_days, now.date(), started, limits)
