"""The customer's page: who signs in, what they see, and what they may change."""

import io
import json
import re
import string
from importlib.resources import files

import pytest
from sqlalchemy import event

from harness.engines import both_engines
from harness.transfer import ASSUMED
from licserver.domain.languages import LANGUAGES, choose_language
from licserver.domain.offers import OfferedProduct
from licserver.domain.records import AfterSupport, EnvironmentPolicy, LicenseTerms, SecurityNotice
from licserver.domain.seats import SeatRequest
from licserver.errors import SettingsError
from licserver.protocol.license_files import read_rows
from licserver.services.context import CUSTOMER
from licserver.settings import Settings
from licserver.web.account.pages import Look, describe_all, load_texts

KEY = re.compile(r"CP(?:-[A-Z0-9]{6}){5}")


@pytest.fixture
def world(make_world):
    """A vendor whose customers have a page."""
    return make_world(account=True, account_name="Example Soft", miss_limit=6)


@pytest.fixture
def page(open_browser):
    """Open the page in a browser, and sign in with a key."""

    async def open_page(key=None):
        browser = await open_browser()
        await browser.get("/account")
        if key is not None:
            await browser.post("/account/sign-in", csrf="", key=key)
        return browser

    return open_page


@both_engines
async def test_a_customer_sees_their_license(world, page, activate):
    """State, dates and computers of the license of the key, and no other license; the key is masked."""
    key, other = world.key(slots=2, expires_on=world.clock().date()), world.key()
    activate(key, "studio-pc", "192.0.2.1")
    activate(other, "other-pc", "192.0.2.2")
    customer = await page(f" {key.lower()} ")
    assert (customer.status, customer.path) == (200, "/account")
    for text in ("Active", "Valid through 15 Jun 2026.", "studio-pc", "1 of 2 in use.", "Example Soft"):
        assert text in customer.text
    assert "other-pc" not in customer.text
    assert KEY.search(customer.text) is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("typed", ["", "CP-", "nothing", "\x00", "0" * 32, "é" * 2000])
async def test_a_wrong_key_reveals_nothing(world, page, new_key, typed):
    """What is no key, and a key that nobody was sold, get the same page; an id signs nobody in."""
    license_id = world.services.vault.license_id(world.key()).hex()
    unknown = await page(new_key())
    other = await page(license_id if typed == "0" * 32 else typed)
    assert unknown.status == other.status == 401
    assert unknown.text == other.text
    assert "not known" in unknown.alert


async def test_keys_cannot_be_guessed(world, page, new_key):
    """Wrong keys count as misses and get 429; a customer at the same address signs in all the same."""
    customer = await page()
    for _ in range(6):
        await customer.post("/account/sign-in", csrf="", key=new_key())
    assert (customer.status, customer.headers["Retry-After"]) == (429, "61")
    await customer.post("/account/sign-in", csrf="", key=world.key())
    assert customer.status == 200


async def test_a_key_that_was_sold_elsewhere(world, page):
    """It signs in where the product accepts such keys, and only there."""
    world.services.products.change("app", accepts_imported_keys=True)
    key = "0123456789abcdef" * 2
    with world.services.transfer.start_import() as incoming:
        incoming.read(read_rows("csv", io.StringIO(f"license_key,product\n{key},app\n"), ASSUMED))
        incoming.commit()
    assert (await page(key)).status == 200
    world.services.products.change("app", accepts_imported_keys=False)
    assert (await page(key)).status == 401


@pytest.mark.parametrize(
    ("change", "shown"),
    [("revoke", "The license was revoked on 15 Jun 2026."), ("expire", "Its last day was 15 Jun 2026.")],
)
async def test_a_license_that_is_over_is_shown(world, page, change, shown):
    """Its customer sees why, and nothing to download; the vendor's reason is not shown."""
    key = world.key(expires_on=world.clock().date())
    world.publish("1.0")
    if change == "revoke":
        world.services.licenses.revoke(key, "chargeback 4711")
    else:
        world.clock.forward(days=2)
    customer = await page(key)
    assert shown in customer.text
    assert "chargeback" not in customer.text
    assert "/account/download" not in customer.text


async def test_the_whole_key_is_audited(world, page):
    """It is shown once, on the page that the form returns, and the audit log has a line."""
    key = world.key()
    license_id = world.services.licenses.get(key).id.hex()
    customer = await page(key)
    await customer.post("/account/key", license=license_id)
    assert key in customer.text
    assert key not in await customer.get("/account")
    entry = world.services.audit.list_page().items[0]
    assert (entry.action, entry.object_id) == ("license.reveal", license_id)
    assert entry.actor == ("system", "customer")


@both_engines
async def test_a_customer_frees_slots(world, page, activate):
    """As often as the product allows; then the page says when the next one can be freed."""
    world.services.products.change("app", customer_moves=1)
    key = world.key(slots=2)
    for name in ("one", "two"):
        activate(key, name, "192.0.2.1")
    customer = await page(key)
    place = {"license": world.services.licenses.get(key).id.hex(), "ip": "192.0.2.1"}
    await customer.post("/account/free", **place, domain="nowhere\x00")
    assert (customer.status, "does not use the license" in customer.alert) == (409, True)
    await customer.post("/account/free", **place, domain="one")
    assert "The computer is removed." in customer.notice
    assert world.held(key) == [("two", "192.0.2.1")]
    await customer.post("/account/free", **place, domain="two")
    assert (customer.status, "on 15 Jul 2026" in customer.alert) == (409, True)
    assert len(world.held(key)) == 1


async def test_a_customer_takes_a_seat_back(world, page):
    """The page shows who holds the floating seats of the license, and takes one back."""
    key = world.key(floating_seats=2)
    world.services.seats.hold(key, SeatRequest(b"s" * 16, "studio-pc"))
    customer = await page(key)
    assert "1 of 2 in use." in customer.text
    assert "studio-pc" in customer.text
    form = {"license": world.services.licenses.get(key).id.hex(), "seat": (b"s" * 16).hex()}
    thief = await page(world.key(floating_seats=2))
    await thief.post("/account/take-back", **form)
    assert thief.status == 404
    await customer.post("/account/take-back", **form)
    assert "The seat is taken back." in customer.notice
    await customer.post("/account/take-back", **form)
    assert (customer.status, "not in use any more" in customer.alert) == (409, True)
    assert world.services.audit.list_page().items[0].actor == ("system", "customer")


@both_engines
def test_a_page_of_many_licenses_takes_as_many_queries_as_one_of_few(world, activate):
    """What belongs to licenses is read at once: 200 licenses of an address took 1,400 queries."""
    world.services.products.add("other", "Other", EnvironmentPolicy.EITHER)
    for number in range(20):
        slug, floating = ("app", "other")[number % 2], (None, 3)[number % 3 == 0]
        terms = LicenseTerms(
            slots=(1, 5, None)[number % 3], floating_seats=floating, customer_email="a@example.org"
        )
        _, key = world.services.licenses.issue(slug, terms)
        for pc in range(number % 3):
            activate(key, f"pc{number}-{pc}", f"192.0.2.{number}")
        if floating:
            world.services.seats.hold(key, SeatRequest(bytes(16), "seat"))
        if number % 3 == 2:
            customer = world.services.acting_as(CUSTOMER)
            customer.moves.deactivate(world.services.licenses.get(key), f"pc{number}-0")
    licenses = [
        license_ for license_ in world.services.repositories.licenses.list_all() if license_.customer_email
    ]
    texts, now, counts = load_texts("en"), world.clock(), []
    products = {product.slug: OfferedProduct(product, ()) for product in world.services.products.list_all()}

    def describe(some):
        counts.append(0)
        return describe_all(world.services, some, products, texts, now, {})

    def count(*_: object) -> None:
        counts[-1] += 1

    event.listen(world.services.database.engine, "before_cursor_execute", count)
    alone = [describe([license_])[0] for license_ in licenses]
    assert describe(licenses) == alone
    assert {card.moves_left for card in alone} == {2, 3}
    assert counts[-1] <= 2 * min(counts), counts  # there are two products


async def test_after_the_last_move_the_page_shows_the_day_of_the_next(world, page, activate):
    """It said "You can remove 0 now.", and nobody got to the sentence with the day."""
    world.services.products.change("app", customer_moves=1)
    key = world.key(slots=3)
    for name in ("one", "two"):
        activate(key, name, "192.0.2.1")
    world.services.moves.deactivate(world.services.licenses.get(key), "one")
    text = (await page(key)).text
    assert "You can remove the next one on 15 Jul 2026" in text
    assert ("You can remove 0" in text, "/account/free" in text) == (False, False)


async def test_a_product_without_moves_shows_no_button(world, page, activate):
    """The page has no form for it, and a form that is sent all the same is refused."""
    world.services.products.change("app", customer_moves=0)
    key = world.key()
    activate(key, "one", "192.0.2.1")
    customer = await page(key)
    assert "/account/free" not in customer.text
    place = {"license": world.services.licenses.get(key).id.hex(), "domain": "one", "ip": "192.0.2.1"}
    await customer.post("/account/free", **place)
    assert (customer.status, "Support changes" in customer.alert) == (409, True)


async def test_the_current_version_is_downloaded(world, page):
    """As long as support lasts, by a link that works without the session; the file is the version's."""
    world.services.products.change("app", has_support_policy=True)
    world.publish("1.0", b"content")
    key = world.key(support_until=world.clock().date())
    customer = await page(key)
    address = f"/account/download/{world.services.licenses.get(key).id.hex()}"
    assert f'href="{address}"' in customer.text
    assert await customer.get(address) == "content"
    world.clock.forward(days=1)
    await customer.post("/account/sign-in", csrf="", key=key)
    assert "Updates ended on 15 Jun 2026." in customer.text
    await customer.get(address)
    assert customer.status == 404


@pytest.mark.parametrize(("term", "version"), [("support_until", "1.0"), ("expires_on", None)])
async def test_what_a_license_covers_is_downloaded_for_good(world, page, publish, term, version):
    """The newest version of the period, and above it, for an expired license too, a security release."""
    world.services.products.change("app", has_support_policy=True, after_support=AfterSupport.COVERED)
    world.publish("1.0", b"covered")
    key = world.key(**{term: world.clock().date()})
    world.clock.forward(days=2)
    world.publish("2.0", b"newest")
    customer = await page(key)
    address = f"/account/download/{world.services.licenses.get(key).id.hex()}"
    assert ("/account/download" in customer.text) == (version is not None)
    if version is not None:
        assert await customer.get(address) == "covered"
    publish("1.0.1", content=b"fixed", security=SecurityNotice())
    await customer.post("/account/sign-in", csrf="", key=key)
    assert "1.0.1" in customer.text
    assert await customer.get(address) == "fixed"


async def test_only_a_page_of_the_session_sends_forms(world, page, activate):
    """A form without the token, from another site, of another license or session changes nothing."""
    key, other = world.key(), world.key()
    activate(other, "one", "192.0.2.1")
    place = {"license": world.services.licenses.get(other).id.hex(), "domain": "one", "ip": "192.0.2.1"}
    mine, thief, anonymous = await page(other), await page(key), await page()
    await thief.post("/account/free", **place)
    assert thief.status == 404
    await thief.get("/account")
    for csrf, origin in [("", None), (thief.csrf, None), (mine.csrf, "https://evil.example")]:
        await mine.post("/account/free", csrf=csrf, origin=origin, **place)
        assert mine.status == 403
        await mine.get("/account")
    await anonymous.post("/account/free", csrf=mine.csrf, **place)
    assert "Your session has ended." in anonymous.notice
    await anonymous.post("/account/sign-in", csrf="", origin="https://evil.example", key=key)
    assert anonymous.status == 403
    assert len(world.held(other)) == 1


@both_engines
async def test_sessions_end(world, page):
    """By sign-out, after an hour, and the oldest when a license has very many."""
    key = world.key()
    first, second = await page(key), await page(key)
    await second.post("/account/sign-out")
    assert second.notice == "You are signed out."
    assert 'name="key"' in second.text
    assert "Sign out" in await first.get("/account")
    world.clock.forward(seconds=1)
    for _ in range(20):
        world.services.customer_sign_in.sign_in(key)
    assert "Sign out" not in await first.get("/account")
    third = await page(key)
    world.clock.forward(hours=1)
    assert "Sign out" not in await third.get("/account")


async def test_the_headers_and_cookies_of_a_page(make_world, open_site):
    """Nothing is kept or framed, no script but ours runs, and the cookie is bound to an https host."""
    world = make_world(account=True, base_url="https://l.example", admin_listen="127.0.0.1:0")
    site, key = await open_site(world), world.key()
    status, headers, _ = await site.call("GET", "/account")
    assert (status, headers["Cache-Control"]) == (200, "no-store")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    origin = {"Origin": "https://l.example", "Host": "l.example"}
    status, headers, _ = await site.call(
        "POST", "/account/sign-in", data={"key": key}, headers=origin, allow_redirects=False
    )
    assert status == 303
    cookie = headers["Set-Cookie"]
    assert cookie.startswith("__Host-licserver-account=")
    assert cookie.endswith("; Path=/; Secure; Max-Age=3600; HttpOnly; SameSite=Lax")
    assert (await site.call("GET", "/console"))[0] == 404


async def test_there_is_no_page_unless_it_is_enabled(make_world, open_site):
    """Without the setting, the address does not exist."""
    site = await open_site(make_world())
    assert (await site.call("GET", "/account"))[0] == 404


# --- language and look ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [
        ("", "", "en"),
        ("", "de-AT,en;q=0.8", "de"),
        ("", "en;q=0.5, fr;q=0.9", "fr"),
        ("", "pt, zh-Hans;q=0.1", "zh"),
        ("", "de;q=0, ja;q=x, es", "es"),
        ("ja", "de", "ja"),
        ("xx", "de", "de"),
    ],
)
def test_the_language_of_a_page(chosen, accepted, language):
    """What the customer chose, then what the browser asks for, then English."""
    assert choose_language(chosen, accepted) == language


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text(language):
    """The same names, and the same places in each text."""

    def places(name):
        file = files("licserver.web.account") / "texts" / f"{name}.json"
        texts = json.loads(file.read_text("utf-8"))
        texts.pop("date")
        parse = string.Formatter().parse
        return {key: {part[1] for part in parse(text) if part[1]} for key, text in texts.items()}

    assert places(language) == places("en")


async def test_a_chosen_language_stays(world, page):
    """The link stores it in a cookie, and every page is in it, errors as well."""
    customer = await page()
    await customer.get("/account?lang=de")
    assert (customer.path, "Ihre Lizenz" in customer.text) == ("/account", True)
    await customer.get("/account/nothing")
    assert (customer.status, customer.alert) == (404, load_texts("de")("error.404"))


def test_the_vendors_logo_and_color(tmp_path):
    """The style sheet has the color and a text color that can be read on it; a wrong logo is refused."""
    logo = tmp_path / "logo.svg"
    logo.write_text("<svg/>")
    for color, text in (("#1A5FB4", "#fff"), ("#ffe066", "#000")):
        look = Look(Settings(data_dir=tmp_path, account_color=color, account_logo=logo))
        assert f"--brand: {color.lower()}; --on-brand: {text};".encode() in look.style.content
        assert look.logo is not None
    for name, content in (("logo.gif", b""), ("missing.svg", None), ("large.png", b"0" * (1 << 20) + b"0")):
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(SettingsError, match="LICSERVER_ACCOUNT_LOGO"):
            Look(Settings(data_dir=tmp_path, account_logo=file))


async def test_without_mail_there_is_only_the_key(world, page):
    """A shop that sends no mail does not offer it."""
    assert "/account/code" not in (await page()).text
