"""The console's owners: users and their roles, API tokens, and the state of the server."""

import re

import pytest

from harness.console import NAME, PASSWORD
from licserver.domain.records import Role
from licserver.web.console.sessions import csrf_token

ANOTHER = "five words of another sentence"


@pytest.fixture
async def colleague(users, open_browser):
    """Sign a colleague of a role in, and return the browser."""

    async def sign_in(role):
        users.users.add("bob", ANOTHER, role)
        browser = await open_browser()
        await browser.sign_in("bob", ANOTHER)
        return browser

    return sign_in


async def test_a_read_only_user_looks_and_changes_nothing(world, colleague, sold):
    """Every page but the owner's is shown; no form is carried out, not even by a program."""
    _, page = sold
    bob = await colleague(Role.READ_ONLY)
    assert "API tokens" not in await bob.get("/console")
    for path in ("/console/licenses", page, "/console/products/app", "/console/audit"):
        await bob.get(path)
        assert bob.status == 200, path
        assert not re.search(r'action="/console/(licenses/(?!find)|products)', bob.text), path
    for path in ("/console/users", "/console/tokens", "/console/health", "/console/licenses/issue"):
        await bob.get(path)
        assert bob.status == 403, path
    await bob.get("/console/account")
    for path in (f"{page}/revoke", f"{page}/reveal", "/console/products/app/rename", "/console/users/add"):
        await bob.post(path, name="x", reason="x")
        assert bob.status == 403, path
        assert "Your role is “read-only”" in bob.text
    await bob.post("/console/users/add", csrf=csrf_token("of an earlier session"), name="x")
    assert (bob.status, "Add a user" in bob.text) == (403, False)
    csrf = {"csrf": re.search(r'name="csrf" value="([^"]+)"', await bob.get("/console/account"))[1]}
    await bob.upload("/console/products/app/releases", {**csrf, "version": "9.9"})
    assert bob.status == 403
    assert world.services.licenses.get(page.rpartition("/")[2]).revoked_at is None


async def test_support_helps_customers_and_leaves_products_alone(world, colleague, sold):
    """Licenses may be changed, products not; another role counts from the next click on."""
    _, page = sold
    bob = await colleague(Role.SUPPORT)
    await bob.get(page)
    await bob.post(f"{page}/free", domain="a.example", ip="192.0.2.1")
    assert bob.status == 200
    await bob.get("/console/account")
    await bob.post("/console/products/app/rename", name="Other")
    assert bob.status == 403
    world.services.users.set_role("bob", Role.OWNER)
    await bob.post("/console/products/app/rename", name="Other", sure="yes")
    assert bob.status == 200
    assert world.services.products.get("app").name == "Other"


async def test_an_owner_manages_users(users, alice, open_browser):
    """Bob is added, promoted, gets another password, and is removed; the last owner stays one."""
    await alice.get("/console/users")
    await alice.post("/console/users/add", name="Bob", password="short", role="support")
    assert (alice.status, "12" in alice.alert) == (422, True)
    await alice.post("/console/users/add", name="Bob", password=ANOTHER, role="support")
    assert "The user is added" in alice.notice
    bob = await open_browser()
    await bob.sign_in("bob", ANOTHER)
    assert bob.status == 200
    await alice.post("/console/users/role", user=NAME, role="support")
    assert "only owner" in alice.alert
    await alice.post("/console/users/remove", user=NAME)
    assert "only owner" in alice.alert
    await alice.post("/console/users/role", user="bob", role="owner")
    assert users.users.get("bob").role is Role.OWNER
    await alice.post("/console/users/password", user="bob", password=PASSWORD + " more")
    assert "Sign in" in await bob.get("/console")
    await alice.post("/console/users/remove", user="bob")
    assert users.users.find("bob") is None
    assert "user.role" in {line.action for line in users.audit.list_page().items}


@pytest.mark.slow
async def test_an_owner_manages_tokens(users, alice):
    """A token is shown once, works, and is refused after it was revoked."""
    await alice.get("/console/tokens")
    await alice.post("/console/tokens/create", name="shop", scope="write", expires="2099-12-31")
    token = re.search(r"<code class=\"mono\">([^<]+)</code>", alice.text)[1]
    assert users.tokens.authenticate(token).name == "shop"
    assert token not in await alice.get("/console/tokens")
    await alice.post("/console/tokens/create", name="shop", scope="write")
    assert "already" in alice.alert
    await alice.post("/console/tokens/revoke", token="shop")
    assert "revoked" in alice.notice
    assert users.tokens.authenticate(token) is None


async def test_health_is_what_check_finds(alice):
    """The owner sees what to do about it."""
    page = await alice.get("/console/health")
    assert alice.status == 200
    assert "LICSERVER_BASE_URL" in page
    assert "licserver check` also reads all of its file" in page
