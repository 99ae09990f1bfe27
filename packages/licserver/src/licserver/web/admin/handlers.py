"""The way of a request through the admin API: who asks, what is asked, on to the vendor, and back."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Final

from aiohttp import hdrs, web
from pydantic import BaseModel

from licserver.database.repositories.idempotency import IdempotencyKey
from licserver.database.repositories.tokens import Token
from licserver.domain.environments import is_printable
from licserver.domain.records import Actor, ActorKind, Scope
from licserver.protocol import release_manifests
from licserver.services import Vendor
from licserver.services.idempotency import Answer
from licserver.services.logins import TOKEN_REFUSED
from licserver.web.admin import licenses as _licenses  # noqa: F401 - they add themselves to the list
from licserver.web.admin import problems, serialization
from licserver.web.admin import products as _products  # noqa: F401 - the same
from licserver.web.admin import subscriptions as _others  # noqa: F401 - the same
from licserver.web.admin.operations import OPERATIONS, Call, Operation
from licserver.web.admin.problems import ApiError, respond
from licserver.web.app_state import FAILURES, METER, Drain, Handler
from licserver.web.errors import BAD_PATH, NO_ENCODING, expect, send_continue
from licserver.web.failed_requests import FailureReport
from licserver.web.metric_counters import ADMIN, Meter
from licserver.web.rate_limits import MISS_DELAY, Limits
from licserver.web.uploads import received
from licserver.web.worker_threads import WorkerThreads

ROOT: Final = "/admin/api/v1"

MAX_BODY: Final = 1 << 20
"""Bytes of a body of JSON: an allow-list of a thousand entries, and more than room for all else."""

RELEASES: Final = "/products/{slug}/releases"
"""Where a file is received, which is no operation as the others are."""

_MAX_IDEMPOTENCY_KEY: Final = 255
_BEARER: Final = {"WWW-Authenticate": 'Bearer realm="licserver"'}
_TOO_SMALL: Final = {"WWW-Authenticate": 'Bearer realm="licserver", error="insufficient_scope"'}
_FIELDS: Final = frozenset({"version", "changelog", "manifest"})

Work = Callable[[Vendor], BaseModel]
Begin = Callable[[], Work]
"""Does what takes long, and gives what remains to be done within a transaction."""


def mount(
    app: web.Application, vendor: Vendor, limits: Limits, drain: Drain, off_loop: WorkerThreads
) -> None:
    """Add the admin API to an application.

    Args:
        app: Not started yet; what takes every address must be added after this. Its meter counts, if it
            has one.
        vendor: The opened data folder.
        limits: Turns away who floods or guesses.
        drain: While it is active each answer is its connection's last.
        off_loop: Does what takes long.
    """
    gate = _Gate(vendor, limits, drain, off_loop, app.get(METER), app[FAILURES])
    by_path: dict[str, list[Operation]] = {}

    for operation in OPERATIONS:
        by_path.setdefault(operation.path, []).append(operation)
    for path, operations in by_path.items():
        resource = app.router.add_resource(ROOT + path)
        for operation in operations:
            resource.add_route(
                operation.method, gate.guarded(gate.answering(operation)), expect_handler=expect
            )
        methods = [operation.method for operation in operations]
        if path == RELEASES:
            methods.append("POST")
            resource.add_route("POST", gate.guarded(gate.publish), expect_handler=expect)
        allow = ",".join(methods)
        resource.add_route("*", gate.guarded(_refusing(405, {"Allow": allow})), expect_handler=expect)
    nowhere = gate.guarded(_refusing(404))
    app.router.add_route("*", ROOT, nowhere, expect_handler=expect)
    app.router.add_route("*", ROOT + "/{anything:.*}", nowhere, expect_handler=expect)


class _Gate:
    """Makes handlers; as `mount`."""

    def __init__(
        self,
        vendor: Vendor,
        limits: Limits,
        drain: Drain,
        off_loop: WorkerThreads,
        meter: Meter | None,
        failures: FailureReport,
    ) -> None:
        self._vendor, self._limits, self._drain, self._off_loop = vendor, limits, drain, off_loop
        self._meter, self._failures = meter, failures

    def guarded(self, handler: Handler) -> Handler:
        """Answer whatever a handler raises, and let nobody in who floods (D-71)."""

        async def guarded_handler(request: web.Request) -> web.StreamResponse:
            try:
                if delay := self._limits.flood_delay(request):
                    raise _too_many(delay)  # noqa: TRY301 - answered with all others
                if hdrs.CONTENT_ENCODING in request.headers:
                    raise ApiError(  # noqa: TRY301 - the same
                        415, "Content-Encoding is not supported; send the body as it is.", NO_ENCODING
                    )
                response = await handler(request)
            except Exception as problem:  # noqa: BLE001 - the last resort; logged where it is ours
                response = problems.answer(problem, request)
            if self._drain.active:
                response.force_close()
            return response

        return guarded_handler if self._meter is None else self._meter.measuring(ADMIN, guarded_handler)

    def answering(self, operation: Operation) -> Handler:
        """Make the handler of an operation that takes JSON or nothing."""

        async def handler(request: web.Request) -> web.StreamResponse:
            token = await self._admit(request, operation.scope)
            query = operation.query.model_validate_strings(_query(request), strict=True)
            raw = await self._read_body(request)
            body = None if operation.body is None else operation.body.model_validate_json(raw or b"{}")
            path = dict(request.match_info)

            def work(vendor: Vendor) -> BaseModel:
                return operation.run(Call(vendor, path, query, body))

            receipt = _receipt(request, token, raw) if operation.creates else None
            answer = await self._do(token, lambda: work, receipt, 201 if operation.creates else 200)
            return respond(answer.status, answer.body)

        return handler

    async def publish(self, request: web.Request) -> web.StreamResponse:
        """Publish a file as a version."""
        token = await self._admit(request, Scope.WRITE)
        _query(request, taken=False)
        slug = request.match_info["slug"]
        await self._off_loop.run(self._vendor.product, slug)  # before gigabytes come for nobody
        async with received(request, self._vendor.settings, self._off_loop, _FIELDS) as form:
            version, changelog = form.fields.get("version", ""), form.fields.get("changelog", "")
            signed = form.fields.get("manifest", "").strip()
            asked = [version, changelog, signed, form.file_name, form.sha256.hex()]
            receipt = _receipt(request, token, "\n".join(asked).encode())
            seal = release_manifests.sealed_before(signed) if signed else None

            def begin() -> Work:
                staged = self._vendor.stage(
                    slug, version, form.path, changelog, seal, file_name=form.file_name
                )
                return lambda vendor: serialization.release(vendor.add_release(staged))

            vendor = self._acting(token)
            answer = await self._off_loop.run_with_file(_run, vendor, begin, receipt, 201)
        return respond(answer.status, answer.body)

    async def _admit(self, request: web.Request, scope: Scope) -> Token:
        """Find out who asks (D-91); who shows no good token is counted as one who guesses."""
        kind, _, text = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        is_bearer = kind.lower() == "bearer"
        token = await self._off_loop.run(self._vendor.recognise, text.strip()) if is_bearer else None
        if token is None:
            if not await self._limits.may_miss(request):
                raise _too_many(MISS_DELAY)
            if is_bearer:
                await self._report_refusal(request, text.strip())
            raise ApiError(401, "Send a token that is good: Authorization: Bearer …", _BEARER)
        if scope is Scope.WRITE and token.scope is not Scope.WRITE:
            raise ApiError(403, "This token may only read.", _TOO_SMALL)
        return token

    async def _report_refusal(self, request: web.Request, text: str) -> None:
        """Report a refused token, by its name if it has expired or was revoked (D-168)."""
        name = await self._off_loop.run(self._vendor.find_refused_token, text)
        self._failures.add(TOKEN_REFUSED, name, self._limits.address(request))

    async def _read_body(self, request: web.Request) -> bytes:
        """Read a body of JSON, as far as it is let."""
        held = bytearray()
        await send_continue(request)
        async with asyncio.timeout(self._vendor.settings.body_timeout):
            async for chunk in request.content.iter_any():
                held += chunk
                if len(held) > MAX_BODY:
                    raise ApiError(413, f"The request's body is longer than {MAX_BODY} bytes.")
        return bytes(held)

    async def _do(self, token: Token, begin: Begin, receipt: IdempotencyKey | None, status: int) -> Answer:
        return await self._off_loop.run(_run, self._acting(token), begin, receipt, status)

    def _acting(self, token: Token) -> Vendor:
        return self._vendor.acting_as(Actor(ActorKind.TOKEN, token.name))


def _run(vendor: Vendor, begin: Begin, receipt: IdempotencyKey | None, status: int) -> Answer:
    """Do an operation; with a receipt once, and the same is told to who asks again (D-93)."""

    def begin_answer() -> Callable[[Vendor], Answer]:
        work = begin()
        return lambda bound: Answer(status, work(bound).model_dump_json().encode())

    return begin_answer()(vendor) if receipt is None else vendor.once(receipt, begin_answer).answer


def _query(request: web.Request, *, taken: bool = True) -> dict[str, str]:
    """Read what stands behind the question mark; twice the same name is a slip."""
    given = request.query
    if len(given) != len(set(given)) or (given and not taken):
        raise ApiError(422, "Each parameter can be given once, and only where it is taken.")
    return dict(given)


def _receipt(request: web.Request, token: Token, asked: bytes) -> IdempotencyKey | None:
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if not key or len(key) > _MAX_IDEMPOTENCY_KEY or not is_printable(key):
        raise ApiError(422, f"An Idempotency-Key has 1 to {_MAX_IDEMPOTENCY_KEY} characters, in one line.")
    digest = hashlib.sha256(f"{request.method} {request.rel_url.raw_path}\n".encode() + asked).digest()
    return IdempotencyKey(ActorKind.TOKEN, token.id, key, digest)


async def refuse_path(request: web.Request) -> web.StreamResponse:
    """Refuse a path that a proxy may read as another one (D-155)."""
    return problems.answer(ApiError(400, BAD_PATH), request)


def _refusing(status: int, headers: dict[str, str] | None = None) -> Handler:
    told = {404: "There is nothing at this address.", 405: "This address does not take this method."}

    async def refuse(_request: web.Request) -> web.StreamResponse:
        raise ApiError(status, told[status], headers or {})

    return refuse


def _too_many(delay: int) -> ApiError:
    headers = {"Retry-After": str(delay)}
    return ApiError(429, f"Too many requests from this address; retry after {delay} s.", headers)
