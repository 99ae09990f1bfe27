"""Session cookies, CSRF tokens and origins of forms. Pure (D-96)."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from licserver.domain.text import AMBIGUOUS_PATH

Form = Mapping[str, str]
"""The fields of a form by name; of a repeated name the last value."""

CSRF_FIELD: Final = "csrf"
HOME: Final = "/console"


class SessionCookie(NamedTuple):
    """The names of a session's cookie, over https and over http, and the path of its pages.

    `secure` is used whenever `LICSERVER_BASE_URL` is https; its prefix binds it to this host.
    """

    secure: str
    plain: str
    path: str


CONSOLE_COOKIE: Final = SessionCookie("__Host-licserver", "licserver", HOME)

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_OWN_PATH: Final = re.compile(r"/console(/[A-Za-z0-9._~/%-]*)?(\?[A-Za-z0-9._~/%&=+:@,-]*)?")


def read_cookie(header: str, name: str) -> str | None:
    """Return the value of a cookie from a ``Cookie`` header; of a repeated name the last value.

    Other cookies are not parsed: `http.cookies` takes 7 ms for the thousand that fit into a header. Values
    with characters that neither tokens nor languages have count as absent.
    """
    if f"{name}=" not in header:
        return None
    values = re.findall(rf"(?:^|;)[ \t]*{re.escape(name)}=([A-Za-z0-9_-]*)[ \t]*(?=;|$)", header)
    return values[-1] if values else None


def read_token(header: str, *, is_https: bool = False, cookie: SessionCookie = CONSOLE_COOKIE) -> str | None:
    """Return the session's token from the ``Cookie`` header, or None.

    With an https base URL (`is_https`) the plain cookie is ignored: another host of the same domain, or
    an attacker on the network, may have set it.
    """
    token = read_cookie(header, cookie.secure) or (None if is_https else read_cookie(header, cookie.plain))
    return token if token is not None and _TOKEN.fullmatch(token) else None


def write_cookie(token: str, *, is_https: bool, seconds: int, cookie: SessionCookie = CONSOLE_COOKIE) -> str:
    """Format the ``Set-Cookie`` of a session; an empty token removes the cookie.

    Lax, so that a link in a support ticket opens its page; forms have a CSRF token besides.
    """
    name, more = (cookie.secure, "Path=/; Secure") if is_https else (cookie.plain, f"Path={cookie.path}")
    return f"{name}={token}; {more}; Max-Age={seconds}; HttpOnly; SameSite=Lax"


def csrf_token(session_token: str) -> str:
    """Derive the CSRF token of a session's forms from the session's token, which only the cookie has."""
    digest = hmac.digest(session_token.encode(), b"licserver console form", hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_own_form(session_token: str, form: Form) -> bool:
    """Return whether a form came from a page of this session."""
    sent = form.get(CSRF_FIELD, "")
    return hmac.compare_digest(csrf_token(session_token).encode(), sent.encode())


def has_form_token(form: Form) -> bool:
    """Return whether a form has a well-formed CSRF token, perhaps of an ended session."""
    return _TOKEN.fullmatch(form.get(CSRF_FIELD, "")) is not None


def is_same_origin(headers: Mapping[str, str], host: str) -> bool:
    """Return whether a page of ours sent a form, by the headers that browsers set themselves.

    Protects the sign-in, where there is no session yet, and is checked before the token elsewhere. A client
    without either header is no browser, and cannot be tricked into sending a form.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = headers.get("Origin")
    return origin is None or _split(origin).netloc.casefold() == host.casefold()


def is_browser(headers: Mapping[str, str], host: str) -> bool:
    """Return whether, by the browser's headers, a page of ours sent a form; programs send no origin."""
    return ("Sec-Fetch-Site" in headers or "Origin" in headers) and is_same_origin(headers, host)


def loses_cookies(headers: Mapping[str, str], base_url: str | None) -> bool:
    """Return whether the browser will drop our `Secure` cookie, because the page came by plain http.

    Browsers make an exception for localhost, where a tunnel ends.
    """
    origin = _split(headers.get("Origin", ""))
    host = (origin.hostname or "").rstrip(".")
    is_here = host in {"localhost", "::1"} or host.startswith("127.") or host.endswith(".localhost")
    return is_https_url(base_url) and origin.scheme == "http" and not is_here


def is_https_url(url: str | None) -> bool:
    """Return whether an address begins with https."""
    return _split(url or "").scheme == "https"


def _split(url: str) -> SplitResult:
    """Split an untrusted address; a malformed address is empty."""
    try:
        parts = urlsplit(url)
        _ = parts.hostname  # may raise as well
    except ValueError:
        return urlsplit("")
    return parts


def own_path(path: str) -> str:
    """Return the path if it is of the console, otherwise the console's first page; never another site."""
    is_own = _OWN_PATH.fullmatch(path) and "//" not in path
    return path if is_own and not AMBIGUOUS_PATH.search(path.partition("?")[0]) else HOME
