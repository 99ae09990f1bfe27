"""What WordPress shows of a version, from publishing to the update check (D-199)."""

import json

import pytest

from harness import engines
from harness.admin import form
from harness.console_books import rows
from licserver.domain.records import NO_FIELDS, WordPressFields
from licserver.errors import InvalidInputError

PAGE = "https://example.com/app"
FIELDS = WordPressFields("6.4", "6.7.1", "7.4", PAGE)
ALL = FIELDS._asdict()


@pytest.fixture
def publish(world, tmp_path):
    """Publish a file."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")

    def publish(version, fields=NO_FIELDS, **more: str):
        return world.services.releases.publish("app", version, file, wordpress=fields, **more)

    return publish


async def check(site, key):
    """Return the answer to an update check."""
    query = {"license_key": key, "slug": "app", "current_version": "1.0", "domain": "https://a.example"}
    return (await site.call("GET", "/api/v1/update-check", params=query))[2]


def wordpress_fields(answer):
    """Return those fields of an answer that are about WordPress."""
    return {name: answer[name] for name in WordPressFields._fields if name in answer}


@engines.both_engines
async def test_fields_are_in_the_next_answer(site, world, publish):
    """Of a version with all its files; what is removed is null or absent, as if it had never been set."""
    key = world.key()
    publish("1.4")
    assert wordpress_fields(await check(site, key)) == {"requires": None, "tested": None}
    publish("1.5", FIELDS)
    assert wordpress_fields(await check(site, key)) == ALL
    assert publish("1.5", platform="haiku").wordpress == FIELDS
    change = world.services.releases.set_wordpress
    assert change("app", "1.5.0", tested="6.8", requires_php="").wordpress == FIELDS._replace(
        tested="6.8", requires_php=None
    )
    assert wordpress_fields(await check(site, key)) == {
        "requires": "6.4",
        "tested": "6.8",
        "details_url": PAGE,
    }
    assert {release.wordpress.tested for release in world.services.releases.list_files("app", "1.5")} == {
        "6.8"
    }
    change("app", "1.5", **dict.fromkeys(ALL))
    assert wordpress_fields(await check(site, key)) == {"requires": None, "tested": None}


async def test_what_cannot_be_changed(world, publish):
    """A further file has the fields of its version; wrong ones, and those of a withdrawn version, stay."""
    publish("1.5", FIELDS)
    publish("1.5", FIELDS, platform="linux-arm64")
    with pytest.raises(InvalidInputError, match=r"other fields .*: licserver release wordpress app 1.5$"):
        publish("1.5", FIELDS._replace(tested="6.8"), platform="haiku")
    with pytest.raises(InvalidInputError, match="for tested"):
        world.services.releases.set_wordpress("app", "1.5", tested="newest")
    with pytest.raises(InvalidInputError, match="for requires"):
        publish("1.6", WordPressFields(requires="newest"))
    world.services.releases.withdraw("app", "1.5")
    with pytest.raises(InvalidInputError, match="is withdrawn"):
        world.services.releases.set_wordpress("app", "1.5", tested="6.8")
    assert world.services.releases.get("app", "1.5").wordpress == FIELDS
    assert len(world.services.releases.list_all("app")) == 2


def test_on_the_command_line(cli, tmp_path):
    """Options of `publish`; `release wordpress` shows and changes."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")
    cli("product", "add", "app", "--name", "App")
    options = ("--requires", "6.4", "--tested", "6.7.1", "--requires-php", "7.4", "--details-url", PAGE)
    published = json.loads(cli("release", "publish", "app", "1.5", str(file), *options, "--json"))
    assert wordpress_fields(published) == ALL
    shown = json.loads(cli("release", "wordpress", "app", "1.5", "--json"))
    assert shown == {"version": "1.5", **ALL}
    changed = cli("release", "wordpress", "app", "1.5", "--tested", "6.8", "--requires", "")
    assert [line.split() for line in changed.splitlines()] == [
        ["version", "1.5"],
        ["requires", "-"],
        ["tested", "6.8"],
        ["requires", "php", "7.4"],
        ["details", "url", PAGE],
    ]
    wrong = cli("release", "wordpress", "app", "1.5", "--tested", "newest", expect=2)
    assert "'newest' is not a valid version for tested" in wrong


@pytest.mark.slow
async def test_through_the_admin_api(api):
    """Published with fields, changed by PATCH; null removes, and one key publishes no other fields."""
    path, file = "/products/app/releases", ("app.zip", b"zip")
    sent = form(version="1.5", file=file, **ALL)
    sent["headers"] = {**sent["headers"], "Idempotency-Key": "1"}
    status, published = await api("POST", path, **sent)
    assert (status, wordpress_fields(published)) == (201, ALL)
    other = form(version="1.5", file=file, **{**ALL, "tested": "6.8"})
    other["headers"] = {**other["headers"], "Idempotency-Key": "1"}
    assert (await api("POST", path, **other))[0] == 409
    status, changed = await api("PATCH", f"{path}/1.5", {"tested": "6.8", "details_url": None})
    assert (status, wordpress_fields(changed)) == (200, {**ALL, "tested": "6.8", "details_url": None})
    status, problem = await api("PATCH", f"{path}/1.5", {"requires": "six"})
    assert (status, "'six' is not a valid version for requires" in problem["detail"]) == (422, True)
    assert (await api("PATCH", f"{path}/1.5", {"version": "2"}))[0] == 422
    status, problem = await api(
        "POST", path, **form(version="1.6", file=file, details_url="http://a.example")
    )
    assert (status, "The details_url must be" in problem["detail"]) == (422, True)
    assert wordpress_fields((await api("GET", f"{path}/1.5"))[1])["tested"] == "6.8"


@pytest.mark.slow
async def test_in_the_console(world, alice):
    """In the form of a new version, on its page and in the list; what is wrong is reported and not lost."""
    await alice.get("/console/products/app")
    upload = {"csrf": alice.csrf, "version": "1.5", "requires": "six", **{n: ALL[n] for n in list(ALL)[1:]}}
    await alice.upload("/console/products/app/releases", upload)
    assert (alice.status, "is not a valid version for requires" in alice.alert) == (422, True)
    assert 'name="requires" value="six"' in alice.text
    await alice.upload("/console/products/app/releases", {**upload, "csrf": alice.csrf, "requires": "6.4"})
    assert world.services.releases.get("app", "1.5").wordpress == FIELDS, alice.text
    page = "/console/products/app/releases/1.5"
    await alice.post(f"{page}/wordpress", **{**ALL, "tested": "newest"})
    assert (alice.status, 'name="tested" value="newest"' in alice.text) == (422, True)
    await alice.post(f"{page}/wordpress", **{**ALL, "tested": "6.8", "requires_php": ""})
    assert "What WordPress shows is changed" in alice.notice
    assert world.services.releases.get("app", "1.5").wordpress == FIELDS._replace(
        tested="6.8", requires_php=None
    )
    assert rows(await alice.get("/console/products/app/releases.csv"))[1][-4:] == ["6.4", "6.8", "", PAGE]
    await alice.get("/console/audit")
    assert "Changed what WordPress shows of" in alice.text


@pytest.mark.slow
async def test_a_version_that_wordpress_orders_otherwise(api, alice, publish, cli, tmp_path):
    """Command, admin API and the version's page say so when it is published; others have no warning."""
    publish("1.1.0")
    file, sentence = ("app.zip", b"zip"), "WordPress does not take 1.2.0+b to be newer than 1.2.0"
    for version, warns in (("1.2.0", False), ("1.2.0+b", True)):
        published = (await api("POST", "/products/app/releases", **form(version=version, file=file)))[1]
        assert (published["warning"] or "").startswith(sentence) is warns
        await alice.get(f"/console/products/app/releases/{version}")
        assert (sentence in alice.text) is warns
    (tmp_path / "app.zip").write_bytes(b"zip")
    cli("product", "add", "app", "--name", "App")
    for version, warns in (("1.2.0", False), ("v1.3.0", True)):
        printed = cli("release", "publish", "app", version, str(tmp_path / "app.zip"))
        assert ("WordPress does not take v1.3.0 to be newer than 1.2.0" in printed) is warns
