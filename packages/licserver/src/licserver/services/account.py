"""What customers do themselves: sign in to their page, free slots of their licenses, try a product."""

import hmac
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Any, Final

from licserver.domain.decisions import generate_license_key, is_license_key, is_slug
from licserver.domain.extensions import (
    KEPT,
    LIMITS_COUNT_FOR,
    TrialRefusal,
    counted_moves,
    evaluate_new,
    evaluate_started,
    next_move,
)
from licserver.domain.records import Actor, ActorKind, Environment, IssuedLicense, LicenseTerms, Product
from licserver.errors import (
    ConflictError,
    HeldOfflineError,
    NotFoundError,
    TooManyMovesError,
)
from licserver.protocol.webhooks import EventType
from licserver.services.context import Context, Service
from licserver.services.license_terms import find_email
from licserver.services.licenses import (
    LicenseService,
    add_licenses,
    audit_object,
    event_data,
    find_by_key,
    find_license,
)
from licserver.services.mail import MailService
from licserver.services.products import find_product
from licserver.services.support import SupportService
from licserver.services.users import digest_token

SESSION_TIME: Final = timedelta(hours=1)
CODE_TIME: Final = timedelta(minutes=15)
MAX_ATTEMPTS: Final = 5  # with one code
MAX_CODES: Final = 3  # that an address is sent while they are valid
CUSTOMER: Final = Actor(ActorKind.SYSTEM, "customer")
"""Who acts on the page, for the audit log: the object of each line is the customer's license."""


class AccountService(Service):
    """Sessions of customers on their page, which shows expired and revoked licenses as well (D-214)."""

    def sign_in(self, typed: str) -> str | None:
        """Begin a session for a license key; return its token, or None if no license has this key."""
        key = typed.strip()
        found = find_by_key(self._context, key.upper() if is_license_key(key.upper()) else key)
        return None if found is None else self._begin([found.id])

    def send_code(self, typed: str) -> str:
        """Send a code to an address that has licenses; return the token of the browser that asked.

        Nobody learns from it whether the address has any, or has been sent enough codes: one that no mail has
        is stored, and opens nothing.
        """
        token, code = secrets.token_urlsafe(32), f"{secrets.randbelow(10**6):06}"
        email = find_email(typed)
        found = [] if email is None else SupportService(self._context).find_licenses(email)
        address = self._context.vault.pseudonym("account", typed.strip().casefold())
        with self._context.transaction() as tx:
            now = tx.now()
            hashes, codes = (digest_token(token), _digest_code(token, code)), tx.repositories.account_codes
            ids = [one.id for one in found] if codes.count(address, now) < MAX_CODES else []
            codes.add(*hashes, address, ids, now, now + CODE_TIME)
            if email is not None and ids:
                MailService(tx).send_code(email, code)
        return token

    def has_code(self, token: str) -> bool:
        """Return whether a browser may type a code."""
        return self._context.repositories.account_codes.exists(digest_token(token), self._context.now())

    def sign_in_with_code(self, token: str, typed: str) -> str | None:
        """Begin a session for the code that this browser's customer was sent; None if it is wrong."""
        codes, token_hash = self._context.repositories.account_codes, digest_token(token)
        found = codes.count_attempt(token_hash, MAX_ATTEMPTS, self._context.now())
        if found is None:
            return None
        code_hash, license_ids = found
        code = "".join(typed.split())
        if not hmac.compare_digest(code_hash, _digest_code(token, code)) or not license_ids:
            return None
        codes.remove(token_hash)
        return self._begin(license_ids)

    def _begin(self, license_ids: Sequence[bytes]) -> str:
        token, now = secrets.token_urlsafe(32), self._context.now()
        sessions = self._context.repositories.account_sessions
        sessions.add(digest_token(token), license_ids, now + SESSION_TIME, now)
        return token

    def find_licenses(self, token: str) -> list[IssuedLicense]:
        """Return the licenses that a session may see; none if it has ended."""
        ids = self._context.repositories.account_sessions.find(digest_token(token), self._context.now())
        return self._context.repositories.licenses.find_all(ids) if ids else []

    def sign_out(self, token: str) -> None:
        """End a session."""
        self._context.repositories.account_sessions.remove(digest_token(token))


def _digest_code(token: str, code: str) -> bytes:
    """Return the digest of a code, with a token that is not stored: a million codes are soon tried."""
    return digest_token(f"{token}/{code}")


# --- slots that customers free, a few times in 30 days ----------------------------------------


class SelfService(Service):
    """Frees slots for the customer who owns a license."""

    def moves_left(self, license_: IssuedLicense) -> int:
        """Return how many slots the customer may free now."""
        allowed = find_product(self._context, license_.product_slug).customer_moves
        return max(0, allowed - len(_counted(self._context, license_)))

    def free_slot(self, license_: IssuedLicense, environment: Environment) -> None:
        """Free one slot.

        Raises:
            NotFoundError: It is free already.
            HeldOfflineError: The computer has a license file, which nobody can take back.
            TooManyMovesError: The customer has freed as many as the product allows, or it allows none.
        """
        if not self._free(license_, lambda one: one == environment):
            raise NotFoundError("this computer is not activated any more")

    def deactivate(self, license_: IssuedLicense, domain: str) -> int:
        """Free the slots of a domain, or raise as `free_slot`; return how many, 0 if there was none."""
        return self._free(license_, lambda one: one.domain == domain)

    def make_room(self, license_: IssuedLicense, domain: str) -> None:
        """Free all slots, unless the domain has one already; raise as `free_slot`."""
        active = self._context.repositories.licenses.list_activations(license_.id)
        if domain not in {one.environment.domain for one in active}:
            self._free(license_, lambda one: one.domain != domain)

    def _free(self, license_: IssuedLicense, is_meant: Callable[[Environment], bool]) -> int:
        with self._context.transaction() as tx:
            found = find_license(tx, license_.id.hex(), locked=True)
            active = tx.repositories.licenses.list_activations(found.id)
            held = {one.environment: one.offline_until for one in active if is_meant(one.environment)}
            meant, now = list(held), tx.now()
            if not meant:
                return 0
            if (until := max(filter(None, held.values()), default=now)) > now:
                raise HeldOfflineError(until)
            allowed = find_product(tx, found.product_slug).customer_moves
            if (at := next_move(_counted(tx, found), allowed, now)) != now:
                raise _refusal(allowed, at)
            for environment in meant:
                tx.repositories.licenses.remove_activation(found.id, environment)
            tx.repositories.moves.add(found.id, meant, now)
            tx.write_audit("license.move", audit_object(found), freed=len(meant))
            tx.add_events(EventType.ACTIVATION_FREED, event_data(found, freed=len(meant)))
        return len(meant)


def _counted(context: Context, license_: IssuedLicense) -> list[datetime]:
    freed = context.repositories.moves.list_all(license_.id)
    active = context.repositories.licenses.list_activations(license_.id) if freed else []
    return counted_moves(freed, {one.environment for one in active}, context.now())


def _refusal(allowed: int, at: datetime | None) -> TooManyMovesError:
    if at is None:
        return TooManyMovesError("computers of this license are changed by support; write to them", None)
    times = "once" if allowed == 1 else f"{allowed} times"
    day = at.date().isoformat()
    return TooManyMovesError(
        f"this license was moved to another computer {times} in 30 days; it can be moved again on {day}, "
        "or earlier by support",
        at,
    )


# --- trials: one for each machine and product, which become purchased licenses ----------------

PLAN: Final = "trial"
"""The name of the plan that a product's trials have, if there is one."""

_BATCH: Final = 500  # licenses that are deleted in one transaction


class TrialService(Service):
    """Starts, converts and sweeps trials."""

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
        found = _find_trial(self._context, product, machine_hash) or _judge_new(
            self._context, product, address_hash
        )
        if isinstance(found, date):
            with self._context.transaction() as tx:
                tx.repositories.trials.lock(product.id)
                found = _find_trial(tx, product, machine_hash) or _judge_new(tx, product, address_hash)
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


def _find_trial(context: Context, product: Product, machine: bytes) -> IssuedLicense | TrialRefusal | None:
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
