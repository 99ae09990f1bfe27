"""A browser without scripts, for tests of the console: it keeps cookies, and sends forms as pages would."""

import html
import io
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from licserver.services.installation import Services

NAME, PASSWORD = "alice", "four words of a sentence"


class Browser:
    """One person's browser at one server.

    Args:
        session: With a cookie jar of its own.
        url: The server's address.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url
        self.status, self.text, self.path = 0, "", ""
        self.headers: Any = {}

    async def send(self, method: str, path: str, **more: Any) -> str:
        """Send anything; what came is kept."""
        async with self.session.request(method, self.url + path, **more) as answer:
            self.status, self.headers = answer.status, answer.headers
            self.path, self.text = answer.url.path_qs, await answer.text(errors="replace")
        return self.text

    async def get(self, path: str, **more: Any) -> str:
        """Open a page; redirects are followed."""
        return await self.send("GET", path, **more)

    async def post(
        self, path: str, *, csrf: str | None = None, origin: str | None = None, **form: str
    ) -> str:
        """Send a form as its page would: with the token of the page that is open, and the form's own id."""
        token = self.csrf if csrf is None else csrf
        headers = {"Origin": self.url if origin is None else origin}
        fields = {"csrf": token, **({"once": self.once} if self.once else {}), **form}
        return await self.send("POST", path, data=fields, headers=headers)

    async def upload(
        self,
        path: str,
        form: dict[str, str],
        *,
        name: str = "app.zip",
        content: bytes = b"zip",
        origin: str | None = None,
    ) -> str:
        """Send a form with a file in it, its fields first, and its CSRF token in the address."""
        form = {**form}
        query = {"csrf": form.pop("csrf", "")}
        data = aiohttp.FormData(quote_fields=False)
        for field, value in {**({"once": self.once} if self.once else {}), **form}.items():
            data.add_field(field, value)
        data.add_field("file", io.BytesIO(content), filename=name, content_type="application/octet-stream")
        headers = {"Origin": self.url if origin is None else origin}
        return await self.send("POST", path, data=data, headers=headers, params=query)

    async def sign_in(self, name: str = NAME, password: str = PASSWORD, **more: str) -> str:
        """Sign in."""
        return await self.post("/console/sign-in", csrf="", name=name, password=password, **more)

    @property
    def csrf(self) -> str:
        """The token of the page's forms."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.text)
        return found[1] if found else ""

    @property
    def once(self) -> str:
        """The id of the page's form that makes something."""
        found = re.search(r'name="once" value="([^"]+)"', self.text)
        return found[1] if found else ""

    @property
    def alert(self) -> str:
        """What the page complains of."""
        found = re.search(r'role="alert">(.*?)</p>', self.text, re.DOTALL)
        return html.unescape(found[1]) if found else ""

    @property
    def notice(self) -> str:
        """The notice on the page: what was done."""
        found = re.search(r'role="status">(.*?)</p>', self.text, re.DOTALL)
        return html.unescape(found[1]) if found else ""

    @property
    def token(self) -> str | None:
        """The session's own, from the cookie."""
        return next((cookie.value for cookie in self.session.cookie_jar if "licserver" in cookie.key), None)


# --- who visits; `world`, `site` and `activate` are those of the tests of `licserver` ------------


@pytest.fixture
def users(world: Any) -> Services:
    """Who knows the console's users: alice."""
    services: Services = world.services
    services.users.add(NAME, PASSWORD)
    return services


@pytest.fixture
async def open_browser(site: Any) -> AsyncIterator[Callable[..., Any]]:
    """Open a browser at the site, nobody signed in; it may come from any loopback address."""
    async with AsyncExitStack() as stack:

        async def open_one(source: str = "127.0.0.1") -> Browser:
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(local_addr=(source, 0)),
                cookie_jar=aiohttp.CookieJar(unsafe=True),
            )
            return Browser(await stack.enter_async_context(session), site.url)

        yield open_one


@pytest.fixture
async def alice(users: Services, open_browser: Callable[..., Any]) -> Browser:
    """Alice's browser; she is signed in, and looks at the overview."""
    browser: Browser = await open_browser()
    await browser.sign_in()
    assert browser.status == 200, browser.text
    return browser


@pytest.fixture
def sold(world: Any, activate: Callable[[str, str, str], Any]) -> tuple[str, str]:
    """A license of a customer on one machine; its key and its page."""
    key = world.key(slots=2, customer_email="jo@studio.example", note="Order 4711")
    activate(key, "a.example", "192.0.2.1")
    return key, f"/console/licenses/{world.services.vault.license_id(key).hex()}"
