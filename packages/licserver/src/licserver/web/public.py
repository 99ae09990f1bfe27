"""The specified endpoints: `wire` reads, the desk loads, `rules` judges, `wire` answers."""

import asyncio
import re
from functools import lru_cache

from aiohttp import web

from licserver import rules, wire
from licserver.clock import Clock
from licserver.desk import Desk
from licserver.environment import connection_ip, normalise_ip, parse_ip
from licserver.manifest import to_header
from licserver.model import Environment, License
from licserver.rotation import LinkRing
from licserver.rules import Offer, Valid, VerifyVerdict
from licserver.settings import Settings
from licserver.signing import LinkSubject, sign_link
from licserver.store import Claim, Sighting, UpdateAsk
from licserver.vault import Vault
from licserver.web.errors import send

_HOST = re.compile(r"([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
_NO_ADDRESS = "0.0.0.0"  # noqa: S104 - stands for none; nobody listens there


class PublicEndpoints:
    """Verify and update check.

    Args:
        desk: Loads and admits.
        vault: Turns keys into ids.
        links: Knows which secret signs links.
        settings: Whom to believe, and how long to wait.
        clock: Every decision's `now`.
    """

    def __init__(self, desk: Desk, vault: Vault, links: LinkRing, settings: Settings, clock: Clock) -> None:
        self._desk = desk
        self._vault = vault
        self._links = links
        self._settings = settings
        self._clock = clock
        self._environment_ip = lru_cache(maxsize=65536)(self._read_environment_ip)

    async def verify(self, request: web.Request) -> web.Response:
        """Answer whether a key is valid here (spec 4.1)."""
        call = wire.parse_verify(await self.read_body(request))
        if isinstance(call, wire.Invalid):
            return send(wire.answer_invalid_verify(call))
        environment = Environment(call.domain, self._caller_ip(request))
        return send(wire.answer_verify(await self._judge(call.license_key, environment)))

    async def _judge(self, key: str, environment: Environment) -> VerifyVerdict:
        """Judge on what is stored, and again on the locked record when a slot would be taken (D-08)."""
        now = self._clock()

        def judge(license_: License | None) -> VerifyVerdict:
            return rules.judge_verify(key, license_, environment, now)

        if not rules.has_key_shape(key):  # no need to look it up; judged all the same, in one place
            return judge(None)
        sighting = Sighting(self._vault.license_id(key), environment)
        verdict = judge(await self._desk.look_up(sighting))
        if isinstance(verdict, Valid) and verdict.takes_slot:
            return await self._desk.admit(Claim(sighting, judge, now))
        return verdict

    async def update_check(self, request: web.Request) -> web.Response:
        """Answer what the latest version is, with a link while support lasts (spec 4.2)."""
        call = wire.parse_update_check(request.rel_url.raw_query_string)
        if isinstance(call, wire.Invalid):
            return send(wire.answer_invalid_update(call))
        now = self._clock()
        key = call.license_key
        license_id = self._vault.license_id(key) if rules.has_key_shape(key) else None
        license_, product = await self._desk.look_up_update(UpdateAsk(license_id, call.slug))
        verdict = rules.judge_update(license_, product, now)
        link = None
        if isinstance(verdict, Offer) and verdict.downloadable:
            subject = LinkSubject(verdict.license.id, verdict.release.id)
            base = self.base_url(request) + wire.DOWNLOAD_PATH
            link = sign_link(base, subject, self._links.signer(now), now)
        response = send(wire.answer_update(verdict, link))
        if isinstance(verdict, Offer) and verdict.release.manifest is not None:
            response.headers[wire.MANIFEST_HEADER] = to_header(verdict.release.manifest)
        return response

    async def read_body(self, request: web.Request) -> bytes:
        """Read the body; `client_max_size` bounds its length and the settings its time (D-11)."""
        if request.content.is_eof():  # it came with the headers: nothing to wait for
            return await request.read()
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                return await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None

    def _caller_ip(self, request: web.Request) -> str:
        """The connection's address, behind the trusted proxies if there are any (D-05)."""
        peername = request.transport.get_extra_info("peername") if request.transport else None
        peer = peername[0] if peername else _NO_ADDRESS
        if not self._settings.trusted_proxies:
            return self._environment_ip(peer)
        return self._environment_ip(peer, *request.headers.getall("X-Forwarded-For", ()))

    def _read_environment_ip(self, peer: str, *forwarded: str) -> str:
        believed = connection_ip(peer.partition("%")[0], forwarded, self._settings.trusted_proxies)
        address = parse_ip(believed)
        return normalise_ip(address, self._settings.ipv6_prefix) if address else _NO_ADDRESS

    def base_url(self, request: web.Request) -> str:
        """Where customers reach us: the setting; the caller's words only while there is none (D-30)."""
        if self._settings.base_url:
            return self._settings.base_url
        if _HOST.fullmatch(request.host) is None:
            raise web.HTTPBadRequest
        return f"{request.scheme}://{request.host}"
