"""Products and versions in the console: uploads, and who may still download."""

import html
from datetime import date

import pytest

from harness.console_books import EVIL, rows
from licserver.domain.records import EnvironmentPolicy


async def test_products(world, alice):
    """Added and renamed; an invalid slug is reported, and the form keeps what was typed."""
    await alice.get("/console/products")
    await alice.post("/console/products/add", name="Photo Lab", slug="Photo Lab", policy="domain")
    assert (alice.status, "is not a valid slug" in alice.alert, 'value="Photo Lab"' in alice.text) == (
        422,
        True,
        True,
    )
    await alice.post(
        "/console/products/add", name="Photo Lab", slug="photo-lab", policy="domain", support="on"
    )
    assert world.services.products.get("photo-lab").has_support_policy
    await alice.post("/console/products/photo-lab/rename", name="Photo Lab 2")
    assert "product=&#34;Photo Lab&#34;" in alice.text  # what it does to apps
    assert world.services.products.get("photo-lab").name == "Photo Lab"
    await alice.post("/console/products/photo-lab/rename", name="Photo Lab 2", sure="yes")
    assert world.services.products.get("photo-lab").name == "Photo Lab 2"
    for path in (
        "/console/products/nothing",
        "/console/licenses/" + "0" * 32,
        "/console/licenses/x",
        "/console/products/app/releases/9",
    ):
        await alice.get(path)
        assert alice.status == 404, path


async def test_a_product_with_the_wrong_rules_is_mended(world, site, alice):
    """What a machine is, and how long there are updates, is changed; sold keys follow at once."""
    key = world.key(slots=1)
    assert (await site.verify(key, source="127.0.0.1"))[0] == 200
    assert (await site.verify(key, source="127.0.0.2"))[0] == 403
    await alice.get("/console/products/app")
    assert '<option value="strict" selected>' in alice.text
    assert 'name="support">' in alice.text
    await alice.post("/console/products/app/rules", policy="domain", support="on", feed="on")
    assert "The product is changed" in alice.notice
    assert '<option value="domain" selected>' in alice.text
    assert ('name="support" checked>' in alice.text, 'name="feed" checked>' in alice.text) == (True, True)
    product = world.services.products.get("app")
    chosen = (product.policy, product.has_support_policy, product.public_feed)
    assert chosen == (EnvironmentPolicy.DOMAIN, True, True)
    assert (await site.verify(key, source="127.0.0.2"))[0] == 200
    await alice.post("/console/products/app/rules", policy="domain")
    assert not world.services.products.get("app").has_support_policy
    for policy in ("", "any"):
        await alice.post("/console/products/app/rules", policy=policy, support="on")
        assert (alice.status, "Choose what identifies a machine" in alice.alert) == (422, True)
    assert world.services.products.get("app") == product._replace(has_support_policy=False, public_feed=False)


@pytest.mark.slow
async def test_an_upload(world, site, alice):
    """A version is published from a browser under a file name without a path; no temporary file is left."""
    await alice.get("/console/products/app")
    form = {"csrf": alice.csrf, "version": "1.0", "changelog": "First.\r\nSecond."}
    content = bytes(range(256)) * 20_000
    await alice.upload("/console/products/app/releases", form, name="/etc/passwd", content=content)
    assert "The version is published" in alice.notice, alice.text
    release = world.services.releases.get("app", "1.0")
    assert (release.artifact.file_name, release.artifact.size, release.changelog) == (
        "passwd",
        len(content),
        "First.\nSecond.",
    )
    assert not list((world.settings.data_dir / "uploads").iterdir())
    assert not list(world.folder.parent.glob("**/passwd"))
    link = await site.link(world.key())
    assert (await site.call("GET", link))[2] == content


async def test_uploads_that_cannot_be(world, alice):
    """A version that is there, no file, no form, a part that breaks off: reported, and nothing is stored."""
    world.publish("1.0")
    path = "/console/products/app/releases"
    await alice.get("/console/products/app")
    form = {"csrf": alice.csrf, "version": "1.0", "changelog": EVIL}
    await alice.upload(path, form)
    assert (alice.status, "already" in alice.alert) == (422, True)
    assert html.escape(EVIL, quote=False) in alice.text.replace("&#34;", '"')  # typed text is not lost
    for name in ("..", "", "x" * 300):
        await alice.upload(path, {**form, "version": "2.0"}, name=name)
        assert (alice.status, "file name must be" in alice.alert) == (422, True), name
        assert 'value="2.0"' in alice.text  # what was typed is not lost
    await alice.upload(path, {**form, "version": "2.0", "changelog": "x" * 900_000})
    assert (alice.status, "longer than" in alice.alert) == (422, True)
    await alice.upload(path, {**form, "version": "2.0", "changelog": "x" * 1_048_570})
    assert (alice.status, "at most" in alice.alert) == (422, True)
    for body in (b"--b\r\nnonsense", b'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n', b""):
        headers = {"Content-Type": "multipart/form-data; boundary=b", "Origin": alice.url}
        await alice.send("POST", path, data=body, headers=headers, params={"csrf": form["csrf"]})
        assert alice.status == 422, alice.text
        await alice.get("/console/products/app")
    await alice.post(f"{path}?csrf={alice.csrf}", version="2.0")
    assert alice.status == 422
    assert [release.version for release in world.services.releases.list_all("app")] == ["1.0"]
    assert not list((world.settings.data_dir / "uploads").iterdir())


async def test_a_release_page(world, alice):
    """The changelog as customers see it, who gets the file, and what withdrawing does."""
    world.product("supported", has_support_policy=True)
    world.publish("1.0", slug="supported", changelog="<h3>New</h3><script>alert(1)</script>")
    good, late = (world.key("supported", customer_email=f"{name}@example.org", support_until=until)
                  for name, until in [("good", None), ("late", date(2026, 6, 14))])  # fmt: skip
    page = "/console/products/supported/releases/1.0"
    text = await alice.get(page)
    assert "<h3>New</h3>" in text
    assert "alert(1)" not in text
    assert "good@example.org" in text
    assert "late@example.org" not in text
    header, *holders = rows(await alice.get(f"{page}/downloads.csv"))
    assert [row[header.index("customer e-mail")] for row in holders] == ["good@example.org"]
    await alice.get(page)
    await alice.post(f"{page}/withdraw")
    assert "Update checks offer nothing then." in alice.text
    await alice.post(f"{page}/withdraw", sure="yes")
    assert "No license." in alice.text
    assert world.services.releases.get("supported", "1.0").withdrawn_at == world.clock()
    assert good != late
