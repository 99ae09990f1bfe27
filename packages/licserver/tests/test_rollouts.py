"""Staged rollouts from publishing to the installation, and installations that went back (D-230 to D-232)."""

import json

import pytest

from harness import engines
from harness.admin import form
from licserver.domain.offers import RolloutOptions, bucket, current_share
from licserver.errors import InvalidInputError

engine_name = engines.engine_name
WINDOWS = "windows-x86_64"
REPORT = "/api/v1/updates/rolled-back"
HOMES = sorted((f"home-{number}" for number in range(40)), key=lambda name: bucket("app", "1.5", name))
EARLY, LATE = HOMES[0], HOMES[-1]


@pytest.fixture
def publish(world, tmp_path):
    """Publish a file."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")

    def publish(version, rollout=None, critical_below=None, **more: str):
        reach = RolloutOptions(rollout, critical_below)
        return world.services.releases.publish("app", version, file, reach=reach, **more)

    return publish


async def check(site, key, domain, version="1.0", **more: str):
    """Return the answer to an update check: its version, or its error."""
    query = {"license_key": key, "slug": "app", "current_version": version, "domain": domain, **more}
    _, _, answer = await site.call("GET", "/api/v1/update-check", params=query)
    return answer


@pytest.mark.slow
async def test_a_version_reaches_more_and_more_installations(site, world, publish):
    """The others keep the version before; changes are seen at once, and at the end nobody is left out."""
    key, rollouts = world.key(), world.services.rollouts
    publish("1.4")
    publish("1.5", rollout="10%,100%@5d")

    async def versions(**more: str):
        return [(await check(site, key, name, **more))["version"] for name in (EARLY, LATE)]

    assert await versions() == ["1.5", "1.4"]
    assert await versions(manual="1") == ["1.5", "1.5"]
    assert await versions(manual="yes") == ["1.5", "1.4"]
    rollouts.change("app", "1.5", paused=True)
    world.clock.forward(days=9)
    assert await versions() == ["1.5", "1.4"]
    rollouts.change("app", "1.5", paused=False)
    assert rollouts.get("app", "1.5").percent == 10
    world.clock.forward(days=5)
    assert await versions() == ["1.5", "1.5"]
    publish("1.6", rollout="7d")  # a second one, on top of the first
    assert await versions() == ["1.5", "1.5"]
    rollouts.change("app", "1.6", percent=100)
    assert await versions() == ["1.6", "1.6"]
    with pytest.raises(InvalidInputError, match="reaches all"):
        rollouts.change("app", "1.6", paused=True)


@pytest.mark.slow
async def test_what_is_withdrawn_below_a_rollout_is_offered_no_more(site, world, publish):
    """The version before that is; and with none left, there is not a valid version for those left out."""
    key = world.key()
    publish("1.3")
    publish("1.4")
    publish("1.5", rollout="10%")
    found = []
    for version in ("1.4", "1.3"):
        found.append((await check(site, key, LATE))["version"])
        world.services.releases.withdraw("app", version)
    found.append((await check(site, key, LATE))["error"])
    assert found == ["1.4", "1.3", "no_versions"]
    assert (await check(site, key, EARLY))["version"] == "1.5"


@pytest.mark.slow
async def test_all_files_of_a_version_have_its_rollout(site, world, publish):
    """A platform whose file comes later is not ahead, and no file has a rollout of its own."""
    key = world.key()
    publish("1.4", platform=WINDOWS)
    publish("1.5", rollout="10%", critical_below="0.9")
    world.clock.forward(days=1)
    later = publish("1.5", platform=WINDOWS)
    assert (later.rollout.started_at < world.clock(), later.critical_below) == (True, "0.9")
    answers = [await check(site, key, name, platform=WINDOWS) for name in (EARLY, LATE)]
    assert [answer["version"] for answer in answers] == ["1.5", "1.4"]
    assert (await check(site, key, LATE, platform="haiku"))["error"] == "no_versions"
    with pytest.raises(InvalidInputError, match="same for all its files"):
        publish("1.5", platform="macos-arm64", rollout="7d")


@pytest.mark.slow
async def test_a_rollout_stays_within_its_channel(site, world, publish):
    """Who may not see the channel is offered what is stable; who may, the newest of both that reaches it."""
    key = world.key()
    publish("1.4")
    publish("1.5", rollout="10%", channel="beta")

    async def versions(**more: str):
        return [(await check(site, key, name, **more))["version"] for name in (EARLY, LATE)]

    assert await versions() == ["1.4", "1.4"]
    assert await versions(channels="beta,none") == ["1.5", "1.4"]
    assert await versions(channels="beta", manual="1") == ["1.5", "1.5"]
    publish("1.4.1")
    assert await versions(channels="beta") == ["1.5", "1.4.1"]
    world.services.releases.promote("app", "1.5")
    assert await versions() == ["1.5", "1.4.1"]


async def test_an_important_version_says_so(site, world, publish):
    """Below the limit at once and with one more field; everybody else gets the answer of ever."""
    key = world.key()
    publish("1.4")
    publish("1.5", rollout="10%", critical_below="1.2")
    answer = await check(site, key, LATE, "1.1.9")
    assert (answer["version"], answer["critical"]) == ("1.5", True)
    assert "critical" not in await check(site, key, EARLY, "1.2")
    publish("1.6")
    answer = await check(site, key, LATE, "1.1")
    assert (answer["version"], answer["critical"]) == ("1.6", True)


def test_a_share_never_falls(world, publish):
    """It is set from what is reached up to 100 percent; nothing else is a change."""
    change = world.services.rollouts.change
    publish("1.5", rollout="7d")
    world.clock.forward(hours=84)
    for wrong in ({"percent": 49.9}, {"percent": 100.1}, {}, {"percent": 60, "paused": True}):
        with pytest.raises(InvalidInputError):
            change("app", "1.5", **wrong)
    assert change("app", "1.5", percent=62.5).percent == 62.5
    world.clock.forward(days=30)
    assert world.services.rollouts.get("app", "1.5").percent == 62.5
    world.services.releases.withdraw("app", "1.5")
    with pytest.raises(InvalidInputError, match="withdrawn"):
        change("app", "1.5", percent=80)


def test_a_share_does_not_fall_by_its_rounding_either(world, publish):
    """It is written with two digits: of 50.002 percent nobody is left out."""
    publish("1.5", rollout="7d")
    world.clock.forward(hours=84, seconds=12)
    before = current_share(world.services.releases.get("app", "1.5").rollout, world.clock())
    assert 0.50001 < before < 0.500021
    rollout = world.services.rollouts.change("app", "1.5", percent=50.0021).release.rollout
    assert (rollout.plan, current_share(rollout, world.clock()) > before) == ("50.01%", True)


@pytest.mark.slow
async def test_an_installation_that_went_back_is_counted_once(site, world, publish, activate):
    """For its platform's file, and only if it is activated; nothing can be guessed by it."""
    key, other = world.key(slots=2), world.product("other")
    publish("1.5")
    publish("1.5", platform=WINDOWS)
    activate(key, EARLY, "192.0.2.1")

    async def report(**changed: object):
        body = {"license_key": key, "slug": "app", "version": "1.5", "domain": EARLY, "platform": WINDOWS}
        status, _, answer = await site.call("POST", REPORT, data=json.dumps(body | changed).encode())
        return status, answer.get("counted", answer.get("error"))

    assert await report() == (200, True)
    assert await report(version="1.5.0", domain=f" {EARLY.upper()} ") == (200, False)
    assert await report(domain=LATE) == (200, False)
    assert await report(license_key="CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA") == (401, "invalid_license")
    for wrong in ({"version": "9.9"}, {"version": "nonsense"}, {"slug": other}, {"slug": "none"}):
        assert await report(**wrong) == (200, False)
    assert await report(domain="", version=7) == (422, "validation")
    assert world.services.rollouts.get("app", "1.5").rolled_back == 1


@engines.sqlite_only
async def test_the_vendor_sees_how_set_ups_ended(site, world, publish, activate):
    """By the exit code, most often first; what is no such number is a report without one (D-393)."""
    key = world.key(slots=20)
    publish("1.5", platform=WINDOWS)
    publish("1.5")
    codes = (1603, 1223, None, 1603, -1, 2**32, "1603", True, 1.5, 2**32 - 1)
    for number, code in enumerate(codes):
        activate(key, f"d{number}.example", "192.0.2.1")
        body = {"license_key": key, "slug": "app", "version": "1.5", "domain": f"d{number}.example"}
        body |= {"platform": WINDOWS if number % 2 else ""} | ({} if code is None else {"exit_code": code})
        status, _, answer = await site.call("POST", REPORT, data=json.dumps(body).encode())
        assert (status, answer) == (200, {"counted": True})
    status = world.services.rollouts.get("app", "1.5")
    assert status.rolled_back == 10
    assert list(status.exit_codes.items()) == [(1603, 2), (1223, 1), (2**32 - 1, 1)]


@engines.sqlite_only
def test_the_command_line_has_rollouts(cli, tmp_path):
    """Publish with a plan, look, pause, resume, set the share and finish; slips are explained."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")
    cli("product", "add", "app", "--name", "App")
    publish = ("release", "publish", "app", "1.5", str(file), "--rollout")
    assert "is not a valid rollout" in cli(*publish, "soon", expect=2)
    cli(*publish, "10%,50%@2d", "--critical-below", "1.2")
    rollout = ("release", "rollout", "app", "1.5")
    shown = json.loads(cli(*rollout, "--json"))
    assert (shown["percent"], shown["plan"], shown["critical_below"]) == (10, "10%,50%@2d", "1.2")
    assert "paused at       -" not in cli(*rollout, "--pause")
    assert json.loads(cli(*rollout, "--resume", "--json"))["paused_at"] is None
    assert json.loads(cli(*rollout, "--share", "50%", "--json"))["percent"] == 50
    assert "never decreases" in cli(*rollout, "--share", "20", expect=2)
    assert "write it like 50%" in cli(*rollout, "--share", "half", expect=2)
    assert "one of" in cli(*rollout, "--pause", "--finish", expect=2)
    assert json.loads(cli(*rollout, "--finish", "--json"))["plan"] is None


@engines.sqlite_only
async def test_the_admin_api_has_rollouts(api):
    """The fields of the form, and an address to look at a rollout and to change it."""
    sent = form(version="1.5", rollout="10%", critical_below="1.2", file=("app.zip", b"zip"))
    assert (await api("POST", "/products/app/releases", **sent))[0] == 201
    path = "/products/app/releases/1.5/rollout"
    assert (await api("PATCH", path, {"paused": True}))[1]["rollout"]["paused_at"] is not None
    assert (await api("PATCH", path, {"percent": 50}))[1]["percent"] == 50
    assert (await api("PATCH", path, {}))[0] == 422
    _, found = await api("GET", path)
    assert (found["version"], found["rollout"]["plan"], found["rolled_back"]) == ("1.5", "50.00%", 0)
    assert found["exit_codes"] == {}


@engines.sqlite_only
async def test_the_console_has_rollouts(world, alice):
    """The form publishes with a plan; the version's page shows the rollout and its buttons change it."""
    world.publish("1.4")
    await alice.get("/console/products/app")
    fields = {"version": "1.5", "changelog": "", "platform": "", "rollout": "10%", "critical_below": "1.2"}
    await alice.upload("/console/products/app/releases", {"csrf": alice.csrf, **fields})
    assert "Its rollout reaches 10% of all installations" in alice.text
    path = "/console/products/app/releases/1.5/rollout"
    for act, percent, expected in [
        ("pause", "", "10%, paused"),
        ("resume", "", "10%"),
        ("share", "50%", "50%"),
        ("share", "most", "whole number of percent"),
        ("finish", "", "100%"),
    ]:
        await alice.post(path, act=act, percent=percent)
        assert expected in alice.text
    assert "Finish</button>" not in alice.text


@engines.sqlite_only
async def test_exit_codes_are_shown_where_rollbacks_are(world, alice, activate):
    """In the console as numbers with a count, which a vendor looks up in his set-up's manual."""
    world.publish("1.5")
    key = world.key(slots=2)
    for name in ("a.example", "b.example"):
        activate(key, name, "192.0.2.1")
        license_ = world.services.licenses.find_by_key(key)
        assert world.services.rollouts.count_rollback(license_, "app", "1.5", name, "", 1603)
    await alice.get("/console/products/app/releases/1.5")
    assert "2 installations, as their apps report" in alice.text
    assert "1603 (2)" in alice.text
