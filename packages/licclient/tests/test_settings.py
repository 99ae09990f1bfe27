import asyncio
import inspect
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.releases import ALICE, Signer

from licclient import AsyncLicenseClient, ClientSettings, LicenseClient, Trust, Updates
from licclient._core.kinds import InstallationKind
from licclient._core.settings import GROUPS, _is_plain_server, _parse_server, read_server, read_settings
from licclient.testing import MemoryStorage

PIN = ALICE.pin


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


@given(
    st.text("aA1.-/:@?#[]%_~ é", max_size=20) | st.sampled_from(["x/api/v1", "x/api/v1/", "x//", ".", "/"])
)
def test_a_plain_address_is_read_as_by_the_parser(place):
    """The short way accepts nothing that the parser refuses, and reads it as the parser does."""
    url = f"https://{place}"
    if _is_plain_server(url):
        assert read_server(url) == _parse_server(url)


@pytest.mark.parametrize("url", ["https://store.example", "https://licenses.store.example/shop/v2/"])
def test_a_usual_address_takes_the_short_way(url):
    """It is read without `urllib.parse`, which a start from the cache needs for nothing else."""
    assert _is_plain_server(url)


@pytest.mark.parametrize(
    "url",
    [
        "", "store.example", "ftp://store.example", "https://", "https:///x", "https://a b", "https://x/\n",
        "https://x?y=1", "https://x?", "https://x#y", "https://user:pw@x", "https://x:99999", "https://[::1",
    ],
)  # fmt: skip
def test_a_base_url_must_be_one(url):
    """What cannot be a service's address is refused at construction."""
    with pytest.raises(ValueError, match="base_url"):
        LicenseClient(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("localhost:8080", "'localhost:8080' has no scheme; type 'http://localhost:8080'"),
        ("http:/localhost:8080", "'http:/localhost:8080' has no scheme; type 'http://localhost:8080'"),
        (
            "https://store.example/api/v1/",
            "without /api/v1, which the client adds: type 'https://store.example'",
        ),
        ("https://a.example:444/b/api/v1/licenses/verify", "the client adds: type 'https://a.example:444/b'"),
        ("store.example/shop", "'store.example/shop' has no scheme; type 'https://store.example/shop'"),
        ("ftp://x", "not 'ftp://x'"),
        ("https://a b", r"'https://a b'"),
        ("https://anna:pw@x", "user name or password: 'https://…@x'"),
        ("https://anna:p/w@x", "'https://…@x'"),
        ("https://anna:pw?@x/\n", "'https://…@x/"),
        ("anna:pw@x", "with a host, not '…@x'"),
        ("https://x?token=pw", r"'https://x\?…'"),
        ("https://x#pw", "'https://x#…'"),
        ("CP-ABCDEF-ABCDEF", "'CP-…'"),
    ],
)
def test_a_refused_base_url_is_shown_without_what_is_secret(url, shown):
    """A developer sees which of his settings it is, and what to type; no password gets into a log."""
    with pytest.raises(ValueError, match=shown) as caught:
        LicenseClient(url)
    assert not [part for part in ("pw", "p/w", "anna", "ABCDEF") if part in str(caught.value)]
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


BAD = [
    ({"cache_for": timedelta(hours=23)}, ValueError, "cache_for"),
    ({"cache_for": timedelta.max}, ValueError, "cache_for"),
    ({"cache_for": "24 h"}, TypeError, "cache_for must be seconds or a timedelta"),
    ({"cache_for": 86399}, ValueError, "cache_for must be at least 1 day"),
    ({"grace": True}, TypeError, "grace"),
    ({"check_every": timedelta(hours=11)}, ValueError, "check_every"),
    ({"grace": timedelta(seconds=-1)}, ValueError, "grace"),
    ({"timeout": 0}, ValueError, "timeout"),
    ({"timeout": float("nan")}, ValueError, "timeout"),
    ({"timeout": True}, TypeError, "timeout"),
    ({"timeout": "10"}, TypeError, "timeout"),
    ({"product": " "}, ValueError, "product"),
    ({"platform": "Windows 11"}, ValueError, "platform must be"),
    ({"platform": 64}, TypeError, "platform must be a string"),
    ({"kind": "exe"}, ValueError, "kind must be one of app, appimage, folder, inno, msi, nsis"),
    ({"kind": 64}, TypeError, "kind must be a string"),
    ({"buy": "example.com/buy"}, ValueError, "buy must be an address"),
    ({"slug": 5}, TypeError, "slug"),
    *(
        ({"slug": wrong}, ValueError, "slug must be the product's slug, not its name: letters")
        for wrong in ("Notes Pro", "notes/pro", "Nötes")
    ),
    ({"label": 5}, TypeError, "label must be a string, not int"),
    ({"version": "1\n"}, ValueError, "version"),
    ({"domain": "d" * 254}, ValueError, "domain"),
    ({"clock": datetime(2026, 1, 1, tzinfo=UTC)}, TypeError, "clock"),
    ({"storage": 5}, TypeError, "storage must be the path of a folder, or have load.* not int"),
    ({"storage": b"state"}, TypeError, "storage must be .* not bytes"),
    ({"storage": __file__}, ValueError, "storage must be the path of a folder, and there is a file"),
    *(({"storage": blank}, ValueError, "storage must be the path of a folder") for blank in ("", " ", "a\0")),
    ({"download_origins": "https://cdn.example"}, TypeError, "download_origins"),
    ({"download_origins": [7]}, TypeError, "download_origins"),
    *(
        ({"download_origins": [named]}, ValueError, "download_origins")
        for named in (
            "cdn.example",
            "ftp://x.example",
            "https://x.example/p",
            "https://u@x.example",
            "",
            "https://",
        )
    ),
    # An empty list would switch the check off, and an address that is rewritten fits no signature.
    ({"public_keys": PIN}, TypeError, "must be a list of keys"),
    ({"public_keys": []}, ValueError, "leave it out to pin none"),
    ({"public_keys": [7]}, TypeError, "public_keys must hold strings, not int"),
    ({"public_keys": ["ed25519:nonsense"]}, ValueError, "public_keys must hold public keys .*: ed25519:"),
    ({"public_keys": [Signer(bytes([seed]) * 32).pin for seed in range(17)]}, ValueError, "1 to 16"),
    ({"public_keys": [PIN], "base_url": "https://münchen.example"}, ValueError, "xn--"),
    ({"public_keys": [PIN], "base_url": "https://x.example/a/../b"}, ValueError, r"without /\."),
    ({"require_digest": None}, TypeError, "require_digest must be True or False"),
    ({"hand_over": "WinSparkle"}, TypeError, "hand_over must be callable"),
    ({"release_keys": PIN}, TypeError, "release_keys"),
    ({"release_keys": []}, ValueError, "release_keys must hold"),
    ({"release_keys": ["ed25519:x"]}, ValueError, "release_keys must hold public keys"),
    ({"base_url": None}, TypeError, "base_url"),
]


def grouped(options):
    """Return arguments of a client, those of a group within it."""
    found = dict(options)
    for name, kind in GROUPS.items():
        own = {field.name: found.pop(field.name) for field in fields(kind) if field.name in found}
        if own:
            found[name] = kind(**own)
    return found


@pytest.mark.parametrize(("options", "error", "words"), BAD, ids=range(len(BAD)))
def test_a_bad_setting_is_an_error_of_the_constructor(options, error, words):
    """A slip must not wait for the first call, and must not switch a check off."""
    with pytest.raises(error, match=words):
        LicenseClient(**grouped({"base_url": "https://store.example", **options}))


@pytest.mark.parametrize("setting", ["public_keys", "release_keys"])
def test_a_pin_without_the_library_is_refused_at_once(monkeypatch, setting):
    """The error names the extra to install; without a pin nothing is needed."""
    monkeypatch.setattr("licclient._core.public_keys.find_spec", lambda name: None)
    LicenseClient("https://x.example")
    with pytest.raises(ImportError, match=rf"{setting} needs .* pip install 'licclient\[signed\]'"):
        LicenseClient("https://x.example", trust=Trust(**{setting: [PIN]}))


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("grace", r"; did you mean trust=Trust\(grace=…\)\?"),
        ("public_key", r"; did you mean trust=Trust\(public_keys=…\)\?"),
        ("chanels", r"; did you mean updates=Updates\(channels=…\)\?"),
        ("buy_url", r"; did you mean pages=Pages\(buy=…\)\?"),
        ("state_dir", r"; did you mean storage=\?"),
        ("prodct", r"; did you mean product=\?"),
        ("xyz", ""),
    ],
)
@pytest.mark.parametrize("kind", [LicenseClient, AsyncLicenseClient, ClientSettings])
def test_an_argument_that_is_none_is_named_with_the_one_to_use(kind, name, advice):
    """By the name of what was called; an argument of a group with its group."""
    with pytest.raises(TypeError, match=f"^{kind.__name__} has no argument '{name}'{advice}$"):
        kind("https://x.example", **{name: 1})


@pytest.mark.parametrize("kind", [LicenseClient, AsyncLicenseClient, ClientSettings])
def test_arguments_but_the_first_are_passed_by_name(kind):
    """And the first is needed."""
    with pytest.raises(TypeError, match=f"^{kind.__name__}: all arguments but base_url are passed by name"):
        kind("https://x.example", "Notes")
    with pytest.raises(TypeError, match=f"^{kind.__name__} needs base_url$"):
        kind(product="Notes")


@pytest.mark.parametrize(("name", "kind"), GROUPS.items())
def test_a_group_knows_its_own_arguments(name, kind):
    """A slip names its own argument, one of another group that group; another type the class to use."""
    with pytest.raises(TypeError, match=f"^{kind.__name__}: all arguments are passed by name, such as "):
        kind("x")
    first = fields(kind)[0].name
    with pytest.raises(TypeError, match=f"has no argument '{first}x'; did you mean {first}=…\\?$"):
        kind(**{f"{first}x": 1})
    with pytest.raises(TypeError, match=r"did you mean (trust=Trust|updates=Updates)\("):
        kind(**{"channels" if name != "updates" else "grace": 1})
    with pytest.raises(TypeError, match=rf"^{name} must be {kind.__name__}\(…\) of licclient, not dict$"):
        LicenseClient("https://x.example", **{name: {first: 1}})


@pytest.mark.parametrize("kind", [LicenseClient, AsyncLicenseClient])
def test_the_signature_shows_every_argument(kind):
    """With its default, at most ten beside the groups; those of the settings, clock and transport."""
    parameters = inspect.signature(kind).parameters
    assert all(
        parameter.kind is parameter.KEYWORD_ONLY
        for name, parameter in parameters.items()
        if name != "base_url"
    )
    assert len(parameters) <= 10 + len(GROUPS)
    settings = inspect.signature(ClientSettings).parameters
    assert set(parameters) == {*settings, "clock", "transport"}
    for name in settings:
        assert repr(parameters[name].default) in (repr(settings[name].default), f"{name.title()}()"), name


def test_spans_are_seconds_or_timedeltas():
    """All of them alike."""
    given = ClientSettings(
        "https://x.example",
        timeout=5,
        trust=Trust(cache_for=90_000, grace=0.5),
        updates=Updates(check_every=50_000),
    )
    read = read_settings(given)
    assert (read.timeout, read.cache_for) == (timedelta(seconds=5), timedelta(seconds=90_000))
    assert (read.grace, read.check_every) == (timedelta(seconds=0.5), timedelta(seconds=50_000))


def test_what_is_passed_beside_settings_replaces_its_own(tmp_path):
    """Also by None; the others stay, and so do the settings."""
    given = ClientSettings("https://x.example", product="Notes", label="Anna", timeout=3, storage=tmp_path)
    client = LicenseClient(given, label=None, timeout=10.0)
    assert client.settings == replace(given, label=None, timeout=10.0)
    assert client.state_folder == tmp_path
    assert LicenseClient(client.settings).settings == client.settings


def test_a_kind_of_file_is_one_of_those_that_are_published():
    """As a text or as the enum's member."""
    for kind in ("msi", InstallationKind.MSI):
        given = ClientSettings("https://x.example", updates=Updates(kind=kind))
        assert read_settings(given).kind is InstallationKind.MSI


def test_a_key_named_twice_is_one():
    """The service is asked for its signature once."""
    client = LicenseClient("https://x.example", trust=Trust(public_keys=iter([PIN, PIN])))
    assert len(client._session.settings.public_keys) == 1


async def test_a_timeout_may_be_a_timedelta(make_client, service, key):
    """Seconds or a span, as the app likes."""
    service.grants()
    assert (await make_client(timeout=timedelta(seconds=3)).verify(key)).product == "Notes"


@pytest.mark.parametrize(("now", "error"), [(datetime(2026, 1, 1), ValueError), ("noon", TypeError)])  # noqa: DTZ001
async def test_a_clock_must_show_instants(make_client, key, now, error):
    """A naive time is rejected with a message that says so."""
    with pytest.raises(error, match="clock"):
        await make_client(clock=lambda: now).verify(key)


async def test_a_clock_may_show_any_zone(make_client, service, key):
    """What counts is the instant."""
    service.grants()
    zone = timezone(timedelta(hours=9))
    now = datetime(2026, 11, 21, 21, tzinfo=zone)
    assert (await make_client(clock=lambda: now).verify(key)).checked_at.tzinfo is UTC


def test_the_network_and_the_disk_can_be_replaced(key, tmp_path, monkeypatch):
    """With `transport` and `storage` no socket and no file is opened; the storage is shared."""
    monkeypatch.setenv("HOME", str(tmp_path))
    body = {"valid": True, "product": "Notes", "expiry": None, "lifetime": True}
    requests = []

    def respond(request):
        requests.append(request)
        return httpx.Response(200, json=body)

    edges = {"transport": httpx.MockTransport(respond), "storage": MemoryStorage()}
    given = ClientSettings("https://licenses.invalid", product="Notes")
    assert LicenseClient(given, **edges).activate(key).product == "Notes"
    assert asyncio.run(AsyncLicenseClient(given, **edges).verify(force=True)).product == "Notes"
    assert LicenseClient(given.base_url, product="Notes", **edges).require().product == "Notes"
    assert len(requests) == 2
    assert list(tmp_path.iterdir()) == []
    for slip in ({"transport": object()}, {"storage": {}}, {"prodct": "Notes"}):
        with pytest.raises(TypeError):
            LicenseClient(given, **slip)


KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
LABELS = {
    None: None,
    " \n": None,
    " Anna's\tMac\u3000\x1b[1m\ud800 ": "Anna's Mac [1m",
    "x" * 79 + " yz": "x" * 79,
    f"of {KEY.lower()}!": "of CP-…!",
}


@pytest.mark.parametrize(("typed", "sent"), LABELS.items(), ids=repr)
def test_a_label_is_repaired_and_never_refused(typed, sent):
    """It is what a customer typed: off when blank, one printable line, not too long, without a key."""
    given = ClientSettings("https://licenses.invalid", label=typed, version="1.4.0")
    expected = {} if sent is None else {"label": sent, "app_version": "1.4.0"}
    assert read_settings(given).machine == expected
    assert "Anna" not in repr(given) + repr(read_settings(given))


def test_a_version_that_the_client_does_not_know_is_not_sent():
    """Then the label goes alone."""
    assert read_settings(ClientSettings("https://licenses.invalid", label="Mac")).machine == {"label": "Mac"}


@pytest.mark.parametrize(
    ("channels", "error"),
    [
        ("beta", TypeError),
        ([7], TypeError),
        (["Beta"], ValueError),
        ([f"c{number}" for number in range(17)], ValueError),
    ],
)
def test_channels_are_a_list_of_names(channels, error):
    """A text alone would be its letters; a channel twice is one."""
    with pytest.raises(error, match="channels"):
        read_settings(
            ClientSettings("https://store.example", slug="notes", updates=Updates(channels=channels))
        )
    twice = ClientSettings("https://store.example", slug="notes", updates=Updates(channels=["beta", "beta"]))
    assert read_settings(twice).channels == ("beta",)


@pytest.mark.parametrize(
    ("options", "required"), [({}, False), ({"require_digest": True}, True), ({"release_keys": [PIN]}, True)]
)
def test_pinned_release_keys_require_a_digest(options, required):
    """A file that cannot be verified is then no file, whatever the app passed (D-55)."""
    given = ClientSettings("https://store.example", trust=Trust(**options))
    assert read_settings(given).require_digest is required


def test_an_address_and_a_text_have_a_length():
    """A pasted file is neither."""
    with pytest.raises(ValueError, match="base_url must have at most"):
        read_server("https://store.example/" + "a" * 10_000)
    for product, flaw in (("a" * 10_000, "must have at most"), ("\ud800", "must be readable text")):
        with pytest.raises(ValueError, match=f"product {flaw}"):
            LicenseClient("https://store.example", product=product)
