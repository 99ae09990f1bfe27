"""What a license grants: as it is read, remembered and asked for."""

import copy
import json
import pickle
from dataclasses import asdict

import pytest
from stage.flavours import both

from licclient import ClientSettings, Entitlements, LicenseClient, Quota, Source, Trust, explain
from licclient._core.model import is_entitlement_name, read_entitlements, write_entitlements
from licclient.errors import NotEntitledError

SETTINGS = ClientSettings("https://licenses.example.com", product="Notes")
GRANTED = {"export": True, "exports": Quota(100, "month"), "projects": 50, "region": "eu", "sync": False}


def test_what_is_of_no_known_type_is_left_out():
    """A newer or broken service never makes a good license fail."""
    sent = {
        "a": True,
        "b": 0,
        "c": "x",
        "d": {"limit": 0, "per": "day"},
        "Name": 1,
        "e f": 1,
        "f": None,
        "g": 1.5,
        "h": -1,
        "i": [],
        "j": {"limit": 1},
        "k": {"limit": True, "per": "day"},
        "l": {"limit": -1, "per": "day"},
        "m": {"limit": 1, "per": "week"},
        "n": "\ud800",
        "o": "a\nb",
    }
    assert read_entitlements(sent) == {"a": True, "b": 0, "c": "x", "d": Quota(0, "day")}
    for nothing in (None, [], "export", 7):
        assert read_entitlements(nothing) == {}


def test_a_mapping_that_nobody_changes():
    """It compares, copies, pickles and prints like a dictionary, and cannot be changed."""
    granted = Entitlements(GRANTED)
    assert read_entitlements(json.loads(json.dumps(write_entitlements(granted)))) == granted == GRANTED
    assert pickle.loads(pickle.dumps(granted)) == copy.deepcopy(granted) == granted  # noqa: S301
    assert (granted["projects"], granted.get("absent", 3), len(granted), "export" in granted) == (
        *(50, 3, 5, True),
    )
    assert repr(Entitlements({"a": 1})) == "Entitlements({'a': 1})"
    assert not hasattr(granted, "__setitem__")


def test_a_feature_is_on():
    """By a flag, a number, a text or a quota that is not 0."""
    granted = Entitlements({**GRANTED, "none": 0, "spent": Quota(0, "day"), "blank": ""})
    on = [name for name in (*granted, "absent") if granted.grants(name)]
    assert on == ["export", "exports", "projects", "region"]


def test_a_key_is_no_name():
    """What is given in its place by mistake is told apart."""
    assert is_entitlement_name("a.b-c_1")
    assert not any(map(is_entitlement_name, ("CP-ABC123", "", "a b", "x" * 41, 7, None)))


@pytest.fixture
def app(flavour, drive, license_service):
    """The app's client, of either class."""
    make = license_service.client if flavour is LicenseClient else license_service.async_client
    return drive(make(SETTINGS))


@both
async def test_a_license_carries_them(app, license_service, license_clock):
    """From the answer, from the cache, and through an outage; a change arrives with the next answer."""
    key = license_service.issue("Notes", entitlements=GRANTED, activated=True)
    assert (await app.verify()).entitlements == GRANTED
    known = await app.verify()
    assert (known.source, known.entitlements) == (Source.CACHE, GRANTED)
    assert asdict(known)["entitlements"] == GRANTED
    license_service.entitle(key, {"export": False})
    with license_service.offline():
        license_clock.move(hours=25)
        assert (await app.verify()).entitlements == GRANTED
    assert (await app.verify()).entitlements == {"export": False}


async def test_a_signed_answer_carries_them(license_service):
    """With pinned keys they are read from what was signed, also from the disk."""
    license_service.issue("Notes", entitlements=GRANTED, activated=True)
    for source in (Source.SERVER, Source.CACHE):
        client = license_service.client(SETTINGS, trust=Trust(public_keys=[license_service.public_key]))
        found = client.verify()
        assert (found.source, found.is_authenticated, found.entitlements) == (source, True, GRANTED)


async def test_a_vendor_who_grants_nothing(license_service):
    """The mapping is empty, and `require` with a name refuses."""
    license_service.issue("Notes", activated=True)
    client = license_service.client(SETTINGS)
    assert client.verify().entitlements == {}
    with pytest.raises(NotEntitledError):
        client.require("export")


@both
async def test_what_is_required(app, license_service):
    """The error names the entitlement, and is explained in the person's language."""
    license_service.issue("Notes", entitlements=GRANTED, activated=True)
    for _ in ("from the server", "from the cache"):
        assert (await app.require("export")).entitlements == GRANTED
        with pytest.raises(NotEntitledError) as caught:
            await app.require("sync")
    assert caught.value.entitlement == "sync"
    assert explain(caught.value, "de") == "Ihre Lizenz enthält diese Funktion nicht."
    assert pickle.loads(pickle.dumps(caught.value)).entitlement == "sync"  # noqa: S301
    for slip in ("CP-ABC123-DEF456-GHI789-JKL012-MNO345", "", 7):
        with pytest.raises(TypeError, match="goes to verify"):
            await app.require(slip)


@both
async def test_a_function_needs_a_feature(app, license_service):
    """Its error goes to `otherwise`; a license that comes from there must include the feature, too."""
    key = license_service.issue("Notes", entitlements=GRANTED, activated=True)

    @app.client.licensed("export")
    async def export():
        return "exported"

    @app.client.licensed("sync", otherwise=lambda problem: problem.entitlement)
    async def sync():
        return "synced"

    assert (await export(), await sync()) == ("exported", "sync")
    found = await app.verify()

    @app.client.licensed("sync", otherwise=lambda _: found)
    async def again():
        return "synced"

    with pytest.raises(NotEntitledError):
        await again()
    license_service.entitle(key, {"sync": True})
    found = await app.verify(force=True)
    assert await again() == "synced"


def test_a_plain_function_needs_a_feature(license_service):
    """The synchronous client decorates `def` as well."""
    license_service.issue("Notes", entitlements=GRANTED, activated=True)
    client = license_service.client(SETTINGS)
    found = client.verify()
    assert client.licensed("export")(lambda: "ran")() == "ran"
    with pytest.raises(NotEntitledError):
        client.licensed("sync", otherwise=lambda _: found)(lambda: "ran")()
