"""`LicenseService`: the vendor's side of a test, and what goes wrong."""

import gc
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date, timedelta
from functools import cached_property
from typing import Any, Final, Self
from urllib.parse import parse_qsl

import httpx

from licclient._async_client import AsyncLicenseClient
from licclient._client import LicenseClient
from licclient._computers.fake import FakeComputers
from licclient._computers.protocol import COMPUTERS_PATH, MOVE_PATH
from licclient._core.model import EntitlementValue
from licclient._core.policy import is_version
from licclient._core.requests import DEACTIVATE_PATH, UPDATE_CHECK_PATH, VERIFY_PATH, Call
from licclient._core.responses import MANIFEST_HEADER, read_json_object
from licclient._core.settings import ClientSettings, Trust, read_slug
from licclient._core.typed_key import GROUP_LENGTH, GROUPS, PREFIX, Mistyped, mask_key, repair_key
from licclient._seats.fake import FakeSeats
from licclient._seats.protocol import SEAT_PATH
from licclient._trials.protocol import TRIAL_PATH
from licclient._updates.rollbacks import ROLLED_BACK_PATH
from licclient._uses.protocol import CONSUME_PATH
from licclient.dialogs._calls import TK_ROOTS
from licclient.errors import LicclientError
from licclient.testing._arguments import checked
from licclient.testing._clients import LicenseClock, MemoryStorage, Misbehaviour, SeenRequest
from licclient.testing._endpoints import (
    DOWNLOAD_PATH,
    Endpoints,
    IssuedLicense,
    RefusedError,
    Release,
    check_grants,
)
from licclient.testing._signing import Signer, file_content, read_file_request

MAX_FILE_DAYS: Final = 36_500

REFRESH_SECONDS: Final = 5.0
"""How long a change of the service waits for a request that is on its way."""

BASE_URL: Final = "https://licenses.example.com"

_KINDS: Final = {
    VERIFY_PATH: "verify",
    DEACTIVATE_PATH: "deactivate",
    COMPUTERS_PATH: "computers",
    MOVE_PATH: "move",
    TRIAL_PATH: "trial",
    SEAT_PATH: "seat",
    CONSUME_PATH: "consume",
    UPDATE_CHECK_PATH: "update-check",
    DOWNLOAD_PATH: "download",
    ROLLED_BACK_PATH: "rolled-back",
}
_WRONG_RESPONSES: Final[dict[Misbehaviour | None, dict[str, Any]]] = {
    Misbehaviour.ERROR: {"status_code": 500, "html": "<h1>Internal Server Error</h1>"},
    Misbehaviour.BUSY: {"status_code": 429, "headers": {"Retry-After": "60"}},
    Misbehaviour.LOGIN_PAGE: {"status_code": 200, "html": "<h1>Welcome to our hotel</h1>"},
    Misbehaviour.REDIRECT: {"status_code": 302, "headers": {"Location": "https://elsewhere.example/login"}},
    Misbehaviour.GARBAGE: {"status_code": 200, "json": {"valid": "true", "version": 2}},
}


class LicenseService:
    """A license service whose licenses and releases a test decides, and clients for it.

    As a context manager it closes its clients at the end. Any number of services can be used side by side.

    Args:
        clock: For the service and its clients; None for a new `LicenseClock`.

    Attributes:
        clock: The clock.
        transport: For `transport=` of a client: sends every request to this service, whatever its address.
        storage: For `storage=`: the computer of all clients that are not given one of their own.
        requests: What has arrived, oldest first.
    """

    @checked
    def __init__(self, clock: LicenseClock | None = None) -> None:
        self.clock = clock or LicenseClock()
        self.transport = httpx.MockTransport(self._handle)
        self.storage = MemoryStorage()
        self.requests: list[SeenRequest] = []
        self._endpoints = Endpoints(self.clock, {"seat": FakeSeats})
        self._is_offline = False
        self._misbehaviour: Misbehaviour | None = None
        self._clients: list[LicenseClient] = []
        self._attached: list[tuple[LicenseClient | AsyncLicenseClient, dict[str, Any]]] = []
        self._apps: list[ClientSettings] = []  # of the clients on this computer

    # --- clients ------------------------------------------------------------------------------

    @checked
    def client(self, settings: ClientSettings | str = BASE_URL, **options: Any) -> LicenseClient:
        """Return a client of this service, which closes it.

        Args:
            settings: The app's own settings, or a base URL. Pinned keys are replaced by `public_key` and
                `release_key`, whose private halves the service has.
            **options: As of `LicenseClient`; with `storage=MemoryStorage()` it is another computer's client.
        """
        own_settings, edges = self._prepare(settings, options)
        self._clients.append(LicenseClient(own_settings, **edges))
        return self._clients[-1]

    @checked
    def async_client(self, settings: ClientSettings | str = BASE_URL, **options: Any) -> AsyncLicenseClient:
        """Return an asynchronous client of this service, which the test closes."""
        own_settings, edges = self._prepare(settings, options)
        return AsyncLicenseClient(own_settings, **edges)

    @checked
    def attach(self, client: LicenseClient | AsyncLicenseClient) -> None:
        """Make a client that exists already, such as a module's, one of this service until this is closed.

        It is constructed again with its own settings and the service's transport, storage and clock.
        """
        self._attached.append((client, vars(client).copy()))
        settings, edges = self._prepare(client.settings, {})
        # The same object, because decorated functions hold it.
        construct: Any = type(client).__init__
        construct(client, settings, **edges)

    def close(self) -> None:
        """Close the clients, and give attached ones back as they were."""
        for client in self._clients:
            client.close()
        for attached, before in reversed(self._attached):
            if isinstance(attached, LicenseClient):
                attached.close()
            vars(attached).clear()
            vars(attached).update(before)
        self._clients, self._attached = [], []
        if TK_ROOTS:
            # What is left of a test's windows must be freed on their thread, not on one of a later client.
            gc.collect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(
        self, settings: ClientSettings | str, options: dict[str, Any]
    ) -> tuple[ClientSettings, dict[str, Any]]:
        """Return the arguments of a client's constructor."""
        edges = {"transport": self.transport, "storage": self.storage, "clock": self.clock}
        edges |= {name: value for name, value in options.items() if name in edges}
        if edges["storage"] is None:  # no test writes to the app's own folder by chance
            edges["storage"] = self.storage
        if isinstance(settings, str):
            settings = ClientSettings(settings)
        settings = replace(settings, **{name: value for name, value in options.items() if name not in edges})
        trust = settings.trust
        if isinstance(trust, Trust):  # else the client refuses it
            if trust.public_keys is not None:
                trust = replace(trust, public_keys=[self.public_key])
            if trust.release_keys is not None:
                trust = replace(trust, release_keys=[self.release_key])
            settings = replace(settings, trust=trust)
        if edges["storage"] is self.storage:
            self._apps.append(settings)
            if self._is_away:
                self._confirm_activation()
        return settings, edges

    @property
    def _is_away(self) -> bool:
        return self._is_offline or self._misbehaviour in _WRONG_RESPONSES or self._misbehaviour == "slow"

    def _confirm_activation(self) -> None:
        """Let the apps find the answer that they got when their key was entered earlier."""
        license_ = self._endpoints.licenses.get(self.storage.key or "")
        if license_ is None or not license_.is_activated or license_.domains:
            return
        edges: dict[str, Any] = {"transport": httpx.MockTransport(self._answer)}
        edges |= {"storage": self.storage, "clock": self.clock}
        for settings in self._apps:
            with warnings.catch_warnings(), suppress(LicclientError):
                warnings.simplefilter("ignore", UserWarning)  # the app's own client has warned of http
                with LicenseClient(settings, **edges) as client:
                    client.verify(self.storage.key)

    @property
    def public_key(self) -> str:
        """The key that signs its responses, for `public_keys` of `Trust`; needs `licclient[signed]`."""
        return self._signer.public.text

    @property
    def release_key(self) -> str:
        """The key that signs its releases, for `release_keys` of `Trust`; needs `licclient[signed]`."""
        return self._endpoints.release_signer.public.text

    @cached_property
    def _signer(self) -> Signer:
        return Signer("licclient.testing service")

    # --- what the vendor does -----------------------------------------------------------------

    @checked
    def issue(
        self,
        product: str,
        *,
        slug: str | None = None,
        expires: date | None = None,
        lifetime: bool = False,
        slots: int | None = None,
        moves: int = 3,
        support_until: date | None = None,
        updates_until: date | None = None,
        entitlements: Mapping[str, EntitlementValue] | None = None,
        seats: int | None = None,
        channels: Collection[str] = (),
        key: str | None = None,
        activated: bool = False,
    ) -> str:
        """Issue a license.

        Args:
            product: The product's name, as in `LicenseClient(product=…)`.
            slug: The product's slug; None for a license that fits every slug.
            expires: Last valid day, UTC; None for no end.
            lifetime: Whether it never expires.
            slots: How many installations may use it; None for any number.
            moves: How often it can be moved to another computer in 30 days; 0 for only by support.
            support_until: Last day with updates; None for no end.
            updates_until: Last day whose releases it covers for good, as of a product that is sold with
                `--after-support covered`; None for a product without covered versions.
            entitlements: What it grants, as ``{"export": True, "exports": Quota(100, "month")}``; None for
                a vendor who has chosen nothing.
            seats: How many may use it at the same time by `client.seats.take`; None for none.
            channels: Whose releases it is offered besides stable ones.
            key: The key, also one that was sold elsewhere; None to make one up.
            activated: Whether the app finds this key on its computer, as if it had been entered earlier. An
                app that asks for the first time while the service is away has the answer of that time.

        Returns:
            The license key.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: It is out of range, or no slug, key or entitlement.
        """
        if key is None:
            key = self._next_key()
        elif isinstance(repair_key(key), Mistyped):
            raise ValueError(
                "the key must be CP- and five groups of six letters or digits, or 8 visible characters"
            )
        terms = (product, slug, expires, lifetime, slots, support_until, check_grants(entitlements))
        if moves < 0:
            raise ValueError("moves must not be negative")
        self._endpoints.licenses[key] = IssuedLicense(
            *terms,
            channels=channels,
            updates_until=updates_until,
            computers=FakeComputers(moves),
            parts={"seat": FakeSeats(seats)},
        )
        if activated:
            self.storage.key = key
            self._endpoints.licenses[key].is_activated = True
            if self._is_away:
                self._confirm_activation()
        return key

    @checked
    def issue_file(self, key: str, request: str, *, days: int = 365) -> bytes:
        """Issue a license file for a client that pins `public_key`, and made the request.

        Raises:
            ValueError: A verify of that client would be refused.
        """
        known_slug = self._license(key).slug
        if not 1 <= days <= MAX_FILE_DAYS:
            raise ValueError(f"days must be from 1 to {MAX_FILE_DAYS}")
        try:
            domain, slug = read_file_request(request)
        except ValueError:
            raise ValueError("request must be the text that license_file.request returned") from None
        fields = {"license_key": key, "domain": domain, "ip": "0.0.0.0"}  # noqa: S104 - no address
        answer = self._endpoints.verify(fields).json()
        if not answer["valid"]:
            raise ValueError(f"no license file is issued: {answer['reason']}")
        slug = known_slug or slug
        self._license(key).computers.files[domain] = self.clock() + timedelta(days=days)
        return self._signer.sign_file(file_content(answer, key, domain, slug, days, self.clock()))

    def _license(self, key: str) -> IssuedLicense:
        license_ = self._endpoints.licenses.get(key)
        if license_ is None:
            issued = ", ".join(map(mask_key, self._endpoints.licenses)) or "none"
            raise LookupError(f"this service has issued no license {mask_key(key)}; issued: {issued}")
        return license_

    def _next_key(self) -> str:
        number = len(self._endpoints.licenses) + 1
        return "-".join([PREFIX, *["TEST00"] * (GROUPS - 1), f"{number:0{GROUP_LENGTH}}"])

    @checked
    def offer_trials(self, product: str, *, slug: str, days: int = 14) -> None:
        """Offer trials of a product from now on; `expire` ends one."""
        self._endpoints.trials.offer(read_slug(slug) or "", product, days)

    @checked
    def convert(self, key: str, *, expires: date | None = None) -> None:
        """Make a purchased license of a trial, as when it was bought."""
        license_ = self._license(key)
        license_.is_trial, license_.expires = False, expires

    @checked
    def revoke(self, key: str) -> None:
        """Revoke a license, as after a refund."""
        self._license(key).revoked = True

    @checked
    def reinstate(self, key: str) -> None:
        """Take a revocation back."""
        self._license(key).revoked = False

    @checked
    def entitle(self, key: str, entitlements: Mapping[str, EntitlementValue]) -> None:
        """Change what a license grants; an app learns of it with the next answer."""
        self._license(key).entitlements = check_grants(entitlements)

    @checked
    def take_back_seats(self, key: str) -> None:
        """Take all floating seats of a license back: the apps learn so when they renew them."""
        seats = self._license(key).parts.get("seat")
        if isinstance(seats, FakeSeats):
            seats.take_back()

    @checked
    def expire(self, key: str) -> None:
        """Let a license end yesterday."""
        license_ = self._license(key)
        license_.lifetime, license_.expires = False, self.clock().date() - timedelta(days=1)

    @checked
    def end_support(self, key: str) -> None:
        """Let the support period end yesterday: newer versions are listed, but without a link.

        A license with `updates_until` goes on being offered the newest release until then.
        """
        license_, yesterday = self._license(key), self.clock().date() - timedelta(days=1)
        if license_.updates_until is None:
            license_.support_until = yesterday
        else:
            license_.updates_until = yesterday

    @checked
    def renew(self, key: str, *, expires: date | None = None, updates_until: date | None = None) -> None:
        """Give a license another end, and another last day of updates."""
        license_ = self._license(key)
        license_.expires, license_.support_until, license_.updates_until = expires, None, updates_until

    @checked
    def publish(
        self,
        version: str,
        *,
        slug: str | None = None,
        changelog: str = "",
        content: bytes = b"the new version",
        filename: str | None = None,
        platform: str = "",
        channel: str = "stable",
        rolled_out: bool = True,
        critical_below: str | None = None,
        security: bool = False,
        advisory: str | None = None,
        cves: Collection[str] = (),
        kind: str = "folder",
    ) -> None:
        """Publish a version, or a further file of one.

        Args:
            version: As PEP 440 reads it.
            slug: The product's slug; None for every product's.
            changelog: Plain text or basic HTML.
            content: The file.
            filename: Its name; None for one made of slug and version.
            platform: The platform that the file is for; empty for all that have none.
            channel: Apps and licenses that name it are offered it; everybody if it is stable.
            rolled_out: False for a version whose rollout has not reached the app: only a forced check is
                offered it.
            critical_below: Installed versions below it are offered it in any case, as important.
            security: Whether it fixes a vulnerability: then every license that is not revoked is offered it,
                after its support period and its end as well.
            advisory: Address of the security advisory, `https`.
            cves: Ids of the vulnerabilities that it fixes, such as `["CVE-2026-1234"]`.
            kind: The kind of file: only apps of this kind, and apps that name none, are offered it.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: PEP 440 cannot read the version, the slug or the kind is invalid, the advisory is not
                an `https` address, or an id is not that of a CVE.
        """
        for argument, value in (("version", version), ("critical_below", critical_below or "0")):
            if not is_version(value):
                raise ValueError(
                    f"{argument} must be a version of PEP 440, such as 1.4.0, not {value[:40]!r}"
                )
        name = filename or f"{slug or 'app'}-{version}.zip"
        now = self.clock()
        place = (platform, channel, rolled_out, critical_below, security, advisory, cves, kind)
        self._endpoints.releases.append(Release(version, slug, changelog, content, name, now, *place))

    @checked
    def support_from(self, version: str, *, slug: str) -> None:
        """Support no version below this one from now on."""
        self._endpoints.minimum_versions[slug] = version

    # --- what goes wrong ----------------------------------------------------------------------

    def go_offline(self) -> None:
        """Be out of reach from now on."""
        self._wait_for_refreshes()
        self._is_offline = True
        self._confirm_activation()

    def come_back(self) -> None:
        """Be in reach again, and behave."""
        self._wait_for_refreshes()
        self._is_offline = False
        self._misbehaviour = None

    @checked
    def misbehave(self, how: "Misbehaviour | str") -> None:
        """Go wrong from now on, until `come_back`; raise `ValueError` for an unknown word."""
        if how not in list(Misbehaviour):
            raise ValueError(f"how must be one of {', '.join(Misbehaviour)}; not {how[:40]!r}")
        self._wait_for_refreshes()
        self._misbehaviour = Misbehaviour(how)
        if self._is_away:
            self._confirm_activation()

    def _wait_for_refreshes(self) -> None:
        """Let what `require` began behind an answer meet the service as it was then."""
        for client in (*self._clients, *(attached for attached, _ in self._attached)):
            if isinstance(client, LicenseClient):
                client._wait_for_refresh(REFRESH_SECONDS)  # noqa: SLF001 - not for apps

    @contextmanager
    def offline(self) -> Iterator[None]:
        """Be out of reach for a block."""
        self.go_offline()
        try:
            yield
        finally:
            self.come_back()

    # --- what was asked -----------------------------------------------------------------------

    @checked
    def count(self, kind: str | None = None) -> int:
        """Return how many requests there were, in all or of a kind, as of `SeenRequest`."""
        if kind not in (None, "other", *_KINDS.values()):
            raise ValueError(
                f"kind must be one of {', '.join(_KINDS.values())}, other; not {str(kind)[:40]!r}"
            )
        return sum(kind in (None, request.kind) for request in self.requests)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        kind, fields = _parse(request)
        self.requests.append(SeenRequest(kind, fields.get("license_key"), fields, dict(request.headers)))
        if self._is_offline:
            raise httpx.ConnectError("the fake service is offline", request=request)
        if self._misbehaviour is Misbehaviour.SLOW:
            raise httpx.ReadTimeout("the fake service is slow", request=request)
        if wrong := _WRONG_RESPONSES.get(self._misbehaviour):
            return httpx.Response(**wrong)
        return self._answer(request, is_signed=self._misbehaviour is not Misbehaviour.UNSIGNED)

    def _answer(self, request: httpx.Request, *, is_signed: bool = True) -> httpx.Response:
        url, headers, (kind, fields) = str(request.url), dict(request.headers), _parse(request)
        try:
            response = self._respond(request.method, kind, url.partition("?")[0], fields, headers)
        except RefusedError as refused:
            response = refused.response
        if not is_signed:
            response.headers.pop(MANIFEST_HEADER, None)
        elif kind != "download" and "accept-signature" in headers:
            call = Call(request.method, url, headers, request.content, max_bytes=0)
            signed = dict(response.headers)
            self._signer.sign_response(call, response.status_code, signed, response.content, self.clock())
            response.headers.update(signed)
        return response

    def _respond(
        self, method: str, kind: str, address: str, fields: dict[str, Any], headers: dict[str, str]
    ) -> httpx.Response:
        endpoints = self._endpoints
        match method, kind:
            case "POST", "seat":
                return endpoints.part(kind, fields)
            case "POST", "verify" | "deactivate" | "computers" | "move" | "consume" | "rolled-back":
                response: httpx.Response = getattr(endpoints, kind.replace("-", "_"))(fields)
                return response
            case "POST", "trial":
                return endpoints.start_trial(fields, self._next_key())
            case "GET", "update-check":
                return endpoints.check(fields, address.removesuffix(UPDATE_CHECK_PATH))
            case "GET", "download":
                return endpoints.download(fields, headers, self._misbehaviour)
            case _, "other":
                raise RefusedError(404, "not_found", "There is nothing at this address.")
            case _:
                raise RefusedError(405, "method_not_allowed", "Method not allowed.")


def _parse(request: httpx.Request) -> tuple[str, dict[str, Any]]:
    """Return a request's kind, and its fields."""
    kind = next((kind for path, kind in _KINDS.items() if request.url.path.endswith(path)), "other")
    if request.method == "POST":
        return kind, read_json_object(request.content)
    return kind, dict(parse_qsl(request.url.query.decode(), keep_blank_values=True))
