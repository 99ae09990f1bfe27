"""The second factor of the console: enrolment, codes, recovery codes, replay, guessing, reset."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import select

from harness.console import NAME, PASSWORD
from harness.engines import both_engines
from harness.second_factor import PAGE, begin_enrolment, enrol
from licserver.database.tables.access import recovery_codes, second_factors
from licserver.errors import InvalidInputError
from licserver.services.second_factors import LOCKED_TIME, RECOVERY_CODES, WRONG_CODES, WRONG_CODES_OF_DAY
from licserver.services.users import SignedIn

CODE = "/console/sign-in/code"


def actions(world):
    """Actions of the audit log, the latest first."""
    return [entry.action for entry in world.services.audit.list_page().items]


async def test_a_password_alone_opens_nothing(world, alice, open_browser):
    """With a second factor, the password leads to the code, and every page and form leads back there."""
    app, codes = await enrol(alice, world.clock())
    assert len(set(codes)) == RECOVERY_CODES
    await alice.get("/console")
    assert alice.status == 200  # whoever enrolled stays signed in
    thief = await open_browser()
    await thief.sign_in()
    assert thief.path.startswith(CODE)
    csrf = thief.csrf
    for path in ("/console", "/console/licenses", "/console/account", PAGE):
        await thief.get(path)
        assert thief.path.startswith(CODE)
    before = actions(world)
    for path in ("/console/products/add", "/console/account/password", f"{PAGE}/begin", f"{PAGE}/disable"):
        await thief.post(path, csrf=csrf, slug="x", name="X", old=PASSWORD, new="n" * 20, password=PASSWORD)
        assert actions(world) == before
    world.clock.forward(seconds=30)
    await thief.post(CODE, csrf=csrf, code=app.code(world.clock()))
    assert (thief.status, thief.path) == (200, "/console")
    assert actions(world)[:2] == ["user.sign_in", "user.second_factor_on"]
    signed_in = [
        entry.details for entry in world.services.audit.list_page().items if entry.action == "user.sign_in"
    ]
    assert [details["factors"] for details in signed_in] == ["password and code", "password"]
    assert {details["address"] for details in signed_in} == {"127.0.0.1"}


@both_engines
async def test_a_code_is_no_good_again(world, alice, open_browser):
    """Neither the code of the enrolment nor one that somebody has just used, seen over a shoulder."""
    app, _ = await enrol(alice, world.clock())
    first, second = await open_browser(), await open_browser()
    for browser in (first, second):
        await browser.sign_in()
    await first.post(CODE, code=app.code(world.clock()))
    assert (first.status, "used already" in first.alert) == (401, True)
    world.clock.forward(seconds=30)
    code = app.code(world.clock())
    await asyncio.gather(first.post(CODE, code=code), second.post(CODE, code=code))
    assert sorted((first.status, second.status)) == [200, 401]


async def test_a_recovery_code_signs_in_once(world, alice, open_browser):
    """However it is typed; the database holds a keyed digest, and the audit log how many are left."""
    _, codes = await enrol(alice, world.clock())
    for typed, status in ((codes[0].upper().replace("-", " "), 200), (codes[0], 401), (codes[1], 200)):
        browser = await open_browser()
        await browser.sign_in()
        await browser.post(CODE, code=typed)
        assert browser.status == status, browser.alert
    used = [entry for entry in world.services.audit.list_page().items if entry.action == "user.recovery_code"]
    assert [entry.details for entry in used] == [{"left": 8}, {"left": 9}]
    assert "8 of 10 recovery codes are left" in await alice.get("/console/account")
    with world.services.database.reading() as connection:
        held = (
            connection.execute(select(recovery_codes)).all()
            + connection.execute(select(second_factors)).all()
        )
    for code in codes:
        assert code.encode() not in repr(held).encode()
        assert code.replace("-", "").encode() not in repr(held).encode()


@both_engines
async def test_a_recovery_code_signs_in_one_session(world, alice):
    """Six servers check it at the same moment."""
    _, codes = await enrol(alice, world.clock())
    sessions = [world.services.logins.sign_in(NAME, PASSWORD, "192.0.2.1") for _ in range(6)]
    start = Barrier(len(sessions))

    def sign_in(session: SignedIn) -> bool:
        start.wait()
        return world.services.second_factors.sign_in(session, codes[0]) is not None

    with ThreadPoolExecutor(len(sessions)) as threads:
        results = await asyncio.to_thread(lambda: list(threads.map(sign_in, sessions)))
    assert sum(results) == 1


async def test_the_secret_is_encrypted(world, alice):
    """The database alone makes no codes, and no other user's row takes the secret."""
    app = await begin_enrolment(alice)
    with world.services.database.reading() as connection:
        (row,) = connection.execute(select(second_factors)).all()
    assert app._totp.secret.encode() not in row.sealed_secret
    assert (
        world.services.vault.decrypt(row.sealed_secret, b"second factor of user 1").decode()
        == app._totp.secret
    )


async def test_enrolment_takes_the_password_and_a_first_code(world, alice):
    """A stolen session sets nothing up; a wrong code confirms nothing; a secret is shown for 15 minutes."""
    await alice.get(PAGE)
    await alice.post(f"{PAGE}/begin", password="wrong")
    assert (alice.status, alice.alert) == (422, "This is not your password.")
    app = await begin_enrolment(alice)
    assert "<svg" in alice.text
    assert "style=" not in alice.text
    await alice.post(f"{PAGE}/confirm", code="000000")
    assert (alice.status, "wrong" in alice.alert) == (422, True)
    assert world.services.users.list_all()[0].has_second_factor is False
    world.clock.forward(minutes=16)
    await alice.post(f"{PAGE}/confirm", code=app.code(world.clock()))
    assert (alice.status, "start again" in alice.alert) == (422, True)
    assert world.services.users.list_all()[0].has_second_factor is False


async def test_enrolment_ends_all_other_sessions(world, alice, open_browser):
    """Whoever had signed in with the password alone is out."""
    other = await open_browser()
    await other.sign_in()
    await enrol(alice, world.clock())
    assert "Sign in" in await other.get("/console")


async def test_removing_it_takes_password_and_code(world, alice, open_browser):
    """One of them is not enough; then the password alone signs in again."""
    app, _ = await enrol(alice, world.clock())
    world.clock.forward(seconds=30)
    await alice.get(PAGE)
    for password, code in ((PASSWORD, "000000"), ("wrong", app.code(world.clock())), (PASSWORD, "")):
        await alice.post(f"{PAGE}/disable", password=password, code=code)
        assert (alice.status, "wrong" in alice.alert) == (422, True)
    await alice.post(f"{PAGE}/disable", password=PASSWORD, code=app.code(world.clock()))
    assert "Your second factor is removed" in alice.notice
    assert actions(world)[0] == "user.second_factor_off"
    browser = await open_browser()
    await browser.sign_in()
    assert (browser.status, browser.path) == (200, "/console")


@pytest.mark.slow
async def test_guessing_codes(world, alice, open_browser):
    """429 after some, as with passwords; after ten in a row for 15 minutes, but not at known addresses."""
    app, _ = await enrol(alice, world.clock())
    await alice.post("/console/sign-out")
    thief = await open_browser("127.0.9.9")
    wrong = 0
    while wrong < WRONG_CODES:
        world.clock.forward(seconds=61)
        await thief.sign_in()
        for _ in range(5):
            await thief.post(CODE, code="000000")
            wrong += thief.status == 401
    world.clock.forward(seconds=121)
    await thief.sign_in()
    await thief.post(CODE, code=app.code(world.clock()))  # the right one, which is not even checked
    assert (thief.status, "too many wrong codes" in thief.alert.lower()) == (429, True)
    await alice.sign_in()
    await alice.post(CODE, code=app.code(world.clock()))
    assert (alice.status, alice.path) == (200, "/console")


@pytest.mark.slow
async def test_guessing_codes_at_a_known_address(world, alice, users):
    """A hundred wrong codes a day: not even the right one is accepted then, but a recovery code is."""
    app, codes = await enrol(alice, world.clock())

    def sign_in(code):
        return users.second_factors.sign_in(users.logins.sign_in(NAME, PASSWORD), code, is_known=True)

    for number in range(WRONG_CODES_OF_DAY):
        assert sign_in("000000") is None
        if number == 50:  # a right one in between does not begin the count anew
            world.clock.forward(seconds=30)
            assert sign_in(app.code(world.clock()))
    world.clock.forward(seconds=30)
    with pytest.raises(InvalidInputError, match="until tomorrow"):
        sign_in(app.code(world.clock()))
    assert sign_in(codes[0])
    world.clock.forward(days=1)
    assert sign_in(app.code(world.clock()))


async def test_the_lock_of_codes_ends(world, users, alice, open_browser):
    """By itself, for who is not known anywhere: nobody is locked out for good."""
    app, _ = await enrol(alice, world.clock())
    for _ in range(WRONG_CODES):
        who = users.logins.sign_in(NAME, PASSWORD)
        assert users.second_factors.sign_in(who, "000000") is None
    world.clock.forward(seconds=LOCKED_TIME.total_seconds())
    assert users.second_factors.sign_in(users.logins.sign_in(NAME, PASSWORD), app.code(world.clock()))


async def test_a_password_waits_ten_minutes_for_a_code(world, alice, open_browser):
    """Then it has to be typed again."""
    app, _ = await enrol(alice, world.clock())
    browser = await open_browser()
    await browser.sign_in()
    world.clock.forward(minutes=10)
    await browser.post(CODE, code=app.code(world.clock()))
    assert browser.path.startswith("/console/sign-in")
    assert "Password" in browser.text


@pytest.mark.slow
async def test_who_must_have_one_can_do_nothing_before(make_world, open_site, open_browser):
    """With the setting, the sign-in leads to the enrolment, and nothing else opens."""
    world = make_world(second_factor_required=True)
    world.services.users.add(NAME, PASSWORD)
    browser = await open_browser()
    browser.url = (await open_site(world)).url
    await browser.sign_in()
    assert browser.path == PAGE
    csrf = browser.csrf
    for path in ("/console", "/console/licenses", "/console/account", "/console/audit.csv"):
        await browser.get(path)
        assert browser.path == PAGE
    await browser.post("/console/products/add", csrf=csrf, slug="x", name="X")
    await browser.post("/console/account/password", csrf=csrf, old=PASSWORD, new="n" * 20, again="n" * 20)
    assert actions(world)[0] == "user.sign_in"
    await enrol(browser, world.clock())
    assert "Overview" in await browser.get("/console")


async def test_an_operator_resets_it(world, alice, open_browser):
    """By a command; the user is signed out, signs in with the password alone, and the audit log says so."""
    await enrol(alice, world.clock())
    world.services.second_factors.reset(NAME)
    assert "Sign in" in await alice.get("/console")
    await alice.sign_in()
    assert (alice.status, alice.path) == (200, "/console")
    assert actions(world)[1] == "user.second_factor_reset"


def test_the_command_that_resets_it(cli):
    """It names a user without a second factor, and one who is not there."""
    cli("user", "add", "alice", "--password-stdin", stdin=f"{PASSWORD}\n")
    assert "alice has no second factor" in cli("user", "reset-second-factor", "alice", expect=2)
    assert "no user 'bob'" in cli("user", "reset-second-factor", "bob", expect=2)
    assert "no" in cli("user", "list").splitlines()[1]
