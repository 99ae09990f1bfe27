"""The public endpoints: `protocol.public_api` parses and formats, `domain.decisions` decides.

Verify and update check, which are signed on request, and health. `customer_api` and
`downloads` have the others.
"""

import asyncio
import functools
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from licserver.clock import Clock
from licserver.database.hot_path.activations import ActivationRequest
from licserver.database.hot_path.batcher import PublicQueries
from licserver.database.hot_path.lookups import Lookup
from licserver.database.hot_path.updates import UpdateQuery
from licserver.domain import decisions
from licserver.domain.decisions import (
    Offer,
    UpdateRefusal,
    UpdateVerdict,
    Valid,
    VerifyRefusal,
    VerifyVerdict,
)
from licserver.domain.offers import Installation, apply_rollout, is_for_all
from licserver.domain.records import Environment, LicenseSnapshot, Machine
from licserver.errors import StoreUnavailableError
from licserver.limits import MAX_FIELD_CHARS, MAX_PUBLIC_BODY_BYTES
from licserver.protocol import public_api
from licserver.protocol.downloads import LinkSubject, sign_link
from licserver.protocol.ed25519_keys import SigningKey
from licserver.protocol.release_manifests import to_header
from licserver.protocol.response_signatures import (
    AcceptSignatureReader,
    SignedRequest,
    matches_digest,
    normalise_base_url,
    sign_response,
)
from licserver.runtime.customer_threads import CustomerThreads
from licserver.security.key_vault import KeyVault
from licserver.security.link_secrets import LinkSecrets
from licserver.security.redaction import mask_machine
from licserver.services.moves import MoveService
from licserver.settings import Settings
from licserver.web.client_addresses import ClientAddress, ClientAddresses
from licserver.web.middlewares import DRAIN
from licserver.web.rate_limits import MISS_DELAY, RateLimiter, Write
from licserver.web.responses import (
    CONTENT_TYPE,
    WholeResponse,
    send,
    send_continue,
    send_too_many,
    send_unavailable,
)
from licserver.web.statistics import StatisticsCounter

_TOO_MANY: Final = 429
_TOO_MANY_NEW: Final = (
    "This license was activated on too many new computers today; wait as Retry-After states, or ask support."
)
TOO_MANY_WRITES: Final = (
    "This license, or this address, had too many changes within a minute; wait as Retry-After states."
)
_READY_TIMEOUT: Final = 1.5  # seconds in which the database must answer
_HOST: Final = re.compile(r"([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")

QUERIES = web.AppKey("queries", PublicQueries)

_log = logging.getLogger("licserver.web")


class AnswerSigner:
    """Signs the responses of a handler to requests with ``Accept-Signature``, if a key is active."""

    def __init__(
        self,
        keys: Sequence[SigningKey],
        clock: Clock,
        read_body: Callable[[web.Request], Awaitable[bytes]],
        base_url: Callable[[web.Request], str],
    ) -> None:
        self._keys = [key for key in keys if key.retired_at is None]
        self._read_header = AcceptSignatureReader(self._keys)
        self._clock = clock
        self._read_body = read_body
        self._base_url = base_url
        self._normal_base = functools.lru_cache(maxsize=64)(normalise_base_url)

    def signing(self, handler: Handler) -> Handler:
        """Return a handler that signs what `handler` returns.

        What it raises is no verdict (too large, too slow, no database) and is not signed. If signing fails,
        the client gets a 500 and never the unsigned response.
        """
        if not self._keys:
            return handler

        @functools.wraps(handler)
        async def signing_handler(request: web.Request) -> web.StreamResponse:
            if "Accept-Signature" not in request.headers:
                return await handler(request)
            return await self._sign(request, handler)

        return signing_handler

    async def _sign(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        requested = self._read_header(", ".join(request.headers.getall("Accept-Signature")))
        digest = ", ".join(request.headers.getall("Content-Digest", ()))
        # Nothing to sign, or nothing that can be signed: as if there were no such header.
        if requested is None or not 0 < len(digest) <= MAX_FIELD_CHARS or not request.raw_path.isascii():
            return await handler(request)
        # Before the handler: a request that contradicts its digest must not take a slot.
        if not matches_digest(digest, await self._read_body(request)):
            return send(
                public_api.error_response(
                    400, "bad_digest", "The Content-Digest is not that of the request's body."
                )
            )
        signed_request = SignedRequest(
            request.method, self._normal_base(self._base_url(request)) + request.raw_path, digest
        )
        response = await handler(request)
        if not isinstance(response, WholeResponse):
            raise TypeError("only a WholeResponse can be signed")
        if response.status == _TOO_MANY:  # no verdict
            return response
        response.headers.update(
            sign_response(
                requested, signed_request, response.status, CONTENT_TYPE, response.content, self._clock()
            )
        )
        return response


@dataclass(frozen=True, slots=True)
class PublicEndpoints:
    """Verify and update check, and what other public endpoints share with them."""

    queries: PublicQueries
    vault: KeyVault
    links: LinkSecrets
    settings: Settings
    clock: Clock
    settle: Callable[[datetime], datetime]  # what cannot be undone goes by this instant
    callers: ClientAddresses
    rate_limiter: RateLimiter
    statistics: StatisticsCounter
    moves: MoveService
    threads: CustomerThreads

    async def verify(self, request: web.Request) -> web.StreamResponse:
        """Respond whether a key is valid in this environment (spec 4.1)."""
        call = public_api.parse_verify(await self.read_body(request))
        began = time.monotonic()
        if isinstance(call, public_api.InvalidRequest):
            return await self.rate_limiter.respond_to_miss(request, public_api.invalid_verify_response(call))
        caller = self.callers.find(request)
        environment = Environment(call.domain, caller.ip)
        key, now = call.license_key, self.clock()

        def decide(license_: LicenseSnapshot | None) -> VerifyVerdict:
            return decisions.evaluate_verify(key, license_, environment, now)

        lookup = license_ = None
        machine = call.machine and mask_machine(call.machine, key)
        if self.rate_limiter.refuses_guess(request, key, call.domain):
            return send_too_many(MISS_DELAY)
        is_imported = not decisions.is_license_key(key)
        if not is_imported or decisions.is_imported_key(key):
            lookup = Lookup(self.vault.license_id(key), environment)
            license_ = await self.queries.find_license(lookup)
            verdict = decide(license_)
            if isinstance(verdict, Valid) and verdict.takes_slot:  # decided again on the locked record
                if (too_many := self._find_delay(verdict.license, caller)) is not None:
                    return send_too_many(*too_many)
                self.callers.look_for_a_proxy(request)
                verdict = await self.queries.activate(ActivationRequest(lookup, decide, now, machine), began)
            if verdict is VerifyRefusal.ENVIRONMENT and license_ is not None:
                verdict = await self._try_idle_slot(license_, key, environment, caller, machine)
        else:
            verdict = decide(None)  # no lookup; the same rule decides
        product_id = None if license_ is None else license_.product_id
        self.statistics.count_verify(verdict, lookup, product_id, now.date(), machine)
        response = public_api.verify_response(verdict)
        if not isinstance(verdict, VerifyRefusal):
            self.rate_limiter.note_valid(caller.counted, call.domain, key if is_imported else None)
        elif verdict in decisions.MISSES:
            return await self.rate_limiter.respond_to_miss(request, response, call.domain)
        return send(response)

    def _find_delay(self, license_: LicenseSnapshot, caller: ClientAddress) -> tuple[int, str] | None:
        """Return how many seconds a new activation has to wait, and why; None if it has not."""
        slots = license_.slots
        if slots is None and (delay := self.rate_limiter.count_activation(license_.id)):
            return delay, _TOO_MANY_NEW
        write = Write(None) if slots is None else Write(license_.id, slots)
        if delay := self.rate_limiter.count_write(write, caller):
            return delay, TOO_MANY_WRITES
        return None

    async def _try_idle_slot(
        self,
        license_: LicenseSnapshot,
        key: str,
        environment: Environment,
        caller: ClientAddress,
        machine: Machine | None,
    ) -> VerifyVerdict:
        """Verify an environment for which no slot is free, where products give away those of idle computers.

        Beyond the budget of writes it stays refused.
        """
        write = Write(license_.id, license_.slots or 0)
        if not license_.idle_days or self.rate_limiter.count_write(write, caller):
            return VerifyRefusal.ENVIRONMENT
        return await self.threads.run(key, self.moves.take_idle_slot, key, environment, machine)

    async def update_check(self, request: web.Request) -> web.StreamResponse:
        """Respond with the latest version, and a download link while support lasts (spec 4.2)."""
        call = public_api.parse_update_check(request.rel_url.raw_query_string)
        if isinstance(call, public_api.InvalidRequest):
            return await self.rate_limiter.respond_to_miss(request, public_api.invalid_update_response(call))
        now = self.clock()
        if self.rate_limiter.refuses_guess(request, call.license_key, call.domain):
            return send_too_many(MISS_DELAY)
        verdict = await self.evaluate_update_check(call, now)
        if isinstance(verdict, Offer) and not is_for_all(verdict):
            installation = Installation(call.domain, call.current_version, call.is_manual)
            verdict = apply_rollout(verdict, installation, self.settle(now))  # an offer is not undone
        self.statistics.count_update_check(verdict, call.current_version)
        link = self.sign_link(request, verdict, now)
        response = public_api.update_response(verdict, link, call.current_version, call.kind)
        if isinstance(verdict, UpdateRefusal):
            if verdict in decisions.MISSES:
                return await self.rate_limiter.respond_to_miss(request, response, call.domain)
        elif verdict.release.manifest is not None:
            return send(response, {public_api.MANIFEST_HEADER: to_header(verdict.release.manifest)})
        return send(response)

    async def evaluate_update_check(self, call: public_api.UpdateRequest, now: datetime) -> UpdateVerdict:
        """Decide what the license of an update check is offered, before any rollout."""
        key = call.license_key
        imported = not decisions.is_license_key(key)
        is_key = not imported or decisions.is_imported_key(key)
        license_id = self.vault.license_id(key) if is_key else None
        license_, product = await self.queries.find_update(
            UpdateQuery(license_id, call.slug, call.platform, call.channels, call.kind)
        )
        return decisions.evaluate_update(
            license_, product, now, imported=imported, installed=call.current_version
        )

    def sign_link(self, request: web.Request, verdict: UpdateVerdict, now: datetime) -> str | None:
        """Return the link to download what is offered; None if it may not be downloaded."""
        if not isinstance(verdict, Offer) or not verdict.downloadable:
            return None
        subject = LinkSubject(verdict.license.id, verdict.release.id)
        base = self.base_url(request) + public_api.DOWNLOAD_PATH
        return sign_link(base, subject, self.links.current(now), now)

    async def read_body(self, request: web.Request) -> bytes:
        """Read the body, which can be read once; `keep_body` lets others read it again."""
        content = request.content
        if not content.is_eof() or content.at_eof():
            return await self.keep_body(request)
        body = content.read_nowait()  # it arrived with the headers
        if len(body) > MAX_PUBLIC_BODY_BYTES:
            raise web.HTTPRequestEntityTooLarge(MAX_PUBLIC_BODY_BYTES, len(body))
        return body

    async def keep_body(self, request: web.Request) -> bytes:
        """Read the body within the time limit, and keep it for further reads."""
        if request.content.is_eof():
            return await request.read()  # it arrived with the headers; `client_max_size` bounds its length
        await send_continue(request)
        try:
            async with asyncio.timeout(self.settings.body_timeout):
                return await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None

    def base_url(self, request: web.Request) -> str:
        """Return the public address: the setting, or without one what the request names."""
        if self.settings.base_url:
            return self.settings.base_url
        host = request.host
        if not _is_host(host):
            raise web.HTTPBadRequest
        return f"{request.scheme}://{host}"


@functools.lru_cache(maxsize=64)
def _is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None


# --- health -----------------------------------------------------------------------------------


async def healthz(_request: web.Request) -> web.StreamResponse:
    """Respond that the process runs."""
    return send(public_api.json_response(200, {"status": "ok"}))


async def readyz(request: web.Request) -> web.StreamResponse:
    """Respond whether to send requests here: not without a database, and not while shutting down."""
    drain = request.app[DRAIN]
    if drain.active or drain.not_ready[0]:
        return send_unavailable()
    if fault := await find_database_fault(request.app):
        _log.warning("not ready: %s", fault)
        return send_unavailable()
    return send(public_api.json_response(200, {"status": "ready"}))


async def find_database_fault(app: web.Application) -> str | None:
    """Return why the database cannot be used now; None if it responds in time."""
    try:
        async with asyncio.timeout(_READY_TIMEOUT):
            await app[QUERIES].ping()
    except StoreUnavailableError as problem:
        return str(problem)
    except TimeoutError:
        return f"the database did not answer within {_READY_TIMEOUT} s"
    return None
