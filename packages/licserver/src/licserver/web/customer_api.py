"""The public endpoints beside verify and update check: deactivation, moves, trials, seats, uses, rollbacks.

`CustomerEndpoints.endpoints` lists them: each parses a body, and returns a response or a `Miss`. One frame
around all reads the body, limits misses, and sends.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler

from licserver.database.hot_path.lookups import Lookup
from licserver.domain import decisions
from licserver.domain.decisions import Valid, VerifyRefusal
from licserver.domain.entitlements import resolve_stored
from licserver.domain.moves import UNKNOWN_KEY
from licserver.domain.records import Environment
from licserver.domain.seats import GrantedSeat, NoSeat, SeatRefusal
from licserver.domain.trials import TrialRefusal
from licserver.errors import NotFoundError, TooManyMovesError
from licserver.protocol import moves, public_api, rollbacks, seats, trials, uses
from licserver.protocol.public_api import ApiResponse, InvalidRequest
from licserver.protocol.uses import ConsumeRefusal
from licserver.security.redaction import mask, mask_machine
from licserver.services.context import CUSTOMER
from licserver.services.installation import Services
from licserver.services.uses import OtherUseError, QuotaExceededError
from licserver.web.client_addresses import ClientAddress
from licserver.web.public import TOO_MANY_WRITES, PublicEndpoints
from licserver.web.rate_limits import MISS_DELAY, USE_WEIGHT, Write
from licserver.web.responses import send, send_too_many

_TOO_MANY_USES: Final = "Too many uses of this license were counted today; wait as Retry-After states."

_TRIAL_MISSES: Final = {TrialRefusal.PRODUCT_NOT_FOUND, TrialRefusal.TOO_MANY}


def _domain(call: Any) -> str:
    domain: str = call.request.domain if isinstance(call, seats.SeatCall) else call.domain
    return domain


class Miss(NamedTuple):
    """A refusal that counts as a guess, of an installation if the request names its domain."""

    response: ApiResponse
    domain: str = ""


class TooMany(NamedTuple):
    """A request beyond a limit of its license; one may be sent again after `delay` seconds."""

    delay: int
    message: str = TOO_MANY_WRITES


class CustomerEndpoint(NamedTuple):
    """An endpoint: the parser of its body, and the function that responds."""

    parse: Callable[[bytes], Any]
    respond: Callable[[Any, ClientAddress], Awaitable[ApiResponse | Miss | TooMany]]
    is_signed: bool = True


class CustomerEndpoints:
    """Responds on behalf of customers."""

    def __init__(self, services: Services, public: PublicEndpoints) -> None:
        self._services, self._public = services.acting_as(CUSTOMER), public
        self._run = public.threads.run
        self.endpoints: Mapping[str, CustomerEndpoint] = {
            public_api.DEACTIVATE_PATH: CustomerEndpoint(
                public_api.parse_deactivate, self._threaded(self._deactivate), is_signed=False
            ),
            moves.COMPUTERS_PATH: CustomerEndpoint(moves.parse_list, self._threaded(self._list_computers)),
            moves.MOVE_PATH: CustomerEndpoint(moves.parse_move, self._threaded(self._move)),
            trials.TRIAL_PATH: CustomerEndpoint(trials.parse_trial, self._threaded(self._start_trial)),
            seats.SEAT_PATH: CustomerEndpoint(seats.parse_seat, self._threaded(self._hold_seat)),
            uses.CONSUME_PATH: CustomerEndpoint(uses.parse_consume, self._consume),
            rollbacks.ROLLED_BACK_PATH: CustomerEndpoint(
                rollbacks.parse_report, self._threaded(self._count_rollback)
            ),
        }

    def create_handler(self, endpoint: CustomerEndpoint) -> Handler:
        """Create the handler of an endpoint."""

        async def handle(request: web.Request) -> web.StreamResponse:
            call = endpoint.parse(await self._public.read_body(request))
            if isinstance(call, InvalidRequest):
                response: ApiResponse | Miss | TooMany = Miss(public_api.invalid_update_response(call))
            elif self._public.rate_limiter.refuses_guess(
                request, getattr(call, "license_key", ""), _domain(call)
            ):
                return send_too_many(MISS_DELAY)
            else:
                response = await endpoint.respond(call, self._public.callers.find(request))
            if isinstance(response, TooMany):
                return send_too_many(*response)
            if isinstance(response, Miss):
                return await self._public.rate_limiter.respond_to_miss(request, *response)
            return send(response)

        return handle

    def _deactivate(self, call: public_api.DeactivateRequest, _client: ClientAddress) -> ApiResponse | Miss:
        license_ = self._services.licenses.find_by_key(call.license_key)
        if license_ is None:
            return Miss(public_api.unknown_key_response(), call.domain)
        try:
            freed = self._services.moves.deactivate(license_, call.domain)
        except TooManyMovesError as refusal:
            return public_api.too_many_moves_response(str(refusal), refusal.retry_at)
        except NotFoundError:  # deleted meanwhile
            return Miss(public_api.unknown_key_response(), call.domain)
        return public_api.deactivated_response(freed)

    def _list_computers(self, call: moves.ListRequest, client: ClientAddress) -> ApiResponse | Miss:
        environment = Environment(call.domain, client.ip)
        result = self._services.moves.list_computers(call.license_key, environment)
        response = moves.list_response(result, call.domain, self._services.now())
        return Miss(response, call.domain) if result == UNKNOWN_KEY else response

    def _move(self, call: moves.MoveRequest, client: ClientAddress) -> ApiResponse | Miss:
        environment = Environment(call.domain, client.ip)
        machine = call.machine and mask_machine(call.machine, call.license_key)
        result = self._services.moves.move(call.license_key, environment, call.computer_id, machine)
        response = moves.move_response(result)
        return Miss(response, call.domain) if result == UNKNOWN_KEY else response

    def _start_trial(self, call: trials.TrialRequest, client: ClientAddress) -> ApiResponse | Miss:
        result = self._services.trials.start(call.slug, call.machine, client.counted, call.domain)
        if not isinstance(result, TrialRefusal):
            return trials.trial_response(*result)
        refusal = trials.trial_refusal_response(result)
        return Miss(refusal) if result in _TRIAL_MISSES else refusal

    def _hold_seat(self, call: seats.SeatCall, _client: ClientAddress) -> ApiResponse | Miss:
        key, request, service = call.license_key, call.request, self._services.seats
        if call.is_release:
            result: Any = service.release(key, request.seat_id)
            response = seats.released_response(result)
        else:
            result = service.hold(key, request._replace(label=request.label and mask(request.label, key)))
            response = seats.seat_response(result, self._services.now(), service.lease)
            if isinstance(result, GrantedSeat | NoSeat):
                granted = request.seat_id if isinstance(result, GrantedSeat) else None
                self._public.rate_limiter.note_seat(self._public.vault.license_id(key), result.seats, granted)
        return Miss(response, request.domain) if result is SeatRefusal.INVALID_LICENSE else response

    async def _consume(
        self, call: uses.ConsumeRequest, client: ClientAddress
    ) -> ApiResponse | Miss | TooMany:
        """Count a use for an installation that a verify has activated; the license is evaluated as there."""
        key, license_ = call.license_key, None
        environment = Environment(call.domain, client.ip)
        if decisions.is_license_key(key) or decisions.is_imported_key(key):
            lookup = Lookup(self._public.vault.license_id(key), environment)
            license_ = await self._public.queries.find_license(lookup)
        match decisions.evaluate_verify(key, license_, environment, self._public.clock()):
            case VerifyRefusal.EXPIRED:
                return uses.use_refusal_response(ConsumeRefusal.EXPIRED)
            case Valid(takes_slot=True) | VerifyRefusal.ENVIRONMENT:
                return uses.use_refusal_response(ConsumeRefusal.NOT_ACTIVATED)
            case Valid(license=found):
                quota = (resolve_stored(found.plan, found.overrides) or {}).get(call.name)
            case _:
                return Miss(public_api.unknown_key_response(), call.domain)
        if not isinstance(quota, Mapping):
            return uses.use_refusal_response(ConsumeRefusal.NOT_METERED)
        if delay := self._public.rate_limiter.count_use(found.id):
            return TooMany(delay, _TOO_MANY_USES)
        if delay := self._public.rate_limiter.count_write(Write(found.id, weight=USE_WEIGHT), client):
            return TooMany(delay)
        count = self._services.uses.consume
        try:
            use = await self._run(found.id, count, found.id, call.name, quota, call.amount, call.use_id)
        except OtherUseError as conflict:
            return uses.use_conflict_response(str(conflict))
        except QuotaExceededError as refusal:
            _, used, limit, resets_at = refusal.use
            return uses.quota_exceeded_response(str(refusal), used, limit, resets_at)
        return uses.consumed_response(*use)

    def _count_rollback(self, call: rollbacks.RollbackReport, _client: ClientAddress) -> ApiResponse | Miss:
        """Count an installation that went back to the version before, as its app reports."""
        count = self._services.rollouts.count_rollback
        license_ = self._services.licenses.find_by_key(call.license_key)
        if license_ is None:
            return Miss(public_api.unknown_key_response(), call.domain)
        is_counted = count(license_, call.slug, call.version, call.domain, call.platform, call.exit_code)
        return rollbacks.report_response(is_counted)

    def _threaded(
        self, respond: Callable[[Any, ClientAddress], ApiResponse | Miss]
    ) -> Callable[[Any, ClientAddress], Awaitable[ApiResponse | Miss | TooMany]]:
        async def run(call: Any, client: ClientAddress) -> ApiResponse | Miss | TooMany:
            if delay := self._public.rate_limiter.count_write(self._describe_write(call), client):
                return TooMany(delay)
            return await self._run(getattr(call, "license_key", call), respond, call, client)

        return run

    def _describe_write(self, call: Any) -> Write:
        key = getattr(call, "license_key", None)  # a trial has none yet
        if key is None or not (decisions.is_license_key(key) or decisions.is_imported_key(key)):
            return Write(None)
        is_taken = isinstance(call, seats.SeatCall) and not call.is_release
        return Write(self._public.vault.license_id(key), seat=call.request.seat_id if is_taken else None)
