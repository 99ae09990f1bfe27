"""Sources of sales: shops whose deliveries issue, revoke and end licenses."""

import hashlib
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeGuard
from urllib.parse import urlsplit

from licserver.database.repositories.sales import (
    CHANGES,
    DEAD,
    FOLLOW,
    IGNORED,
    QUEUE,
    STATES,
    UNREADABLE_ONLY,
    WAITING,
    Source,
    SourceMapping,
    StoredEvent,
)
from licserver.domain.decisions import is_slug
from licserver.domain.environments import is_printable, parse_ip
from licserver.errors import ConflictError, InvalidInputError, LicserverError, NotFoundError
from licserver.services.context import Context, Service
from licserver.services.license_terms import check_lifetime, check_seats, check_slots
from licserver.services.lists import Page, page_by_id
from licserver.services.personal_data import PersonalDataService
from licserver.services.products import check_plans, find_product
from licserver.services.sales.problems import UNREADABLE, ProblemService
from licserver.services.sales.rows import dump_content
from licserver.services.validation import MAX_INDEXED, check_line, to_line
from licserver.shops import ROWS, SHOPS, ShopKind
from licserver.shops.contract import MAX_QUANTITY
from licserver.shops.facts import Fact, Lines, OrderState, key_of, links_of
from licserver.shops.periods import is_period
from licserver.shops.reading import Delivery, ReadOptions, UnreadableDeliveryError
from licserver.shops.standard import DELIVERY_HEADER
from licserver.shops.standard import HEADER as STANDARD_HEADER

MAX_TOLERANCE: Final = 86_400  # seconds
MAX_GRACE: Final = 365  # days
MAX_OBJECT: Final = MAX_INDEXED + len("subscription:")
FILTERS: Final = (*STATES, UNREADABLE_ONLY)
"""By which deliveries are listed."""
KEPT: Final = timedelta(days=30)  # deliveries that are done: they hold e-mail addresses

_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")  # a secret has small letters, as in whsec_…
_TEST_ON_LIVE: Final = "a test event, and this source is live: add another one with --test for the test mode"
_LIVE_ON_TEST: Final = "a live event, and this source was added with --test: add another one without it"
_NEW_VERSION: Final = "; compare the API version of the shop's webhook with the documentation"
_MIN_SECRET: Final = 6  # characters; the fewest that Lemon Squeezy accepts


class MissingSecretError(LicserverError):
    """A source has no secret, so that nothing that it delivers can be verified."""


class BadSignatureError(InvalidInputError):
    """A delivery is not signed by a secret of its source, or is too old."""


class Receipt(NamedTuple):
    """The outcome of a delivery: `accepted`, `duplicate`, `ignored` or `unreadable`; and its reason."""

    status: str
    reason: str = ""


class SourceService(Service):
    """Adds and maps sources, takes their deliveries, and repeats those that failed."""

    def add(
        self,
        name: str,
        kind: ShopKind,
        secret_env: str,
        *,
        is_test: bool = False,
        tolerance: int = 300,
        grace_days: int = 7,
        revokes_partial_refunds: bool = False,
        changes: str = FOLLOW,
        states: Mapping[str, str] | None = None,
        renewal_field: str | None = None,
        key_env: str | None = None,
        url: str | None = None,
    ) -> Source:
        """Add a source; its secrets stay in the environment variables that `secret_env` names."""
        if not is_slug(name):
            raise InvalidInputError(
                f"{name!r} is not a valid source name: use lower-case letters, digits and single hyphens"
            )
        source = Source(
            name=name,
            kind=kind,
            secret_env=_read_variables(secret_env),
            is_test=is_test,
            tolerance=tolerance,
            grace_days=grace_days,
            revokes_partial_refunds=revokes_partial_refunds,
            created_at=self._context.now(),
            changes=changes,
            states=_read_states(kind, states or {}),
            renewal_field=renewal_field,
            key_env=None if key_env is None else _read_variables(key_env),
            url=url,
        )
        _check(source)
        with self._context.transaction() as tx:
            if not tx.repositories.sales.add_source(source):
                raise ConflictError(f"there is a source {name!r} already")
            tx.write_audit("source.add", ("source", name), kind=kind.value, test=is_test)
        return source

    def change(self, name: str, **changes: Any) -> Source:
        """Change what `add` takes by name, but for the mode.

        `states` are added to those of the source; a state that means "" is removed. Changes apply to what is
        processed from now on.
        """
        if not changes:
            raise InvalidInputError("nothing to change was given")
        if "secret_env" in changes:
            changes["secret_env"] = _read_variables(changes["secret_env"])
        if changes.get("key_env") is not None:
            changes["key_env"] = _read_variables(changes["key_env"])
        with self._context.transaction() as tx:
            source = _find(tx, name, locked=True)
            if "states" in changes:
                joined = {**source.states, **_read_states(source.kind, changes["states"])}
                changes["states"] = {state: meaning for state, meaning in joined.items() if meaning}
            changed = replace(source, **changes)
            _check(changed)
            tx.repositories.sales.change_source(name, changes)
            tx.write_audit("source.change", ("source", name), **changes)
        return changed

    def get(self, name: str) -> Source:
        """Return one source."""
        return _find(self._context, name)

    def list_all(self) -> list[Source]:
        """Return all sources, by name."""
        return self._context.repositories.sales.list_sources()

    def list_mappings(self, name: str | None = None) -> list[SourceMapping]:
        """Return the mappings of a source, or of all."""
        return self._context.repositories.sales.list_mappings(name)

    def remove(self, name: str) -> None:
        """Remove a source with its mappings and deliveries; its licenses stay, and are not issued again."""
        with self._context.transaction() as tx:
            _find(tx, name, locked=True)
            tx.repositories.sales.remove_source(name)
            tx.write_audit("source.remove", ("source", name))

    def map(
        self,
        name: str,
        external_id: str,
        slug: str | None,
        *,
        slots: int | None = 1,
        expires_in: str | None = None,
        support: str | None = None,
        lifetime: bool = False,
        plan: str | None = None,
        floating_seats: int | None = None,
        quantity: int | None = None,
    ) -> SourceMapping:
        """Choose what is issued for a product or price of the shop; without a `slug` nothing is.

        Args:
            name: Of the source.
            external_id: The id in the shop.
            slug: Of our product.
            slots: Activations; None is unlimited.
            expires_in: From the day of purchase, as ``1y``; a subscription's license ends with that.
            support: From the day of purchase to the end of the support period.
            lifetime: Never expires.
            plan: The plan of each license.
            floating_seats: How many may use it at the same time; None for no seats.
            quantity: How many licenses a purchase is, where the shop does not report it; None to be asked.
        """
        external_id = check_line("the id in the shop", external_id, MAX_INDEXED)
        check_slots(slots)
        check_seats(floating_seats)
        check_lifetime(lifetime=lifetime, has_expiry=expires_in is not None)
        if quantity is not None and not 1 <= quantity <= MAX_QUANTITY:
            raise InvalidInputError(f"the quantity must be from 1 to {MAX_QUANTITY}")
        for period in (expires_in, support):
            if period is not None and not is_period(period):
                raise InvalidInputError(f"{period!r} is not a valid period; write 30d, 6m or 1y")
        product = None if slug is None else find_product(self._context, slug)
        plan = (plan or "").strip() or None
        terms: dict[str, Any] = {"slots": slots, "expires_in": expires_in, "support": support}
        terms |= {"lifetime": lifetime, "plan": plan, "floating_seats": floating_seats, "quantity": quantity}
        with self._context.transaction() as tx:
            _find(tx, name, locked=True)
            if product is not None:
                check_plans(tx, product.id, product.slug, {plan})
            tx.repositories.sales.set_mapping(name, external_id, product.id if product else None, **terms)
            tx.write_audit("source.map", ("source", name), external_id=external_id, product=slug, **terms)
        return SourceMapping(source=name, external_id=external_id, product=slug, **terms)

    def unmap(self, name: str, external_id: str) -> None:
        """Remove a mapping; purchases of it fail from now on, until it is mapped again."""
        with self._context.transaction() as tx:
            _find(tx, name, locked=True)
            if not tx.repositories.sales.remove_mapping(name, external_id):
                raise NotFoundError(f"{external_id!r} is not mapped; `licserver source list` shows what is")
            tx.write_audit("source.unmap", ("source", name), external_id=external_id)

    # --- deliveries

    def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Verify and store a delivery; it is processed by a job.

        Args:
            name: Of the source.
            headers: With names in lower case.
            body: As it arrived.

        Raises:
            NotFoundError: there is no such source.
            MissingSecretError: none of its variables holds a secret.
            BadSignatureError: the signature is wrong, or too old.
        """
        source, now = self.get(name), self._context.now()
        if ROWS[source.kind].is_ping(body):
            return Receipt("ignored", "a test of the address, which changes nothing")
        signing_secrets = list(read_secrets(source).values())
        if not signing_secrets:
            raise MissingSecretError(f"the source {name} has no secret; set {source.secret_env} and restart")
        shop = SHOPS[source.kind]
        if not shop.verify(headers, body, signing_secrets, now, timedelta(seconds=source.tolerance)):
            raise BadSignatureError(_explain_refusal(source, headers, body, signing_secrets, now))
        return self._take(source, headers, body)

    def take(self, name: str, body: bytes) -> Receipt:
        """Store what the shop's own API has reported, as if it had been delivered."""
        return self._take(self.get(name), {}, body)

    def _take(self, source: Source, headers: Mapping[str, str], body: bytes) -> Receipt:
        digest, shop = hashlib.sha256(body).hexdigest(), SHOPS[source.kind]
        try:
            delivery = shop.read(headers, body, ReadOptions(source.renewal_field))
            _check_delivery(delivery)
        except UnreadableDeliveryError as problem:
            hint = "" if ROWS[source.kind].is_own else _NEW_VERSION
            # Under its id where that is signed, so that the same delivery replaces it once it can be read.
            named = headers.get(DELIVERY_HEADER) if shop.HEADER == STANDARD_HEADER else None
            delivery = Delivery(named if _is_id(named) else digest, "", reason=f"{problem}{hint}")
            return self._store(source, delivery, DEAD)
        if not _is_id(delivery.id):
            delivery = delivery._replace(id=digest)
        if delivery.is_test is not None and delivery.is_test is not source.is_test:
            reason = _TEST_ON_LIVE if delivery.is_test else _LIVE_ON_TEST
            delivery = delivery._replace(facts=(), reason=reason)
        return self._store(source, delivery, WAITING if delivery.facts else IGNORED, digest)

    def _store(self, source: Source, delivery: Delivery, state: str, digest: str = "") -> Receipt:
        """Store a delivery; `digest` is that under which the same body was stored if it could not be read."""
        delivery = delivery._replace(facts=tuple(PersonalDataService(self._context).rename(delivery.facts)))
        now, reason, note = self._context.now(), to_line(delivery.reason), to_line(delivery.note)
        content = dump_content(delivery.facts, note=note) if delivery.facts else None
        with self._context.transaction() as tx:
            sales = tx.repositories.sales
            was_unreadable = sales.remove_unreadable(source.name, {delivery.id or "", digest})
            event_id = sales.add_event(
                source.name,
                delivery.id or "",
                now,
                type=delivery.type,
                content=content,
                object=next((link for fact in delivery.facts for link in links_of(fact)), None),
                state=state,
                reason=reason or None,
                finished_at=None if state == WAITING else now,
            )
            if event_id is None:
                return Receipt("duplicate")
            if state == WAITING:
                tx.repositories.queue.add(QUEUE, f"{source.name}:{delivery.id}", {"event": event_id}, now)
            if state == DEAD or was_unreadable:
                ProblemService(tx).update_unreadable(source.name)
        return Receipt({WAITING: "accepted", DEAD: "unreadable"}.get(state, state), reason or note)

    def list_events(
        self, name: str, state: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[StoredEvent]:
        """Return a page of what a source has delivered, the latest first."""
        self.get(name)
        if state is not None and state not in FILTERS:
            raise InvalidInputError(f"a state is one of {', '.join(FILTERS)}")
        return page_by_id(partial(self._context.repositories.sales.list_events, name, state), cursor, limit)

    def answer(self, problem_id: int, answer: str) -> None:
        """Answer what a person was asked, and process the deliveries of the sale again."""
        with self._context.transaction() as tx:
            problem = ProblemService(tx).answer(problem_id, answer)
            if problem.object == UNREADABLE:
                tx.repositories.sales.ignore_unreadable(problem.source)
            else:
                self._process_again(tx, problem.source, [problem.object])

    def map_and_go_on(self, problem_id: int, external_id: str, slug: str | None, **terms: Any) -> None:
        """Map what a problem names, and process all deliveries again that wait for it."""
        with self._context.transaction() as tx:
            problem, sales = ProblemService(tx).get(problem_id), tx.repositories.sales
            SourceService(tx).map(problem.source, external_id, slug, **terms)
            waiting = [other.object for other in sales.list_waiting(problem.source, external_id)]
            self._process_again(tx, problem.source, [problem.object, *waiting])

    def count_waiting(self, name: str, external_id: str) -> int:
        """Count the sales that wait for the mapping of an id."""
        waiting = self._context.repositories.sales.list_waiting(name, external_id)
        return len({problem.object for problem in waiting})

    def process_waiting(self, name: str, external_id: str) -> None:
        """Process the sales again that wait for the mapping of an id."""
        with self._context.transaction() as tx:
            waiting = tx.repositories.sales.list_waiting(name, external_id)
            self._process_again(tx, name, [problem.object for problem in waiting])

    def _process_again(self, tx: Context, source: str, objects: Sequence[str]) -> None:
        """Let the contracts of some objects be brought to what they should be."""
        sales = tx.repositories.sales
        for object_ in dict.fromkeys(objects):
            dead = sales.list_dead(source, sales.load_contract(source, [object_])[1] | {object_})
            if dead:
                SourceService(tx).replay(dead[-1].id)
                continue
            delivery = f"answer:{secrets.token_hex(8)}"
            values = {"type": "answer of a person", "object": object_, "state": WAITING}
            content = dump_content([], [object_])
            event_id = sales.add_event(source, delivery, tx.now(), content=content, **values)
            tx.repositories.queue.add(QUEUE, f"{source}:{delivery}", {"event": event_id}, tx.now())

    def replay(self, event_id: int) -> StoredEvent:
        """Process a delivery again, for example after its product was mapped; nothing is done twice."""
        with self._context.transaction() as tx:
            sales, now = tx.repositories.sales, tx.now()
            event = sales.find_event(event_id)
            if event is None:
                raise NotFoundError(
                    f"there is no delivery {event_id}; `licserver source events` shows their ids"
                )
            if event.content is None:
                raise InvalidInputError(
                    f"delivery {event_id} cannot be repeated, because it was ignored or unreadable; "
                    "have the shop send it again"
                )
            sales.set_event(event_id, WAITING, None, None)
            job = sales.find_job(event)
            if job is None:  # swept
                tx.repositories.queue.add(QUEUE, event.job_key, {"event": event_id}, now)
            else:
                tx.repositories.queue.revive(QUEUE, [job], now)
            tx.write_audit("source.replay", ("source", event.source), event=event_id)
        return event._replace(state=WAITING, reason=None)


def _is_id(text: str | None) -> TypeGuard[str]:
    """Return whether a delivery can be stored under this id."""
    return text is not None and 0 < len(text) <= MAX_INDEXED and is_printable(text)


def read_secrets(source: Source) -> dict[str, str]:
    """Return the secrets of a source that the environment has now, by their variables."""
    by_variable = {name: os.environ.get(name, "").strip() for name in source.secret_env.split(",")}
    return {name: secret for name, secret in by_variable.items() if len(secret) >= _MIN_SECRET}


def missing_variables(source: Source) -> list[str]:
    """Return the names of variables that hold no secret."""
    secrets = read_secrets(source)
    return [name for name in source.secret_env.split(",") if name not in secrets]


def describe_secret(source: Source) -> str:
    """Return which secret a source needs: the shop's, or of a shop that signs nothing the vendor's own."""
    if SHOPS[source.kind].HEADER:
        return "the signing secret that the shop shows for this webhook"
    return "a secret of your own, such as `openssl rand -hex 20` prints"


def describe_odd_secrets(source: Source) -> str:
    """Return which variable holds something else than a signing secret, such as an API key; empty if none."""
    row = ROWS[source.kind]
    odd = [name for name, secret in read_secrets(source).items() if not row.is_secret(secret)]
    return f"{', '.join(odd)} holds no signing secret of {row.name}: it must {row.secret_form}" if odd else ""


def _explain_refusal(
    source: Source, headers: Mapping[str, str], body: bytes, secrets: list[str], now: datetime
) -> str:
    """Return why a delivery that is not verified is refused, and what to do, for the log."""
    shop = SHOPS[source.kind]
    if shop.HEADER and shop.HEADER not in headers:
        return f"it has no header {shop.HEADER}; is this a shop of another kind than {source.kind}?"
    if not shop.HEADER:
        return f"its address does not end with ?secret= and the secret in {source.secret_env}"
    if shop.verify(headers, body, secrets, now, timedelta.max):
        return f"it was signed {source.tolerance} s ago or earlier, or ahead of this machine's clock; use NTP"
    return describe_odd_secrets(source) or (
        f"it is not signed with the secret in {source.secret_env}; copy the one that the shop shows for this "
        "webhook (test and live mode have different ones), and restart the server"
    )


def _find(context: Context, name: str, *, locked: bool = False) -> Source:
    source = context.repositories.sales.find_source(name, locked=locked) if is_slug(name) else None
    if source is None:
        raise NotFoundError("there is no such source; `licserver source list` shows all")
    return source


def _check(source: Source) -> None:
    meanings = [*map(str, OrderState)]
    if wrong := [meaning for meaning in source.states.values() if meaning not in meanings]:
        raise InvalidInputError(
            f"{wrong[0]!r} is not a valid meaning of a state; choose from {', '.join(meanings)}"
        )
    for text in (*source.states, *filter(None, [source.renewal_field])):
        check_line("a state or field of the shop", text, MAX_INDEXED)
    if source.url is not None and not _is_address(source.url):
        raise InvalidInputError("the shop's address must look like https://shop.example.com")
    if source.url is not None and not may_get_key(source.url):
        raise InvalidInputError(
            "the shop's address must begin with https://, because the API key is sent to it"
        )
    if source.changes not in CHANGES:
        raise InvalidInputError(f"changes are one of {', '.join(CHANGES)}")
    if not 1 <= source.tolerance <= MAX_TOLERANCE:
        raise InvalidInputError(f"the tolerance must be from 1 to {MAX_TOLERANCE} seconds")
    if not 0 <= source.grace_days <= MAX_GRACE:
        raise InvalidInputError(f"the grace must be from 0 to {MAX_GRACE} days")


def may_get_key(url: str) -> bool:
    """Return whether an API key may be sent to an address: encrypted, or to this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    address = parse_ip(host)
    is_loopback = host == "localhost" if address is None else address.is_loopback
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"https", "http"} and bool(parts.hostname) and is_printable(url)
    except ValueError:
        return False


def _read_states(kind: ShopKind, states: Mapping[str, str]) -> dict[str, str]:
    """Return the meanings of states by their names in deliveries."""
    prefix = ROWS[kind].state_prefix
    return {name.removeprefix(prefix): meaning for name, meaning in states.items()}


def _read_variables(text: str) -> str:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if _VARIABLE.fullmatch(name) is None:  # not quoted: it may be the secret itself
            raise InvalidInputError(
                "the secret is given by the name of an environment variable in capital letters, such as "
                "SHOP_SECRET; several are separated by commas"
            )
        if name.startswith("LICSERVER_"):
            raise InvalidInputError("names that begin with LICSERVER_ are settings; choose another one")
    return ",".join(dict.fromkeys(names))


def _check_delivery(delivery: Delivery) -> None:
    """Refuse ids that cannot be stored."""
    if any(not links_of(fact) for fact in delivery.facts if isinstance(fact, Lines)):
        raise UnreadableDeliveryError("lines of an order or a subscription without an id")
    for text in (delivery.type, *(id_ for fact in delivery.facts for id_ in _find_ids(fact))):
        if not is_printable(text) or len(text) > MAX_OBJECT:
            raise UnreadableDeliveryError(f"an id must be one line of at most {MAX_INDEXED} characters")


def _find_ids(fact: Fact) -> list[str]:
    ids = [*key_of(fact), *links_of(fact)]
    if isinstance(fact, Lines):
        for line in fact.lines:
            ids += [*line.external_ids, *filter(None, (line.id, line.item_id, line.sold))]
    return ids
