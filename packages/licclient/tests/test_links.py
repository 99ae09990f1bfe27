import pytest
from stage.rules import settings

from licclient import Trust
from licclient._core.requests import (
    escape_link,
    is_loopback,
    is_protected,
    is_safe_link,
    origin,
    redirect_target,
)

HERE = [
    *("127.0.0.1:80", "127.8.9.1", "127.1", "2130706433", "0x7f.1", "0177.1", "0.0.0.0", "[::1]", "[::]"),  # noqa: S104 - nothing listens
    *("[::ffff:127.0.0.1]", "localhost", "LOCALHOST", "app.localhost", "localhost."),
]
"""Ways to write this machine's own address."""


@pytest.mark.parametrize(
    ("link", "safe"),
    [
        ("https://store.example/x", True),
        ("https://cdn.example/x", True),
        ("http://cdn.example/x", False),
        ("http://store.example/x", False),
        *((f"{scheme}://{host}/x", False) for scheme in ("http", "https") for host in HERE),
        ("http://127.0.0.1.evil.example/x", False),
        ("http://127.0.0.1@evil.example/x", False),
        ("https://user:pw@cdn.example/x", False),
        ("https:///x", False),
        ("https://x:99999/", False),
        ("https://cdn.example/a b", False),
        ("https://cdn.example/a\n", False),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
        ("/relative", False),
    ],
)
@pytest.mark.parametrize("server", ["https://store.example", "http://store.example"])
def test_where_a_file_may_come_from(link, server, safe):
    """Https, and not this machine, however the service itself is reached (D-53, D-172)."""
    assert is_safe_link(link, settings(server)) is safe


@pytest.mark.parametrize("host", HERE)
def test_a_file_may_come_from_this_machine_if_the_service_is_on_it(host):
    """As in development; an address elsewhere still has to be https (D-172)."""
    for scheme in ("http", "https"):
        assert is_safe_link(f"{scheme}://{host}/x", settings("http://127.0.0.1:8080"))
    assert is_safe_link("https://cdn.example/x", settings(f"http://{host}"))
    assert not is_safe_link("http://cdn.example/x", settings(f"http://{host}"))


@pytest.mark.parametrize(
    ("link", "safe"),
    [
        ("https://store.example/x", True),
        ("https://store.example:443/x", True),
        ("https://store.example:444/x", False),
        ("https://CDN.example/x", True),
        ("https://evil.example/x", False),
        ("https://cdn.example.evil.example/x", False),
        ("http://cdn.example/x", False),
        ("http://nas.local:8000/x", True),
        ("http://nas.local/x", False),
        ("http://127.0.0.1/x", False),
    ],
)
def test_an_app_that_names_origins_gets_files_from_nowhere_else(link, safe):
    """The service's own place and the named ones, to the port; a named one may be plain http (D-53)."""
    named = settings(trust=Trust(download_origins=["https://cdn.example/", "http://nas.local:8000"]))
    assert is_safe_link(link, named) is safe


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/b", "https://store.example/b"),
        ("https://cdn.example/b?s=1", "https://cdn.example/b?s=1"),
        ("//cdn.example/b", "https://cdn.example/b"),
        ("http://cdn.example/b", None),
        ("http://127.0.0.1/b", None),
        ("https://127.0.0.1/b", None),
        ("http://[", None),
        ("/Notes 2.0.zip", "https://store.example/Notes%202.0.zip"),
        (" https://cdn.example/b c?d=e f ", "https://cdn.example/b%20c?d=e%20f"),
        ("/Grüße.zip", "https://store.example/Gr%C3%BC%C3%9Fe.zip"),
        ("/a%20b%2Fc?sig=a+b%3D", "https://store.example/a%20b%2Fc?sig=a+b%3D"),
        ('/"<a>|{b}"', "https://store.example/%22%3Ca%3E%7C%7Bb%7D%22"),
        ("https://cdn.example b/", None),
    ],
)
def test_redirects_never_leave_https(location, target):
    """A redirect from https to http is not followed, not even to this machine."""
    assert redirect_target("https://store.example/a", location, settings()) == target


def test_redirects_stay_within_the_origins_that_the_app_named():
    """A service that was taken over cannot send the app elsewhere, also not in the second step."""
    named = settings(trust=Trust(download_origins=["https://cdn.example"]))
    assert redirect_target("https://store.example/a", "https://cdn.example/b", named)
    assert redirect_target("https://cdn.example/b", "https://evil.example/c", named) is None


@pytest.mark.parametrize(
    ("server", "link", "protected"),
    [
        ("https://store.example", "https://cdn.example/x", True),
        ("http://nas.local:8000", "http://nas.local:8000/x", True),
        ("http://nas.local:8000", "http://nas.local/x", False),
        ("https://nas.local:8000", "http://nas.local:8000/x", False),
        ("https://store.example", "http://127.0.0.1/x", False),
        ("https://store.example", "http://[", False),
    ],
)
def test_where_a_file_needs_no_digest(server, link, protected):
    """Https, or the very origin of the service (D-55)."""
    assert is_protected(link, settings(server)) is protected


def test_origins_have_one_spelling():
    """Case and a default port make no difference."""
    assert origin("HTTPS://A.example/x") == origin("https://a.example:443") == "https://a.example:443"


@pytest.mark.parametrize("link", ["http://[", "https://x/\n"])
def test_what_is_no_address_stays_as_it_is(link):
    """It is refused where it is used, and shown as it came."""
    assert escape_link(link) == link


@pytest.mark.parametrize(
    "host",
    ["127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "ｌocalhost", "LOCALHOST", "ip6-localhost", "localhost6"],
)
def test_this_machine_is_known_by_each_spelling_that_is_connected_to(host):
    """IDNA has four kinds of dots, and systems have names of their own."""
    assert is_loopback(host)
    assert not is_safe_link(f"https://{host}:8443/x", settings())


def test_other_hosts_with_such_letters_are_no_loopback():
    """An address of another script is a name like any other."""
    assert not is_loopback("例え。テスト")
    assert not is_loopback("10。0。0。1")


def test_what_is_no_address_is_not_escaped():
    """It is refused where it is used."""
    assert escape_link("http://[") == "http://["
    assert escape_link("http://a/\n") == "http://a/\n"
