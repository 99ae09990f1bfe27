"""The admin API as a sub-application: authentication, operations, uploads, problem details (RFC 9457).

A request passes the middlewares of `web.middlewares`, then `_authenticate`, then its operation on a thread.
"""

import hashlib
import logging
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from licserver.database.repositories.tokens import IdempotencyKey, Token
from licserver.domain.environments import is_printable
from licserver.domain.offers import TO_ALL, RolloutOptions
from licserver.domain.records import NO_FIELDS, Actor, ActorKind, Scope, WordPressFields
from licserver.domain.security_notices import read_notice
from licserver.domain.wordpress import read_fields
from licserver.errors import InvalidInputError
from licserver.limits import MAX_ADMIN_BODY_BYTES, MAX_ADMIN_KEY_CHARS
from licserver.protocol import release_manifests
from licserver.runtime.logging import FailureReport
from licserver.runtime.metrics import ADMIN
from licserver.runtime.worker_threads import WorkerThreads
from licserver.services.installation import Services
from licserver.services.tokens import Response
from licserver.services.users import TOKEN_FORBIDDEN, TOKEN_REFUSED
from licserver.web.admin.fields import parse_day
from licserver.web.admin.operations import OPERATIONS, Call, Operation
from licserver.web.admin.schemas import RELEASE_FORM
from licserver.web.middlewares import ENDPOINT, ERRORS, ErrorFormat, add_not_found, add_route
from licserver.web.rate_limits import MISS_DELAY, RateLimiter
from licserver.web.responses import ApiError, read_body, respond_with_problem, send_content
from licserver.web.uploads import received

_BEARER: Final = {"WWW-Authenticate": 'Bearer realm="licserver"'}
_INSUFFICIENT: Final = {"WWW-Authenticate": 'Bearer realm="licserver", error="insufficient_scope"'}

Finish = Callable[[Services, Any, Any], Response]
"""Run an operation within a transaction, with its query and body, and return the response."""


def create_admin_api(
    services: Services, rate_limiter: RateLimiter, failures: FailureReport, threads: WorkerThreads
) -> web.Application:
    """Create the sub-application; `failures` reports refused tokens, `threads` run the operations."""
    app = web.Application()
    app[ERRORS] = ErrorFormat(logging.getLogger("licserver.admin"), respond_with_problem)
    app[ENDPOINT] = ADMIN
    api = _AdminApi(services, rate_limiter, failures, threads)
    routes: dict[str, dict[str, Handler]] = {}
    for operation, run in OPERATIONS.items():
        routes.setdefault(operation.path, {})[operation.method] = api.create_handler(operation, run)
    for path, handlers in routes.items():
        add_route(app, path, handlers)
    add_not_found(app, "", "/{anything:.*}")
    return app


class _AdminApi:
    """A factory of handlers for operations."""

    def __init__(
        self, services: Services, rate_limiter: RateLimiter, failures: FailureReport, threads: WorkerThreads
    ) -> None:
        self._services, self._rate_limiter, self._failures, self._threads = (
            services,
            rate_limiter,
            failures,
            threads,
        )

    def create_handler(self, operation: Operation, run: Callable[[Call], Any]) -> Handler:
        """Make the handler of an operation, for a token whose scope is sufficient (D-91)."""
        respond = self._publish if operation.takes_file else self._run

        async def handle(request: web.Request) -> web.StreamResponse:
            token, path = await self._authenticate(request, operation.scope), dict(request.match_info)
            services = self._services.acting_as(Actor(ActorKind.TOKEN, token.name))

            def finish(tx: Services, query: Any, body: Any) -> Response:
                result = operation.response.model_validate(run(Call(tx, path, query, body)))
                return Response(201 if operation.creates else 200, result.model_dump_json().encode())

            response = await respond(request, token, services, operation, finish)
            return send_content(response.status, response.body)

        return handle

    async def _authenticate(self, request: web.Request, scope: Scope) -> Token:
        """Return the token of a request.

        Raises:
            ApiError: 401 without a valid token, 429 after too many of those, 403 for an insufficient scope.
        """
        kind, _, text = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        is_bearer = kind.lower() == "bearer"
        token = (
            await self._threads.run(self._services.tokens.authenticate, text.strip()) if is_bearer else None
        )
        if token is None:
            if not await self._rate_limiter.count_miss(request):
                raise ApiError(429, headers={hdrs.RETRY_AFTER: str(MISS_DELAY)})
            if is_bearer:  # logged by name if the token has expired or was revoked
                name = await self._threads.run(self._services.tokens.find_refused_name, text.strip())
                self._failures.add(TOKEN_REFUSED, name, self._rate_limiter.address(request))
            raise ApiError(401, "Missing or invalid bearer token.", _BEARER)
        if scope is Scope.WRITE and token.scope is not Scope.WRITE:
            self._failures.add(TOKEN_FORBIDDEN, token.name, self._rate_limiter.address(request))
            raise ApiError(403, "This token may only read.", _INSUFFICIENT)
        return token

    async def _run(
        self, request: web.Request, token: Token, services: Services, operation: Operation, finish: Finish
    ) -> Response:
        """Run an operation that takes JSON or nothing."""
        if len(request.query) != len(set(request.query)):
            raise ApiError(422, "A query parameter is repeated. Send each parameter once.")
        query = operation.query.model_validate_strings(dict(request.query), strict=True)
        raw = await read_body(request, MAX_ADMIN_BODY_BYTES, services.settings.body_timeout)
        body = None if operation.body is None else operation.body.model_validate_json(raw or b"{}")
        key = _idempotency_key(request, token, raw) if operation.takes_key else None
        return await self._threads.run(
            _run_once, services, key, lambda: None, lambda tx, _: finish(tx, query, body)
        )

    async def _publish(
        self, request: web.Request, token: Token, services: Services, _: Operation, finish: Finish
    ) -> Response:
        """Run the operation that takes a file: it is stored before the transaction."""
        if request.query:
            raise ApiError(422, "This address takes no query parameters.")
        slug = request.match_info["slug"]
        await self._threads.run(services.products.get, slug)  # an unknown product costs no upload
        async with received(request, services.settings, self._threads, frozenset(RELEASE_FORM)) as form:
            fields = form.fields
            version, changelog = fields.get("version", ""), fields.get("changelog", "")
            signed, platform, kind, channel, rollout, critical_below = (
                fields.get(name, "").strip()
                for name in ("manifest", "platform", "kind", "channel", "rollout", "critical_below")
            )
            reach = RolloutOptions(rollout or None, critical_below or None)
            wordpress = read_fields(WordPressFields(*(fields.get(name) for name in WordPressFields._fields)))
            content = [version, changelog, signed, form.file_name, form.sha256.hex(), platform]
            content += [f"kind {kind}"] if kind else []
            content += [channel] if channel else []
            content += [str(reach)] if reach != TO_ALL else []
            content += [str(wordpress)] if wordpress != NO_FIELDS else []
            security = read_notice(
                fields.get("advisory", ""),
                fields.get("cves", "").replace(",", " ").split(),
                is_security=_read_flag("security", fields.get("security", "").strip()),
            )
            content += [] if security is None else [str(security)]
            day = fields.get("published_on", "").strip()
            published_on = _read_day("published_on", day) if day else None
            content += [f"published on {day}"] if day else []
            key = _idempotency_key(request, token, "\n".join(content).encode())
            stage = partial(
                services.releases.stage,
                slug,
                version,
                form.path,
                changelog,
                release_manifests.use_signed(signed) if signed else None,
                file_name=form.file_name,
                platform=platform,
                kind=kind,
                channel=channel,
                reach=reach,
                wordpress=wordpress,
                security=security,
                published_on=published_on,
            )
            return await self._threads.run_with_file(
                _run_once, services, key, stage, lambda tx, staged: finish(tx, None, staged)
            )


def _read_day(name: str, text: str) -> date:
    try:
        return parse_day(text)
    except ValueError:
        raise InvalidInputError(f"{name} must be a date like 2027-01-31, not {text[:40]!r}") from None


def _read_flag(name: str, text: str) -> bool:
    if text not in {"", "true", "false"}:
        raise InvalidInputError(f"{name} must be true or false, not {text[:40]!r}")
    return text == "true"


def _run_once(
    services: Services,
    key: IdempotencyKey | None,
    prepare: Callable[[], Any],
    operation: Callable[[Services, Any], Response],
) -> Response:
    """Run an operation; with an idempotency key only once, and replay its response."""
    if key is None:
        return operation(services, prepare())
    return services.run_once(key, prepare, operation).response


def _idempotency_key(request: web.Request, token: Token, content: bytes) -> IdempotencyKey | None:
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not key or len(key) > MAX_ADMIN_KEY_CHARS or not is_printable(key):
        raise ApiError(422, f"An Idempotency-Key has 1 to {MAX_ADMIN_KEY_CHARS} characters, in one line.")
    digest = hashlib.sha256(f"{request.method} {request.rel_url.raw_path}\n".encode() + content).digest()
    return IdempotencyKey(ActorKind.TOKEN, token.id, key, digest)
