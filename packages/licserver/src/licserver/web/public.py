"""The specified endpoints: `wire` reads, the desk loads, `rules` judges, `wire` answers."""

import asyncio
import re

from aiohttp import web

from licserver import rules, wire
from licserver.environment import connection_ip, normalise_ip, parse_ip
from licserver.model import Environment, License
from licserver.rules import Offer, Valid, VerifyVerdict
from licserver.signing import LinkSubject, sign_link
from licserver.store import Claim, Sighting, UpdateAsk
from licserver.web.errors import send
from licserver.web.state import CLOCK, DESK, SETTINGS, VAULT

_HOST = re.compile(r"([A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")


async def verify(request: web.Request) -> web.Response:
    """Answer whether a key is valid here (spec 4.1)."""
    call = wire.parse_verify(await _read_body(request))
    if isinstance(call, wire.Invalid):
        return send(wire.answer_invalid_verify(call))
    environment = Environment(call.domain, _caller_ip(request))
    return send(wire.answer_verify(await _judge(request.app, call.license_key, environment)))


async def _judge(app: web.Application, key: str, environment: Environment) -> VerifyVerdict:
    """Judge on what is stored, and once more on the locked record when a slot would be taken (D-08)."""
    now = app[CLOCK]()

    def judge(license_: License | None) -> VerifyVerdict:
        return rules.judge_verify(key, license_, environment, now)

    if not rules.has_key_shape(key):  # no need to look it up; judged all the same, in one place
        return judge(None)
    sighting = Sighting(app[VAULT].license_id(key), environment)
    verdict = judge(await app[DESK].look_up(sighting))
    if isinstance(verdict, Valid) and verdict.takes_slot:
        return await app[DESK].admit(Claim(sighting, judge, now))
    return verdict


async def update_check(request: web.Request) -> web.Response:
    """Answer what the latest version is, with a link while support lasts (spec 4.2)."""
    call = wire.parse_update_check(request.rel_url.raw_query_string)
    if isinstance(call, wire.Invalid):
        return send(wire.answer_invalid_update(call))
    app = request.app
    now = app[CLOCK]()
    license_id = app[VAULT].license_id(call.license_key) if rules.has_key_shape(call.license_key) else None
    license_, product = await app[DESK].look_up_update(UpdateAsk(license_id, call.slug))
    verdict = rules.judge_update(license_, product, now)
    link = None
    if isinstance(verdict, Offer) and verdict.downloadable:
        subject = LinkSubject(verdict.license.id, verdict.release.id)
        link = sign_link(_base_url(request) + wire.DOWNLOAD_PATH, subject, app[VAULT].link_secrets[0], now)
    return send(wire.answer_update(verdict, link))


async def healthz(_request: web.Request) -> web.Response:
    """Say that the process runs; nothing is asked of the database."""
    return send(wire.Answer(200, {"status": "ok"}))


async def _read_body(request: web.Request) -> bytes:
    """Read the body, of which `client_max_size` bounds the length and the settings the time (D-11)."""
    try:
        async with asyncio.timeout(request.app[SETTINGS].body_timeout):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


def _caller_ip(request: web.Request) -> str:
    """The connection's address, behind the trusted proxies if there are any (D-05)."""
    settings = request.app[SETTINGS]
    peer = (request.transport.get_extra_info("peername") if request.transport else None) or ("0.0.0.0",)  # noqa: S104 - no address, not a listener
    forwarded = request.headers.getall("X-Forwarded-For", [])
    address = parse_ip(connection_ip(peer[0].partition("%")[0], forwarded, settings.trusted_proxies))
    return normalise_ip(address, settings.ipv6_prefix) if address else "0.0.0.0"  # noqa: S104 - the same


def _base_url(request: web.Request) -> str:
    """Where customers reach us: the setting; the request's own words only while there is none (D-30)."""
    if set_by_vendor := request.app[SETTINGS].base_url:
        return set_by_vendor
    if _HOST.fullmatch(request.host) is None:
        raise web.HTTPBadRequest
    return f"{request.scheme}://{request.host}"
