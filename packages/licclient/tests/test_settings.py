from datetime import UTC, datetime, timedelta, timezone

import pytest

from licclient._settings import read_server


@pytest.mark.parametrize(
    ("given", "server"),
    [
        ("https://Store.Example/", "https://store.example"),
        ("HTTPS://store.example:443/shop//", "https://store.example/shop"),
        ("http://store.example:80", "http://store.example"),
        ("http://[::1]:8080/a", "http://[::1]:8080/a"),
    ],
)
def test_spellings_of_one_server_are_one(given, server):
    """Case, default ports and trailing slashes make no difference to what is remembered."""
    assert read_server(given) == server


@pytest.mark.parametrize(
    "url",
    [
        "", "store.example", "ftp://store.example", "https://", "https:///x", "https://a b", "https://x/\n",
        "https://x?y=1", "https://x?", "https://x#y", "https://user:pw@x", "https://x:99999", "https://[::1",
    ],
)  # fmt: skip
def test_a_base_url_must_be_one(flavour, url):
    """What cannot be a service's address is refused at construction, without repeating a password."""
    with pytest.raises(ValueError, match="base_url") as caught:
        flavour(url)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"cache_for": timedelta(hours=23)}, ValueError),
        ({"cache_for": timedelta.max}, ValueError),
        ({"cache_for": 86400}, TypeError),
        ({"check_every": timedelta(hours=11)}, ValueError),
        ({"grace": timedelta(seconds=-1)}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": True}, TypeError),
        ({"timeout": "10"}, TypeError),
        ({"product": " "}, ValueError),
        ({"slug": 5}, TypeError),
        ({"version": "1\n"}, ValueError),
        ({"domain": "d" * 254}, ValueError),
        ({"clock": datetime(2026, 1, 1, tzinfo=UTC)}, TypeError),
        ({"state_dir": 5}, TypeError),
    ],
)
def test_bad_settings_are_told_at_once(flavour, options, error):
    """A wrong value is an error of the constructor, not of the first call."""
    with pytest.raises(error):
        flavour("https://store.example", **options)


def test_a_base_url_is_a_string(flavour):
    """Anything else is a type error."""
    with pytest.raises(TypeError, match="base_url"):
        flavour(None)


async def test_a_timeout_may_be_a_timedelta(make_client, service, key):
    """Seconds or a span, as the app likes."""
    service.grants()
    assert (await make_client(timeout=timedelta(seconds=3)).verify(key)).product == "Notes"


@pytest.mark.parametrize(("now", "error"), [(datetime(2026, 1, 1), ValueError), ("noon", TypeError)])  # noqa: DTZ001
async def test_a_clock_must_show_instants(make_client, key, now, error):
    """A naive time is no instant, and is told as such."""
    with pytest.raises(error, match="clock"):
        await make_client(clock=lambda: now).verify(key)


async def test_a_clock_may_show_any_zone(make_client, service, key):
    """What counts is the instant."""
    service.grants()
    zone = timezone(timedelta(hours=9))
    now = datetime(2026, 11, 21, 21, tzinfo=zone)
    assert (await make_client(clock=lambda: now).verify(key)).checked_at.tzinfo is UTC
