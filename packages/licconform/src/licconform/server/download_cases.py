"""Cases of download links and of the file."""

import hashlib
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from licconform.cases import NotApplicableError, expect, mask_secrets
from licconform.server.seeds import Seed
from licconform.server.subject import CASES, Answer, Server, expect_error, expect_link

OK, PARTIAL = 200, 206
UNGUESSABLE = 16
"""Characters that a parameter needs if it is all that protects the file."""


def link_of(server: Server, key: Seed) -> str:
    """Return a fresh download link."""
    return expect_link(server.check(key.license_key, key.slug))


def fetch(server: Server, url: str, **headers: str) -> Answer:
    """Download a file, which must be delivered."""
    answer = server.get(url, **headers)
    # A redirect is followed by hand: the service may keep its files elsewhere.
    if answer.response.is_redirect and answer.response.next_request is not None:
        answer = server.get(str(answer.response.next_request.url), **headers)
    expect(answer.status in {OK, PARTIAL}, f"expected the file\n{answer}")
    return answer


@CASES.case("link-address", "spec 4.3", "The link's path is {base_url}/api/v1/update-download, with a query.")
def _(server: Server) -> None:
    url = link_of(server, server.shared("valid"))
    prefix = f"{server.base_url}/api/v1/update-download?"
    expect(url.startswith(prefix), f"expected {prefix}…, not {mask_secrets(url.partition('?')[0])}")


@CASES.case("link-works", "spec 5", "The link delivers the file, without any login.")
def _(server: Server) -> None:
    key = server.shared("valid")
    content = fetch(server, link_of(server, key)).response.content
    expect(bool(content), "expected a file, not an empty body")
    if key.sha256:
        expect(hashlib.sha256(content).hexdigest() == key.sha256, "expected the file of the latest version")


@CASES.case("link-refused-unsigned", "spec 5", "The address without its query delivers no file.")
def _(server: Server) -> None:
    url = link_of(server, server.shared("valid")).partition("?")[0]
    answer = server.get(url)
    expect(answer.status >= 400, f"expected no file\n{answer.status}")  # noqa: PLR2004 - any error


def changed_links(url: str) -> list[str]:
    """Return the link with each parameter changed, and with each left out."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    links = []
    for index, (name, value) in enumerate(query):
        # The first character: the last one of a text in base64 may hold bits that are not decoded.
        first = "1" if value[:1] != "1" else "2"
        for new in ([(name, first + value[1:])], []):
            changed = [*query[:index], *new, *query[index + 1 :]]
            links.append(urlunsplit(parts._replace(query=urlencode(changed))))
    return links


@CASES.case("link-changed", "spec 5", "The link is signed: with any parameter changed or left out, no file.")
def _(server: Server) -> None:
    for number, url in enumerate(changed_links(link_of(server, server.shared("valid")))):
        status = server.get(url).status
        expect(status >= 400, f"change {number} of the link was answered {status}")  # noqa: PLR2004


@CASES.case("link-mixed", "spec 5", "The link is signed: a parameter from another product's link, no file.")
def _(server: Server) -> None:
    own, other = (urlsplit(link_of(server, server.shared(state))) for state in ("valid", "lifetime"))
    mine, theirs = dict(parse_qsl(own.query)), dict(parse_qsl(other.query))
    different = [name for name in mine if mine[name] != theirs.get(name, mine[name])]
    if len(different) == 1 and len(mine[different[0]]) >= UNGUESSABLE:
        raise NotApplicableError(f"The parameter {different[0]} is all of the link.")
    expect(len(different) > 1, "links of two products differ in nothing that is signed")
    for name in different:
        query = urlencode({**mine, name: theirs[name]})
        status = server.get(urlunsplit(own._replace(query=query))).status
        expect(status >= 400, f"with {name} of another link it was answered {status}")  # noqa: PLR2004


@CASES.case("link-expired", "spec 5", "A link that is more than an hour old delivers no file.")
def _(server: Server) -> None:
    answer = server.get(old_link(server))
    expect(answer.status >= 400, f"expected no file, not {answer.status}")  # noqa: PLR2004


def old_link(server: Server) -> str:
    """Return a link of more than an hour ago."""
    url = server.shared("old-link").download_url
    if url is None:
        raise NotApplicableError("The seed command printed no download_url.")
    return url


@CASES.case("link-two-products", "spec 4.2", "The links of two products deliver different files.")
def _(server: Server) -> None:
    first, other = (server.shared(state) for state in ("valid", "lifetime"))
    if first.sha256 is None or first.sha256 == other.sha256:
        raise NotApplicableError("The seed command printed no sha256, or the same one.")
    content = fetch(server, link_of(server, other)).response.content
    expect(hashlib.sha256(content).hexdigest() == other.sha256, "expected the other product's file")


@CASES.case("link-no-key", "D-30", "The link does not contain the license key.")
def _(server: Server) -> None:
    key = server.shared("valid")
    url = link_of(server, key)
    groups = key.license_key.split("-")[1:]
    expect(not any(group in url for group in groups), "expected no part of the license key in the link")


@CASES.case("link-reusable", "D-30", "The link works more than once.")
def _(server: Server) -> None:
    url = link_of(server, server.shared("valid"))
    first, second = (fetch(server, url).response.content for _ in range(2))
    expect(first == second, "expected the same file twice")


@CASES.case("link-invalid-body", "D-31", "A changed link is answered 403 invalid_link with a message.")
def _(server: Server) -> None:
    for url in changed_links(link_of(server, server.shared("valid")))[-2:]:
        answer = server.get(url)
        expect_error(answer, 403, "invalid_link")
        expect(isinstance(answer.json().get("message"), str), f"expected a message\n{answer}")


@CASES.case("link-expired-body", "D-31", "A late link is answered 403 link_expired.")
def _(server: Server) -> None:
    expect_error(server.get(old_link(server)), 403, "link_expired")


@CASES.case(
    "link-revoked", "D-31", "After a revocation within the hour the link is answered 403 license_revoked."
)
def _(server: Server) -> None:
    key = server.new("valid")
    url = link_of(server, key)
    server.keys.act("revoke", key.license_key)
    expect_error(server.get(url), 403, "license_revoked")


@CASES.table(
    "file-header",
    "D-32",
    "The file has the header {0}.",
    [
        ("Content-Length", "Content-Length", lambda value, body: value == str(len(body))),
        ("Accept-Ranges", "Accept-Ranges", lambda value, _: value == "bytes"),
        ("ETag", "ETag", lambda value, _: value.startswith('"') and value.endswith('"')),
        ("Content-Disposition", "Content-Disposition", lambda value, _: value.startswith("attachment")),
    ],
)
def _(server: Server, name: str, is_right: Callable[[str, bytes], bool]) -> None:
    response = fetch(server, link_of(server, server.shared("valid"))).response
    value = response.headers.get(name, "")
    expect(is_right(value, response.content), f"{name} is {value!r}")


@CASES.case("file-range", "D-32", "A Range is answered 206 with these bytes.")
def _(server: Server) -> None:
    url = link_of(server, server.shared("valid"))
    whole = fetch(server, url).response.content
    answer = fetch(server, url, Range="bytes=3-")
    expect(answer.status == PARTIAL, f"expected 206, not {answer.status}")
    expect(answer.response.content == whole[3:], "expected the rest of the file")
    span = f"bytes 3-{len(whole) - 1}/{len(whole)}"
    expect(answer.response.headers.get("Content-Range") == span, f"expected Content-Range: {span}")


@CASES.table(
    "file-if-range",
    "D-32",
    "If-Range with {0} ETag: {1}.",
    [("the", PARTIAL), ("another", OK)],
)
def _(server: Server, status: int) -> None:
    url = link_of(server, server.shared("valid"))
    etag = fetch(server, url).response.headers.get("ETag", "") if status == PARTIAL else '"another"'
    answer = fetch(server, url, **{"Range": "bytes=3-", "If-Range": etag})
    expect(answer.status == status, f"expected {status}, not {answer.status}")
