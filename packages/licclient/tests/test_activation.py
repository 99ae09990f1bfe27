import inspect
from datetime import timedelta

import pytest
from stage.flavours import asynchronous, both

from licclient import Source
from licclient.errors import KeyFlaw, LicenseRefusedError, MistypedKeyError, NotActivatedError

OTHER_KEY = "CP-ZZZ999-ZZZ999-ZZZ999-ZZZ999-ZZZ999"


def _files(folder):
    return {path.name.partition("-")[0]: path for path in folder.iterdir()}


async def test_a_key_is_entered_once(make_client, service, clock, key):
    """After `activate` neither this process nor the next needs the key again."""
    service.grants()
    client = make_client()
    typed = f" {key.lower().replace('-', ' – ')} "
    assert (await client.activate(typed)).source is Source.SERVER
    assert service.requests[0].json["license_key"] == key
    assert (await client.verify()).source is Source.CACHE
    clock.move(hours=25)
    assert (await make_client().verify()).source is Source.SERVER
    assert service.requests[1].json["license_key"] == key
    service.offers("2.0")
    assert (await make_client().check_for_update()).update.version == "2.0"
    assert service.requests[2].query["license_key"] == key


async def test_what_cannot_be_a_key_is_rejected_before_any_call(client, service, key):
    """A slip of the pen costs no call, and the error says what is wrong (D-57)."""
    with pytest.raises(MistypedKeyError) as caught:
        await client.activate(key[:-2])
    assert (caught.value.flaw, caught.value.detail) == (KeyFlaw.TOO_SHORT, "2")
    assert str(caught.value) == "The license key is incomplete. Characters missing: 2"
    assert service.requests == []


async def test_a_key_that_is_refused_is_not_remembered(client, service, key):
    """What was activated before stays; a refused key takes no one's place."""
    service.refuses(404, "License not found.")
    with pytest.raises(LicenseRefusedError):
        await client.activate(key)
    with pytest.raises(NotActivatedError):
        await client.verify()
    service.grants()
    await client.activate(key)
    service.refuses(404, "License not found.")
    with pytest.raises(LicenseRefusedError):
        await client.activate(OTHER_KEY)
    assert (await client.verify()).source is Source.CACHE


async def test_a_new_key_takes_the_place_of_the_old(make_client, service, key):
    """Who enters another good key uses that one from then on."""
    service.grants()
    await make_client().activate(key)
    await make_client().activate(OTHER_KEY)
    await make_client().verify(force=True)
    assert service.requests[-1].json["license_key"] == OTHER_KEY


async def test_deactivating_forgets(make_client, service, key, tmp_path):
    """Afterwards there is no key, no success and no outcome on the disk, and the id stays for next time."""
    service.grants()
    client = make_client()
    await client.activate(key)
    await client.forget_key()
    with pytest.raises(NotActivatedError):
        await client.verify()
    with pytest.raises(NotActivatedError):
        await make_client().verify()
    assert "activation" not in _files(tmp_path / "state")
    assert not list((tmp_path / "state").glob("license-*.state"))
    await client.forget_key()  # twice is no mistake
    await client.activate(key)
    assert [request.json["domain"] for request in service.requests][0:1] * 2 == [
        request.json["domain"] for request in service.requests
    ]


async def test_apps_of_one_vendor_have_a_key_each(make_client, service, key):
    """In one folder, two products do not take each other's keys; naming a product later finds the old one."""
    service.grants("Notes")
    await make_client(product="Notes", slug="notes").activate(key)
    with pytest.raises(NotActivatedError):
        await make_client(product="Photos", slug="photos").verify()
    nameless = {"product": None, "slug": None, "version": None}
    await make_client(**nameless).activate(OTHER_KEY)
    assert (await make_client(product="Notes", slug="tables").verify()).product == "Notes"


async def test_an_app_that_passes_another_domain_keeps_its_key(make_client, service, key):
    """The key is remembered, and asked about for the new domain."""
    service.grants()
    await make_client(domain="a.example").activate(key)
    assert (await make_client(domain="b.example").verify()).source is Source.SERVER
    assert service.requests[-1].json == {"license_key": key, "domain": "b.example", "ip": "127.0.0.1"}


# --- require ----------------------------------------------------------------------------------


def test_require_gates_a_function(client, service, key):
    """As a decorator it lets the function run, with its arguments and its name, only with a license."""
    done, app = [], client.client

    @app.licensed
    def export(path, *, dpi):
        """Export."""
        done.append((path, dpi))
        return "exported"

    assert (export.__name__, export.__doc__) == ("export", "Export.")
    with pytest.raises(NotActivatedError):
        export("a.png", dpi=300)
    service.grants()
    app.activate(key)
    assert export("a.png", dpi=300) == "exported"
    service.refuses(403, "License has been revoked.")
    with pytest.raises(LicenseRefusedError):
        app.verify(force=True)
    with pytest.raises(LicenseRefusedError):
        export("b.png", dpi=300)
    assert done == [("a.png", 300)]
    assert (
        app.licensed(otherwise=lambda problem: type(problem).__name__)(lambda: "open")()
        == "LicenseRefusedError"
    )


async def instead(problem):
    """Stand in for a feature that is locked."""
    return type(problem).__name__


@pytest.mark.parametrize("otherwise", [instead, lambda problem: type(problem).__name__])
@both
async def test_require_gates_coroutines(client, service, key, otherwise):
    """Both clients check first; without a license they call `otherwise`, a coroutine function or not."""

    @client.client.licensed
    async def export():
        return "exported"

    @client.client.licensed(otherwise=otherwise)
    async def gentle_export():
        return "exported"

    assert inspect.iscoroutinefunction(export)
    with pytest.raises(NotActivatedError):
        await export()
    assert await gentle_export() == "NotActivatedError"
    service.grants()
    await client.activate(key)
    assert await export() == await gentle_export() == "exported"


@asynchronous
async def test_the_asynchronous_client_refuses_plain_functions(client):
    """It cannot await its check inside one, so it raises where the function is decorated."""
    with pytest.raises(TypeError, match="async def"):
        client.client.licensed(lambda: None)


@both
async def test_require_never_waits_while_something_holds(make_client, service, clock, key, eventually):
    """With a cache that ran out, the answer comes from the disk, and the refresh happens behind it (D-59)."""
    service.grants()
    await make_client().activate(key)
    clock.move(hours=30)
    client = make_client()
    count_before = service.count()
    found = await client.require()
    assert found.source is Source.GRACE
    assert found.checked_at == clock.now - timedelta(hours=30)
    await eventually(lambda: service.count() == count_before + 1)

    async def fresh():
        return (await client.require()).source is Source.CACHE

    await eventually(fresh)
    assert service.count() == count_before + 1


async def test_clicks_do_not_become_calls(make_client, service, clock, key, eventually):
    """While the service is away, a hundred clicks within a minute start one refresh."""
    service.grants()
    client = make_client()
    await client.activate(key)
    clock.move(hours=30)
    service.responds(500)  # of what is not asked twice (D-54)
    before = service.count()
    for _ in range(100):
        assert (await client.require()).source is Source.GRACE
    await eventually(lambda: service.count() == before + 1)
