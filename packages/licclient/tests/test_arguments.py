"""Wrong arguments of an app are rejected where they are passed, and before anything is done."""

import threading

import pytest
from stage.flavours import both

from licclient.install import Installation


@pytest.fixture
def make(flavour):
    """The client's constructor."""
    return lambda **options: flavour("https://s.example", **options)


async def test_the_state_stays_where_it_was(make_client, service, tmp_path, monkeypatch, key):
    """A file dialog that changes the working folder costs no new slot: the same state is found again."""
    service.grants()
    monkeypatch.chdir(tmp_path)
    client = make_client(storage="state")
    await client.verify(key)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await client.verify(key)
    assert list((tmp_path / "state").iterdir())
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_home_is_home(make_client, service, tmp_path, monkeypatch, key):
    """A tilde is what a person means by it."""
    service.grants()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    await make_client(storage="~/state").verify(key)
    assert list((tmp_path / "home" / "state").iterdir())


async def _coroutine(_progress):
    pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"update": None}, "update must be an Update, of check_for_update or on_update, not NoneType"),
        ({"progress": 1}, "progress must be callable"),
        ({"progress": _coroutine}, "progress must be a plain function"),
        ({"cancel": lambda: True}, "cancel must have is_set"),
    ],
)
async def test_a_download_asked_for_with_a_slip(client, store, folder, key, arguments, message):
    """Nothing is fetched, and the folder stays as it was."""
    options = {"update": (await client.check_for_update(key)).update, "to": folder, **arguments}
    with pytest.raises(TypeError, match=message):
        await client.download(**options, key=key)
    assert not folder.exists() or not list(folder.iterdir())


async def test_a_download_to_nowhere(client, store, key):
    """The working folder is no place that an app has chosen."""
    with pytest.raises(ValueError, match="to must be the path of a folder"):
        await client.download((await client.check_for_update(key)).update, "", key=key)


@pytest.mark.parametrize("method", ["skip_update", "is_skipped"])
async def test_nothing_is_skipped_that_is_no_update(client, method):
    """What `check_for_update` did not offer, or the version alone."""
    for update in (None, "2.0"):
        with pytest.raises(TypeError, match="update must be an Update"):
            await getattr(client, method)(update)


@pytest.mark.parametrize("folder", ["", " "])
def test_an_app_is_never_installed_in_the_working_folder(folder):
    """A launcher that hands on an argument which is not there."""
    with pytest.raises(ValueError, match="folder must be the path of a folder"):
        Installation(folder)


def test_what_is_applied_was_downloaded(tmp_path):
    """A path alone says neither which version it is nor what was verified."""
    with pytest.raises(TypeError, match="downloaded must be what download returned"):
        Installation(tmp_path).apply(tmp_path / "notes.zip")
    assert list(tmp_path.iterdir()) == []


def test_going_back_where_nothing_is_makes_nothing(tmp_path):
    """No folders and no lock appear at a place that was mistyped."""
    assert Installation(tmp_path / "nowhere").roll_back() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("callbacks", "error", "message"),
    [
        ({"on_status": _coroutine}, TypeError, "on_status must be a plain function"),
        ({"on_update": _coroutine}, TypeError, "on_update must be a plain function"),
        ({"deliver": "tk"}, TypeError, "deliver must be callable"),
        ({"on_update": print}, ValueError, "updates need a client that is created with slug"),
    ],
)
@both
async def test_a_worker_started_with_a_slip(make, callbacks, error, message):
    """No worker runs that would never call back."""
    client, before = make(), set(threading.enumerate())
    with pytest.raises(error, match=message):
        client.start(**callbacks)
    assert set(threading.enumerate()) <= before
