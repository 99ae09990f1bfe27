"""The system's proxies: what they name for the service's address holds, and nothing else is in the way."""

import pytest
from stage.flavours import both

from licclient._core.network import system_proxy
from licclient.errors import ServiceUnavailableError

pytestmark = pytest.mark.filterwarnings("ignore:base_url is http")
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def proxied(monkeypatch):
    """Sets the environment's proxies, as a system does, and no others."""

    def set_proxies(http="", **others: str):
        proxies = {"http_proxy": http, **others}
        for name in NAMES:
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        for name, value in proxies.items():
            monkeypatch.setenv(name.upper(), value)

    return set_proxies


@both
async def test_the_systems_proxy_is_used(make_client, service, proxied, key):
    """Behind a company's proxy the call goes to it, and the license comes through it."""
    service.grants()
    proxied(service.url)
    assert (await make_client("http://store.invalid").verify(key)).product == "Notes"
    assert service.requests[0].headers["host"] == "store.invalid"


@pytest.mark.parametrize(
    "others",
    [
        {"https_proxy": "nonsense://x", "all_proxy": "socks5://127.0.0.1:1"},
        {"no_proxy": "localhost,127.0.0.0/8,::1,fe80::/10,2001:db8::/32"},
        {"no_proxy": "[::1]:80,http://[,:::,  ,"},
    ],
)
async def test_a_setting_for_something_else_is_in_nobodys_way(make_client, service, proxied, key, others):
    """Settings that httpx cannot read, for other schemes or networks, do not matter: desktops set them."""
    service.grants()
    proxied(service.url, **others)
    assert (await make_client("http://store.invalid").verify(key)).product == "Notes"


@both
async def test_a_network_is_excepted_from_the_proxy(make_client, service, proxied, key):
    """As curl and others read it: the call goes straight to the service, and so does the doctor."""
    service.grants()
    proxied("http://127.0.0.1:1", no_proxy="10.0.0.0/8,127.0.0.0/8")
    client = make_client()
    assert (await client.verify(key)).product == "Notes"
    assert "proxy:         none" in await client.diagnose()


@both
@pytest.mark.parametrize(
    "proxy", ["http://127.0.0.1:1", "nonsense://x", "http://[", "http://h:port", "socks4://h"]
)
async def test_a_bad_proxy_setting_is_an_outage(make_client, proxied, key, proxy):
    """Whatever the environment says, only our own errors get out."""
    proxied(proxy)
    with pytest.raises(ServiceUnavailableError) as caught:
        await make_client("http://store.invalid", timeout=2).verify(key)
    assert key not in repr(caught.value)


@pytest.mark.parametrize(
    "proxy", ["nonsense://me:secret@x", "http://me:secret@h:port", "socks5://me:secret@x"]
)
async def test_who_reads_the_error_knows_that_it_is_the_proxy(make_client, proxied, key, proxy):
    """It names the setting to look at, and not the password in it; so does the doctor."""
    proxied(proxy)
    client = make_client("http://store.invalid", timeout=2)
    with pytest.raises(ServiceUnavailableError, match="The proxy in this computer's settings") as caught:
        await client.verify(key)
    assert "secret" not in repr(caught.value)
    report = await client.diagnose()
    assert "service:       The proxy in this computer's settings" in report
    assert "secret" not in report


async def test_a_proxy_that_lets_nobody_through_is_named(make_client, service, proxied, key):
    """One that wants a name and a password first is no trouble of the license service."""
    service.responds(407)
    proxied(https_proxy=service.url)
    with pytest.raises(
        ServiceUnavailableError, match="proxy in this computer's settings did not let the call"
    ):
        await make_client("https://store.invalid").verify(key)
    assert service.requests[0].method == "CONNECT"


@pytest.mark.parametrize(
    ("url", "proxies", "proxy"),
    [
        ("https://a.example/x", {}, None),
        ("https://a.example/x", {"http": "http://p:1"}, None),
        ("https://a.example/x", {"https_proxy": "p:1"}, "http://p:1"),
        ("https://a.example/x", {"all_proxy": "https://p"}, "https://p"),
        ("https://a.example/x", {"https_proxy": "http://p", "all_proxy": "http://q"}, "http://p"),
        ("https://a.example/x", {"https_proxy": "http://p", "no_proxy": "b.example"}, "http://p"),
        ("https://a.example/x", {"https_proxy": "http://p", "no_proxy": "b.example, .example"}, None),
        ("https://a.example/x", {"https_proxy": "http://p", "no_proxy": "b.example,*"}, None),
        ("https://a.example:8443/x", {"https_proxy": "http://p", "no_proxy": "a.example:8443"}, None),
        ("https://a.example:8444/x", {"https_proxy": "http://p", "no_proxy": "a.example:8443"}, "http://p"),
        ("http://[::1]/x", {"http": "http://p", "no_proxy": "::1"}, None),
        ("http://10.1.2.3/x", {"http": "http://p", "no_proxy": "10.0.0.0/8"}, None),
        ("http://10.1.2.3:81/x", {"http": "http://p", "no_proxy": "10.0.0.0/8"}, None),
        ("http://11.1.2.3/x", {"http": "http://p", "no_proxy": "10.0.0.0/8"}, "http://p"),
        ("http://10.1.2.3/x", {"http": "http://p", "no_proxy": "10.1.2.7/24,b.example"}, None),
        ("http://10.1.2.3/x", {"http": "http://p", "no_proxy": "10.0.0.0/99, x/8, /"}, "http://p"),
        ("http://a.example/x", {"http": "http://p", "no_proxy": "10.0.0.0/8"}, "http://p"),
        ("http://[2001:db8::7]/x", {"http": "http://p", "no_proxy": "2001:db8::/32"}, None),
        ("http://[2001:db9::7]/x", {"http": "http://p", "no_proxy": "2001:db8::/32,10.0.0.0/8"}, "http://p"),
        ("http://a.b.example/x", {"http": "http://p", "no_proxy": "*.example"}, None),
        ("http://a.b.Example/x", {"http": "http://p", "no_proxy": "x, *.B.EXAMPLE"}, None),
        ("http://badexample/x", {"http": "http://p", "no_proxy": "*.example"}, "http://p"),
        ("http://192.168.1.9/x", {"http": "http://p", "no_proxy": "192.168.1.*"}, None),
        ("http://a.example/x", {"http": "http://p", "no_proxy": "b.example *.example"}, None),
        ("http://[::1]:80/x", {"http": "http://p", "no_proxy": "[::1]:80"}, None),
    ],
)
def test_which_proxy_is_for_an_address(proxied, url, proxies, proxy):
    """The scheme's own before the one for all; none for hosts, domains and ports that are excepted."""
    proxied(**proxies)
    assert system_proxy(url) == proxy
