"""Who is signed in, as cookies and forms tell it: names, tokens, and whose form it was. Pure (D-96)."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

SECURE_COOKIE: Final = "__Host-licserver"
"""Over https, and whenever `LICSERVER_BASE_URL` is https; the prefix binds it to this very host."""
PLAIN_COOKIE: Final = "licserver"
"""Over http, where nothing is said of https."""

CSRF_FIELD: Final = "csrf"
HOME: Final = "/console"

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_OWN_PATH: Final = re.compile(r"/console(/[A-Za-z0-9._~/%-]*)?(\?[A-Za-z0-9._~/%&=+:@,-]*)?")


def read_token(cookies: Mapping[str, str], *, is_https: bool = False) -> str | None:
    """Find the session's token among the cookies; return None if there is nothing that can be one.

    Args:
        cookies: As sent.
        is_https: Whether `LICSERVER_BASE_URL` is https. Then the plain cookie is not ours: a neighbour below
            the same domain, or somebody on the way of an http request, may have planted it.
    """
    token = cookies.get(SECURE_COOKIE) or (None if is_https else cookies.get(PLAIN_COOKIE))
    return token if token is not None and _TOKEN.fullmatch(token) else None


def write_cookie(token: str, *, is_https: bool, seconds: int) -> str:
    """Write the ``Set-Cookie`` of a session.

    Lax, so that a link in a support ticket leads to its page; what changes anything has the form's token.

    Args:
        token: The session's; empty to take the cookie back.
        is_https: Whether the console is used by https.
        seconds: For which it is good.
    """
    name, more = (SECURE_COOKIE, "Path=/; Secure") if is_https else (PLAIN_COOKIE, f"Path={HOME}")
    return f"{name}={token}; {more}; Max-Age={seconds}; HttpOnly; SameSite=Lax"


def csrf_token(session_token: str) -> str:
    """Make the token that a session's forms carry.

    It follows from the session's own, which only the cookie has: nothing more is kept, and it
    is worth nothing with another session.
    """
    digest = hmac.digest(session_token.encode(), b"licserver console form", hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_own_form(session_token: str, sent: str) -> bool:
    """Tell whether a form came from a page of this session."""
    return hmac.compare_digest(csrf_token(session_token).encode(), sent.encode())


def has_form_token(sent: str) -> bool:
    """Tell whether a form came with what could be a session's token, perhaps of one that has ended."""
    return _TOKEN.fullmatch(sent) is not None


def is_from_here(headers: Mapping[str, str], host: str) -> bool:
    """Tell whether a form was sent by a page of ours, as the browser itself says.

    Guards sign-in, where there is no session yet, and stands in front of the token elsewhere. Who sends
    neither header is no browser, and so nobody that could be tricked.

    Args:
        headers: Of the request.
        host: Its ``Host``.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = headers.get("Origin")
    return origin is None or urlsplit(origin).netloc.casefold() == host.casefold()


def loses_cookies(headers: Mapping[str, str], base_url: str | None) -> bool:
    """Return whether the browser will not keep our cookie: it is `Secure`, and the page came by plain http.

    Browsers make an exception for this very machine, where a tunnel ends.
    """
    origin = urlsplit(headers.get("Origin", ""))
    host = (origin.hostname or "").rstrip(".")
    is_here = host in {"localhost", "::1"} or host.startswith("127.") or host.endswith(".localhost")
    return is_https_url(base_url) and origin.scheme == "http" and not is_here


def is_https_url(url: str | None) -> bool:
    """Return whether an address begins with https."""
    return urlsplit(url or "").scheme == "https"


def own_path(path: str) -> str:
    """Where to go after signing in: a page of the console, and never another site's."""
    return path if _OWN_PATH.fullmatch(path) and "//" not in path else HOME
