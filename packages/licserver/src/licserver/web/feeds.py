"""Feeds for apps with another updater; each request is evaluated as an update check (D-213)."""

import hashlib
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs, web

from licserver.domain import decisions
from licserver.domain.decisions import Offer, UpdateRefusal, UpdateVerdict, is_covered
from licserver.domain.offers import (
    Installation,
    ListedRelease,
    OfferedProduct,
    apply_rollout,
    evaluate_public_feed,
    list_releases,
)
from licserver.domain.records import FileKind
from licserver.protocol import feeds, public_api
from licserver.protocol.downloads import is_unmodified
from licserver.protocol.public_api import UpdateRequest, parse_query
from licserver.web.public import PublicEndpoints
from licserver.web.rate_limits import MISS_DELAY
from licserver.web.responses import ApiError, send, send_content


@dataclass(frozen=True, slots=True)
class Feeds:
    """Handlers of the feeds for other updaters."""

    public: PublicEndpoints

    async def tauri(self, request: web.Request) -> web.StreamResponse:
        """Respond to Tauri's updater with what is newer, or with nothing."""
        path = request.match_info
        platform = feeds.read_tauri_platform(path["target"], path["arch"])
        call = self._parse(request, platform, version=path["version"])
        verdict = await self._offer(call)
        if isinstance(verdict, Offer):
            link = self.public.sign_link(request, verdict, self.public.clock())
            update = link and feeds.format_tauri_update(verdict, call.current_version, link)
            return send(update) if update else _send_nothing()
        if verdict is UpdateRefusal.NO_VERSIONS:
            return _send_nothing()
        return await self._refuse(request, call, verdict)

    async def appcast(self, request: web.Request) -> web.StreamResponse:
        """Respond to Sparkle with a list to choose from, and to WinSparkle with what it may have."""
        call, now = self._parse(request, feeds.SPARKLE_PLATFORM), self.public.clock()
        verdict, installation = await self._evaluate(call)
        listed: list[tuple[ListedRelease, str]] = []
        knows_choices = feeds.WINSPARKLE not in request.headers.get(hdrs.USER_AGENT, "")
        if isinstance(verdict, Offer) and verdict.downloadable:
            offered = await self.public.queries.find_releases(call.slug)
            for release in list_releases(
                verdict,
                offered or OfferedProduct(verdict.product, ()),
                call.channels,
                call.platform,
                installation,
                self.public.settle(now),
                call.kind,
            ):
                if knows_choices or feeds.is_for_all(release):
                    link = self.public.sign_link(request, verdict._replace(release=release.release), now)
                    listed.append((release, link or ""))
        elif not isinstance(verdict, Offer) and verdict is not UpdateRefusal.NO_VERSIONS:
            return await self._refuse(request, call, verdict)
        name = verdict.product.name if isinstance(verdict, Offer) else call.slug
        return send_content(200, feeds.format_appcast(name, listed), feeds.SPARKLE_TYPE)

    async def velopack(self, request: web.Request) -> web.StreamResponse:
        """Respond to Velopack with a feed, or lead it to a package."""
        name = feeds.read_velopack_index(request.match_info["name"])
        if name is None:
            return await self._send_package(request)
        query = parse_query(request.rel_url.raw_query_string)
        channel, platform = feeds.read_velopack_channel(name, query.get("os", ""), query.get("arch", ""))
        installed, domain = query.get("localVersion", ""), query.get("stagingId", "")
        which = {"version": installed, "domain": domain, "channel": channel}
        call = self._parse(request, platform, kind=FileKind.FOLDER, **which)
        verdict = await self._offer(call)
        if isinstance(verdict, Offer):
            return _send_tagged(request, feeds.format_velopack_feed(verdict))
        if verdict is UpdateRefusal.NO_VERSIONS:
            return _send_tagged(request, feeds.format_velopack_feed(None))
        return await self._refuse(request, call, verdict)

    async def _send_package(self, request: web.Request) -> web.StreamResponse:
        """Redirect to a signed link, if the license may have the package.

        The license is evaluated before releases are read: a request without one must not cause that (D-299).
        """
        slug, name = request.match_info["slug"], request.match_info["name"]
        call, package = self._parse(request, ""), None
        verdict, _ = await self._evaluate(call)
        if isinstance(verdict, Offer) or verdict in _MAY_HAVE_PACKAGES:
            offered = await self.public.queries.find_releases(slug)
            package = feeds.find_velopack_package(offered.releases if offered else (), name)
        if package is not None:  # the offer depends on platform and channel
            # Velopack sends no installed version with this request: a fix is for any of its major.
            lowest = feeds.lowest_of_major(package.version)
            call = self._parse(
                request, package.platform, version=lowest, channel=package.channel, kind=package.kind
            )
            verdict, _ = await self._evaluate(call)
        if not isinstance(verdict, Offer):
            return await self._refuse(request, call, verdict)
        if package is None or not is_covered(verdict, package):
            raise web.HTTPNotFound
        link = self.public.sign_link(request, verdict._replace(release=package), self.public.clock())
        if link is None:
            raise web.HTTPNotFound
        return web.Response(status=307, headers={hdrs.LOCATION: link, hdrs.CACHE_CONTROL: "no-store"})

    def _parse(self, request: web.Request, platform: str, **defaults: str) -> UpdateRequest:
        authorization = request.headers.get(hdrs.AUTHORIZATION, "")
        query = request.rel_url.raw_query_string
        call = feeds.parse_call(request.match_info["slug"], authorization, query, platform, **defaults)
        if self.public.rate_limiter.refuses_guess(request, call.license_key, call.domain):
            raise ApiError(429, headers={hdrs.RETRY_AFTER: str(MISS_DELAY)})
        return call

    async def _offer(self, call: UpdateRequest) -> UpdateVerdict | None:
        """Decide what an installation is offered, and count it."""
        verdict, installation = await self._evaluate(call)
        if verdict is None:
            return None
        verdict = apply_rollout(verdict, installation, self.public.settle(self.public.clock()))
        if call.current_version:
            self.public.statistics.count_update_check(verdict, call.current_version)
        return verdict

    async def _evaluate(self, call: UpdateRequest) -> tuple[UpdateVerdict | None, Installation]:
        """Decide what the caller is offered, before any rollout; None if it needs a license and sends none.

        A license that is sent counts also where none is needed. Without a domain, all copies of a license are
        one installation; without a license, they are those that a rollout reaches last.
        """
        domain, verdict = call.domain, None
        if call.license_key:
            verdict = await self.public.evaluate_update_check(call, self.public.clock())
            domain = domain or self.public.vault.license_id(call.license_key).hex()
        elif (offered := await self.public.queries.find_releases(call.slug)) and offered.product.public_feed:
            verdict = evaluate_public_feed(
                offered, call.channels, call.platform, call.current_version, call.kind
            )
        return verdict, Installation(domain, call.current_version, call.is_manual)

    async def _refuse(
        self, request: web.Request, call: UpdateRequest, refusal: UpdateRefusal | None
    ) -> web.StreamResponse:
        if refusal is None:
            return send(feeds.license_required_response())
        response = public_api.update_response(refusal, None)
        if refusal in decisions.MISSES:
            return await self.public.rate_limiter.respond_to_miss(request, response, call.domain)
        return send(response)


_MAY_HAVE_PACKAGES: Final = (UpdateRefusal.NO_VERSIONS, UpdateRefusal.LICENSE_EXPIRED)
"""Refusals of known licenses that may have another channel's package, or a security release."""


def _send_tagged(request: web.Request, response: public_api.ApiResponse) -> web.StreamResponse:
    """Respond with a feed, or that it is as it was. Other feeds have links, which end within an hour."""
    tag = f'"{hashlib.sha256(response.content).hexdigest()[:32]}"'
    if is_unmodified(request.headers.getall(hdrs.IF_NONE_MATCH, ()), tag):
        return web.Response(status=304, headers={hdrs.ETAG: tag, hdrs.CACHE_CONTROL: "no-store"})
    return send(response, {hdrs.ETAG: tag})


def _send_nothing() -> web.StreamResponse:
    return web.Response(status=204, headers={"Cache-Control": "no-store"})
