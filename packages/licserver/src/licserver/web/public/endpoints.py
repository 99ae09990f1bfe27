"""Verify and update check: `protocol.public_api` parses and formats, `domain.decisions` decides."""

import asyncio
import re

from aiohttp import web

from licserver.clock import Clock
from licserver.database.hot_path.batcher import PublicQueries
from licserver.database.hot_path.store import ActivationRequest, Lookup, UpdateQuery
from licserver.domain import decisions
from licserver.domain.decisions import Offer, UpdateRefusal, Valid, VerifyRefusal, VerifyVerdict
from licserver.domain.records import Environment, LicenseSnapshot
from licserver.protocol import public_api
from licserver.protocol.download_links import LinkSubject, sign_link
from licserver.protocol.release_manifests import to_header
from licserver.security.key_vault import KeyVault
from licserver.security.rotation import LinkSecrets
from licserver.settings import Settings
from licserver.web.client_addresses import ClientAddresses
from licserver.web.errors import send_continue
from licserver.web.rate_limits import Limits
from licserver.web.responses import send
from licserver.web.statistics import StatisticsCounter

_HOST = re.compile(r"([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")


class PublicEndpoints:
    """Verify and update check.

    Args:
        queries: Loads and activates licenses.
        vault: Turns license keys into ids.
        links: Signs download links.
        settings: Time limits, and the public address.
        clock: Every decision's `now`.
        callers: Finds a client's address.
        limits: Refuses clients that guess keys.
        statistics: Counts verdicts.
    """

    def __init__(
        self,
        queries: PublicQueries,
        vault: KeyVault,
        links: LinkSecrets,
        settings: Settings,
        clock: Clock,
        callers: ClientAddresses,
        limits: Limits,
        statistics: StatisticsCounter,
    ) -> None:
        self._queries = queries
        self._vault = vault
        self._links = links
        self._settings = settings
        self._clock = clock
        self._callers = callers
        self._limits = limits
        self._statistics = statistics

    async def verify(self, request: web.Request) -> web.StreamResponse:
        """Respond whether a key is valid in this environment (spec 4.1)."""
        call = public_api.parse_verify(await self.read_body(request))
        if isinstance(call, public_api.InvalidRequest):
            return await self._limits.answer_miss(request, public_api.invalid_verify_response(call))
        caller = self._callers.find(request)
        environment = Environment(call.domain, caller.ip)
        key, now = call.license_key, self._clock()

        def decide(license_: LicenseSnapshot | None) -> VerifyVerdict:
            return decisions.evaluate_verify(key, license_, environment, now)

        lookup = None
        if decisions.is_license_key(key):
            lookup = Lookup(self._vault.license_id(key), environment)
            verdict = decide(await self._queries.find_license(lookup))
            if isinstance(verdict, Valid) and verdict.takes_slot:  # decided again on the locked record (D-08)
                self._callers.look_for_a_proxy(request)
                verdict = await self._queries.activate(ActivationRequest(lookup, decide, now))
        else:
            verdict = decide(None)  # no lookup; the same rule decides
        self._statistics.count_verify(verdict, lookup, now.date())
        response = public_api.verify_response(verdict)
        if not isinstance(verdict, VerifyRefusal):
            self._limits.note_valid(caller.counted, call.domain)
        elif verdict in decisions.MISSES:
            return await self._limits.answer_miss(request, response, call.domain)
        return send(response)

    async def update_check(self, request: web.Request) -> web.StreamResponse:
        """Respond with the latest version, and a download link while support lasts (spec 4.2)."""
        call = public_api.parse_update_check(request.rel_url.raw_query_string)
        if isinstance(call, public_api.InvalidRequest):
            return await self._limits.answer_miss(request, public_api.invalid_update_response(call))
        now = self._clock()
        key = call.license_key
        license_id = self._vault.license_id(key) if decisions.is_license_key(key) else None
        license_, product = await self._queries.find_update(UpdateQuery(license_id, call.slug))
        verdict = decisions.evaluate_update(license_, product, now)
        self._statistics.count_update_check(verdict, call.current_version)
        link = None
        if isinstance(verdict, Offer) and verdict.downloadable:
            subject = LinkSubject(verdict.license.id, verdict.release.id)
            base = self.base_url(request) + public_api.DOWNLOAD_PATH
            link = sign_link(base, subject, self._links.current(now), now)
        response = public_api.update_response(verdict, link)
        if isinstance(verdict, UpdateRefusal):
            if verdict in decisions.MISSES:
                return await self._limits.answer_miss(request, response, call.domain)
        elif verdict.release.manifest is not None:
            return send(response, {public_api.MANIFEST_HEADER: to_header(verdict.release.manifest)})
        return send(response)

    async def read_body(self, request: web.Request) -> bytes:
        """Read the body (D-11), which can be read once; `keep_body` lets others read it again."""
        content = request.content
        if not content.is_eof() or content.at_eof():
            return await self.keep_body(request)
        body = content.read_nowait()  # it arrived with the headers
        if len(body) > public_api.MAX_BODY_BYTES:
            raise web.HTTPRequestEntityTooLarge(public_api.MAX_BODY_BYTES, len(body))
        return body

    async def keep_body(self, request: web.Request) -> bytes:
        """Read the body within the time limit (D-11), and keep it for further reads."""
        await send_continue(request)
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                return await request.read()  # `client_max_size` bounds its length
        except TimeoutError:
            raise web.HTTPRequestTimeout from None

    def base_url(self, request: web.Request) -> str:
        """Return the public address: the setting, or without one what the request names (D-30)."""
        if self._settings.base_url:
            return self._settings.base_url
        if _HOST.fullmatch(request.host) is None:
            raise web.HTTPBadRequest
        return f"{request.scheme}://{request.host}"
