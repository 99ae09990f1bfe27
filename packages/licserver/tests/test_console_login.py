"""Who gets into the console, and who does not: sign-in, sessions, forms of others, guessing."""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from sqlalchemy import func, select

from harness.console import NAME, PASSWORD
from harness.engines import both_engines
from licserver.database.tables.access import sessions as session_rows
from licserver.database.tables.access import users as user_rows
from licserver.errors import InvalidInputError
from licserver.services.users import SESSION_TIME, TRIES
from licserver.serving.connections import Runner
from licserver.web.app import create_admin_app
from licserver.web.console.app import ROUTES, UPLOAD

PARTS = {"id": "0" * 32, "slug": "app", "version": "1.0", "name": "shop"}
ADDRESSES = [f"/console{path}".format(**PARTS) for path in ROUTES] + ["/console/account/second-factor"]
ACTIONS = [f"{path}/{name}" for path, route in ROUTES.items() for name in route.actions]
FORMS = [
    f"/console{path}".format(**PARTS) for path in (*ACTIONS, UPLOAD, "/account/password", "/sign-out")
] + [f"/console/account/second-factor/{act}" for act in ("begin", "confirm", "disable")]


def count(world, table) -> int:
    """Count rows."""
    with world.services.database.reading() as connection:
        return connection.scalar(select(func.count()).select_from(table))


async def test_no_page_without_a_session(open_browser):
    """Every page and every file redirects to the sign-in page, with an empty body."""
    browser = await open_browser()
    for path in ADDRESSES:
        await browser.get(path, allow_redirects=False)
        assert (browser.status, browser.text) == (303, ""), path
        assert browser.headers["Location"].startswith("/console/sign-in")


@pytest.mark.slow
async def test_no_change_without_a_session_or_with_a_strange_form(open_browser, alice):
    """Every form is refused without a session, without its CSRF token and from another origin."""
    anonymous = await open_browser()
    for path in FORMS:
        await anonymous.send("POST", path, data={"csrf": ""}, allow_redirects=False)
        assert (anonymous.status, anonymous.headers["Location"]) == (303, "/console/sign-in"), path
        await anonymous.send("POST", path, data={"csrf": alice.csrf}, allow_redirects=False)
        assert anonymous.status in {303, 401}, path
        assert "alice" not in anonymous.text
        for csrf, origin in [("", None), ("x" * 43, None), (alice.csrf, "https://evil.example")]:
            if path.endswith("/releases"):
                await alice.upload(path, {"csrf": csrf}, origin=origin)
            else:
                await alice.post(path, csrf=csrf, origin=origin)
            assert alice.status == 403, path
            await alice.get("/console")
            assert alice.status == 200, path  # still signed in, also after a forged sign-out


async def test_another_sessions_token_is_nothing(world, open_browser, alice):
    """Somebody who is signed in as well cannot have his form sent by alice's browser."""
    key = world.key()
    page = f"/console/licenses/{world.services.vault.license_id(key).hex()}"
    mallory = await open_browser()
    await mallory.sign_in()
    await mallory.get(page)
    await alice.post(f"{page}/revoke", csrf=mallory.csrf)
    assert alice.status == 403
    assert world.services.licenses.get(key).revoked_at is None
    await mallory.post(f"{page}/revoke", sure="yes")
    assert world.services.licenses.get(key).revoked_at is not None


async def test_a_session_after_sign_out(world, open_browser, alice):
    """The cookie of a session that was ended opens nothing, also for who had copied it."""
    token = alice.token
    thief = await open_browser()
    thief.session.cookie_jar.update_cookies({"licserver": token})
    assert "Overview" in await thief.get("/console")
    await alice.get("/console")
    await alice.send("POST", "/console/sign-out", data={"csrf": alice.csrf}, allow_redirects=False)
    assert alice.headers["Clear-Site-Data"] == '"cache", "storage"'
    await alice.get(alice.headers["Location"])
    assert alice.notice == "You are signed out."
    assert "Sign in" in await thief.get("/console")
    assert count(world, session_rows) == 0


async def test_a_session_ends_by_itself(world, alice):
    """Twelve hours after the sign-in, however much it was used."""
    for _ in range(12):
        assert "Overview" in await alice.get("/console")
        world.clock.forward(seconds=SESSION_TIME.total_seconds() / 12 - 0.1)
    assert "Overview" in await alice.get("/console")
    world.clock.forward(seconds=1.2)
    assert "Sign in" in await alice.get("/console")


async def test_a_new_password_signs_out_everywhere(world, users, open_browser, alice):
    """Changed in the console, every other session of the user ends; changed by the operator, all do."""
    other = await open_browser()
    await other.sign_in()
    await alice.get("/console/account")
    new = "another sentence of words"
    for old, wanted, again, complaint in [
        ("wrong", new, new, "This is not your password."),
        (PASSWORD, new, "else", "not typed the same twice"),
        (PASSWORD, "short", "short", "at least 12 characters"),
    ]:
        await alice.post("/console/account/password", old=old, new=wanted, again=again)
        assert (alice.status, complaint in alice.alert) == (422, True)
    assert "Overview" in await other.get("/console")
    await alice.get("/console/account")
    thief = await open_browser()
    thief.session.cookie_jar.update_cookies({"licserver": alice.token})
    assert "Overview" in await thief.get("/console")
    before = alice.token
    await alice.post("/console/account/password", old=PASSWORD, new=new, again=new)
    assert "Sign in" in await thief.get("/console")  # a copy of the very cookie that changed it
    assert alice.token != before
    assert "signed out everywhere else" in alice.notice
    assert "Sign in" in await other.get("/console")
    await other.sign_in()
    assert other.status == 401
    await other.sign_in(password=new)
    assert other.status == 200
    users.users.set_password(NAME, PASSWORD)
    assert "Sign in" in await alice.get("/console")
    await other.get("/console")
    assert "Sign in" in other.text


async def test_a_user_who_is_removed_is_out(users, alice):
    """At once, and for good."""
    users.users.remove(NAME)
    assert "No user exists yet" in await alice.get("/console")
    await alice.sign_in()
    assert alice.status == 401
    with pytest.raises(InvalidInputError):
        users.users.remove(NAME)


async def test_guessing(users, open_browser):
    """After some attempts a minute the address has to wait, with the right password too."""
    browser = await open_browser()
    for name in ("alice", "nobody"):
        for _ in range(TRIES // 2):
            await browser.sign_in(name, "a wrong password")
            assert (browser.status, browser.alert) == (401, "This name and password do not match.")
    await browser.sign_in()
    assert (browser.status, browser.headers["Retry-After"]) == (429, "61")
    assert browser.token is None


@pytest.mark.slow
@both_engines
async def test_guessing_from_everywhere(users, open_browser):
    """A name is not tried more often by coming from many addresses, and many at once gain nothing."""
    browsers = [await open_browser(f"127.0.{at}.2") for at in range(6)]
    await asyncio.gather(
        *(browser.sign_in(password=f"wrong {at}") for browser in browsers for at in range(5))
    )
    for browser in browsers:  # what many at once were refused for want of a place in the queue
        for _ in range(4):
            await browser.sign_in(password="wrong")
    await browsers[0].sign_in()
    assert browsers[0].status == 429
    stranger = await open_browser("127.0.9.9")
    await stranger.sign_in("bob", "a wrong password")
    assert stranger.status == 401  # other names are not locked


async def test_what_a_failed_sign_in_shows(users, open_browser, caplog):
    """Nothing of names and passwords, neither to the caller nor to the log."""
    browser = await open_browser()
    for name in ("alice", "nobody", "ö\0" * 500, "<script>alert(1)</script>"):
        await browser.sign_in(name, "the-secret-guess")
        assert (browser.status, browser.alert) == (401, "This name and password do not match.")
        assert "the-secret-guess" not in browser.text
        assert "<script>alert" not in browser.text
    assert "the-secret-guess" not in caplog.text
    await browser.sign_in(password="x" * 15_000)
    assert browser.status == 401


@pytest.mark.slow
async def test_a_sign_in_from_another_site(users, open_browser):
    """Nobody is signed in by somebody else's page, under somebody else's name."""
    browser = await open_browser()
    await browser.post(
        "/console/sign-in", csrf="", origin="https://evil.example", name=NAME, password=PASSWORD
    )
    assert (browser.status, browser.token) == (403, None)


async def test_signing_in_leads_back(users, open_browser):
    """A sign-in redirects to the page that was requested before, and never to another site."""
    browser = await open_browser()
    await browser.get("/console/products?a=1")
    assert browser.path == "/console/sign-in?next=/console/products?a%3D1"
    await browser.sign_in(next="/console/products?a=1")
    assert browser.path == "/console/products?a=1"
    await browser.sign_in(next="//evil.example")
    assert browser.path == "/console"


async def test_the_cookie(users, open_browser):
    """No script sees it, and over https it is bound to the host."""
    browser = await open_browser()
    form = {"name": NAME, "password": PASSWORD}
    https = {"Sec-Fetch-Site": "same-origin", "Origin": "https://licenses.example"}
    await browser.send("POST", "/console/sign-in", data=form, headers=https, allow_redirects=False)
    cookie = browser.headers["Set-Cookie"]
    assert cookie.startswith("__Host-licserver=")
    assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))


async def test_the_cookie_with_an_https_base_url(make_world, open_site, open_browser):
    """Secure whatever the browser says of its origin; where it would drop it, the sign-in says why."""
    world = make_world(base_url="https://licenses.example")
    world.services.users.add(NAME, PASSWORD)
    browser = await open_browser()
    browser.url = (await open_site(world)).url
    form = {"name": NAME, "password": PASSWORD}
    for origin, status in (
        (None, 303),
        ("https://licenses.example", 303),
        ("http://localhost:8081", 303),
        ("http://[::1]:8081", 303),
        ("http://console.internal:8081", 403),
        ("http://localhost.evil.example", 403),
    ):
        headers = {"Sec-Fetch-Site": "same-origin"} | ({"Origin": origin} if origin else {})
        await browser.send("POST", "/console/sign-in", data=form, headers=headers, allow_redirects=False)
        assert browser.status == status, origin
        cookie = browser.headers.get("Set-Cookie", "")
        assert cookie.startswith("__Host-licserver=") == (status == 303)
        assert ("; Secure;" in cookie) == (status == 303)
    assert "Open the console by https" in browser.alert


async def test_common_passwords(users, alice):
    """A guessable password is refused in the console too, and not repeated (test_console_units.py: which)."""
    await alice.get("/console/account")
    for password in ("licserver2026", "alice-alice-alice"):
        await alice.post("/console/account/password", old=PASSWORD, new=password, again=password)
        assert (alice.status, "common or easy to guess" in alice.alert) == (422, True)
        assert password not in alice.text


async def test_a_planted_cookie(make_world, open_site, open_browser):
    """Where the base URL is https, the plain cookie opens nothing, whichever host it came to."""
    world = make_world(base_url="https://licenses.example")
    world.services.users.add(NAME, PASSWORD)
    site = await open_site(world)
    token = world.services.logins.sign_in(NAME, PASSWORD).token
    for host, cookie, status in [
        ("licenses.example", "licserver", 303),
        ("Licenses.Example", "licserver", 303),
        ("licenses.example", "__Host-licserver", 200),
        ("localhost:8080", "licserver", 303),
        ("localhost:8080", "__Host-licserver", 200),
    ]:
        headers = {"Host": host, "Cookie": f"{cookie}={token}"}
        assert (await site.call("GET", "/console", headers=headers, allow_redirects=False))[0] == status, host


@pytest.mark.slow
async def test_what_every_answer_forbids(world, alice):
    """No frame around it, no script but ours, no cache: on pages, files, errors and the sign-in."""
    world.publish("1.0")
    assets = [
        part.split('"')[0] for part in alice.text.split('src="')[1:] if part.startswith("/console/assets")
    ]
    assert assets
    for path in [*ADDRESSES, "/console/sign-in", "/console/nothing", *assets]:
        await alice.get(path, allow_redirects=False)
        policy = alice.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert alice.headers["X-Frame-Options"] == "DENY"
        assert alice.headers["X-Content-Type-Options"] == "nosniff"
        if "assets" not in path:
            assert alice.headers["Cache-Control"] == "no-store"
            assert " style=" not in alice.text
            assert " onclick=" not in alice.text


async def test_the_books_hold_no_password_and_no_token(world, alice):
    """Who reads the database can neither sign in nor take a session over."""
    with world.services.database.reading() as connection:
        (user,) = connection.execute(select(user_rows)).all()
        (session,) = connection.execute(select(session_rows)).all()
    assert user.password_hash.startswith("$argon2id$")
    assert alice.token.encode() not in session.token_hash
    assert len(session.token_hash) == 32


async def test_sessions_that_have_run_out_are_swept(world, open_browser, alice):
    """By the next sign-in: nothing else has to look after them."""
    world.clock.forward(hours=13)
    await (await open_browser()).sign_in()
    assert count(world, session_rows) == 1


@pytest.mark.slow
async def test_users_on_the_command_line(cli):
    """Added, listed, given another password, removed; the password is never an argument and never shown."""
    assert "no users yet" in cli("user", "list")
    output = cli("user", "add", "Alice", "--password-stdin", stdin=f"{PASSWORD}\n")
    assert output == "added alice (owner); sign in at /console\n"
    assert cli("user", "role", "alice", "read-only") == "alice is read-only now\n"
    assert "read-only" in cli("user", "list")
    for arguments, stdin, complaint in [
        (("add", "alice"), PASSWORD, "there is a user alice already"),
        (("add", "bad name"), PASSWORD, "not a valid user name"),
        (("add", "bob"), "short", "at least 12 characters"),
        (("add", "bob"), "password1234", "common or easy to guess"),
        (("password", "alice"), "alice-alice-alice", "common or easy to guess"),
        (("password", "carol"), PASSWORD, "no user 'carol'"),
        (("remove", "carol"), "", "no user 'carol'"),
    ]:
        more = ("--password-stdin",) if stdin else ()
        assert complaint in cli("user", *arguments, *more, stdin=f"{stdin}\n", expect=2)
    assert "signed out all sessions" in cli(
        "user", "password", "alice", "--password-stdin", stdin="a b c d e f g h\n"
    )
    assert PASSWORD not in cli("user", "list", "--json")
    assert cli("user", "remove", "alice") == "removed alice\n"


async def test_on_an_address_of_its_own(make_world, open_site):
    """With one, the console is there, and not where the internet is."""
    world = make_world(admin_listen="127.0.0.1:0")
    site = await open_site(world)
    status, headers, _ = await site.call("GET", "/console")
    assert (status, headers["Content-Type"]) == (404, "application/json")
    runner = Runner(create_admin_app(world.services, world.clock), world.settings, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session, session.get("/console") as answer:
        assert (answer.status, answer.url.path) == (200, "/console/sign-in")
    await runner.cleanup()
