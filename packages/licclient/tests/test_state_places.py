"""Where an app's state lies: by vendor and product, with what earlier versions left elsewhere (D-192)."""

from functools import partial

import pytest

from licclient import LicenseClient, Source
from licclient._core.records import folder_name
from licclient.errors import NotActivatedError


@pytest.fixture
def app(service, tmp_path, monkeypatch):
    """Make clients of one user, whose apps keep their state in the platform's folder."""
    monkeypatch.setattr("platformdirs.user_state_path", lambda *_, **__: tmp_path)
    service.grants()
    return partial(LicenseClient, service.url, version="1.0")


@pytest.fixture
def files(tmp_path, service):
    """Tell which kinds of records lie in which folders; the vendor's is called `shop`."""

    def tell():
        paths = [path.relative_to(tmp_path) for path in tmp_path.rglob("*.state")]
        kinds = {f"{path.parent.as_posix()}/{path.name.partition('-')[0]}" for path in paths}
        shop = folder_name(service.url.partition("//")[2])
        return {kind.replace(shop, "shop") for kind in kinds}

    return tell


def test_each_product_has_a_folder_and_all_of_a_vendor_one_id(app, service, key, files):
    """So one can be removed with its app, and a computer takes one slot."""
    app(product="Notes").verify(key)
    app(slug="notes-pro").verify(key)
    assert files() == {
        "shop/installation",
        "shop/installation_copy",
        *(f"shop/{name}/{kind}" for name in ("notes", "notes-pro") for kind in ("license", "call")),
    }
    assert len({request.json["domain"] for request in service.requests}) == 1


def test_what_an_earlier_version_kept_is_taken_over(app, service, key, tmp_path, files):
    """Key, cached answer and id, from the folder of all apps; the id stays there for an app that is older.

    Two files hold the id.
    """
    app(product="Notes", slug="notes", storage=tmp_path).activate(key)
    service.goes_down()
    client = app(product="Notes", slug="notes")
    assert client.verify().source is Source.CACHE
    service.grants()
    assert client.verify(force=True).source is Source.SERVER
    assert service.requests[0].json["domain"] == service.requests[-1].json["domain"]
    copies = {f"{place}/{kind}" for place in (".", "shop") for kind in ("installation", "installation_copy")}
    assert files() == copies | {f"shop/notes/{kind}" for kind in ("activation", "license", "call")}
    client.forget_key()
    with pytest.raises(NotActivatedError):
        app(product="Notes", slug="notes").verify()


@pytest.mark.parametrize("named", [{}, {"product": "Notes"}])
def test_a_key_that_was_taken_over_is_forgotten_for_good(app, key, tmp_path, named):
    """One that was entered without a product stays in the folder of all apps for others, until then."""
    app(storage=tmp_path).activate(key)
    app(**named).forget_key()
    for other in ({}, {"product": "Notes"}):
        with pytest.raises(NotActivatedError):
            app(**other).verify()


@pytest.mark.parametrize("named", [{"product": "Notes"}, {"slug": "notes-1"}, {}])
def test_an_app_that_names_its_product_later_keeps_its_key(app, key, named):
    """What it entered before lies in another folder, and is found."""
    app(**named).activate(key)
    assert app(product="Notes", slug="notes-1").verify().product == "Notes"
