import pickle
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pytest

from harness.threads import call_at_once
from licclient import LicenseClient, Reason, Updates
from licclient.errors import LicenseRefusedError, NotActivatedError, ServiceUnavailableError


async def test_a_newer_version_is_offered(client, service, key):
    """The answer of the specification becomes an Update that hides its credentials (spec 2)."""
    service.offers()
    update = (await client.check_for_update(key)).update
    assert (update.name, update.slug, update.version) == ("Notes", "notes", "2.0")
    assert update.changelog == "Faster."
    assert (update.changelog_html, update.changelog_text) == ("Faster.", "Faster.")
    assert update.last_updated == datetime(2026, 11, 20, 10, 11, 12, tzinfo=UTC)
    assert "SECRETSIG" not in repr(update)
    for written in (repr(update), repr(asdict(update)), pickle.dumps(update).decode("latin-1")):
        assert key not in written


async def test_the_request_is_the_specified_one(make_client, service, key):
    """The four parameters of the specification go out, and the platform if there is one (spec 4.2, D-187)."""
    service.offers()
    settings = {"domain": "app.example.org", "version": "1.0 beta&x"}
    for platform in ("linux-arm64", ""):
        client = make_client(**settings, updates=Updates(platform=platform))
        await client.check_for_update(f" {key.lower()}\n", force=True)
    own, request = service.requests
    assert own.query.pop("manual") == request.query.pop("manual") == "1"
    assert own.query == {**request.query, "platform": "linux-arm64"}
    assert (request.method, request.path) == ("GET", "/api/v1/update-check")
    assert request.query == {
        "license_key": key,
        "slug": "notes",
        "current_version": "1.0 beta&x",
        "domain": "app.example.org",
    }
    assert request.headers["accept"] == "application/json"


async def test_an_empty_key_is_no_update(client, service):
    """Checking without a key asks nobody."""
    assert not await client.check_for_update(" ")
    assert service.requests == []


@pytest.mark.parametrize("missing", ["slug", "version"])
async def test_checking_needs_slug_and_version(make_client, key, missing):
    """Forgetting one is the app's bug; the message names it, and the call to type."""
    with pytest.raises(ValueError, match=rf"created with {missing}: LicenseClient\(…, slug='.*', version='"):
        await make_client(**{missing: None}).check_for_update(key)


# --- cadence (D-46, D-48) ---------------------------------------------------------------------


async def test_the_offer_is_shown_again_without_a_call(make_client, service, clock, key):
    """For twelve hours, also after a restart, what was offered is remembered, without its link."""
    service.offers()
    first = (await make_client().check_for_update(key)).update
    clock.move(hours=11, minutes=59)
    again = (await make_client().check_for_update(key)).update
    assert again == first
    assert again.download_url is None
    assert service.count() == 1
    clock.move(hours=1, minutes=13)  # jitter lengthens by up to a tenth
    await make_client().check_for_update(key)
    assert service.count() == 2


async def test_a_newer_installation_does_not_hide_the_offer_from_an_older_one(make_client, service, key):
    """Two versions of an app share what is remembered: what is no news to one is an update for the other."""
    service.offers()
    older, newer = make_client(version="1.0"), make_client(version="2.0")
    offer = (await older.check_for_update(key)).update
    assert not await newer.check_for_update(key, force=True)
    assert (await older.check_for_update(key)).update == offer
    assert service.count() == 2


@pytest.mark.parametrize(("status", "hours"), [(401, 12), (422, 12), (404, 12), (500, 0.5), (200, 0.5)])
async def test_only_an_answer_counts_for_twelve_hours(client, service, clock, key, status, hours):
    """A refusal is one, and so is a 422; after an outage the next attempt follows within the hour (D-50)."""
    body = {"error": "invalid_license", "message": "No.", "errors": {}} if status != 200 else b"<html>"
    service.responds(status, body)
    for _ in range(3):
        assert not await client.check_for_update(key)
    assert service.count() == 1
    clock.move(hours=hours, minutes=-1)
    assert not await client.check_for_update(key)
    assert service.count() == 1
    clock.move(hours=1.2 if hours == 12 else 0.5, minutes=1)
    await client.check_for_update(key)
    assert service.count() == 2


async def test_a_failed_check_now_does_not_use_up_the_answer_before(client, service, clock, key):
    """Nor is the next one due earlier than without it."""
    service.offers("1.0")
    assert (await client.check_for_update(key)).error is None
    clock.move(hours=1)
    service.goes_down()
    assert (await client.check_for_update(key, force=True)).error is not None
    service.offers("1.0")
    before = service.count()
    clock.move(hours=10.9)
    await client.check_for_update(key)
    assert service.count() == before
    clock.move(hours=1.4)
    assert (await client.check_for_update(key)).error is None
    assert service.count() == before + 1


async def test_force_asks_now(client, service, key):
    """When the person asks, the cadence does not matter."""
    await client.check_for_update(key)
    service.offers()
    assert not await client.check_for_update(key)
    assert (await client.check_for_update(key, force=True)).update.version == "2.0"


async def test_a_check_is_due_after_the_first_success(client, service, key):
    """A key that was refused when the app started is checked again right after it is accepted (D-46)."""
    service.responds(401, {"error": "invalid_license", "message": "No."})
    await client.check_for_update(key)
    service.grants()
    await client.verify(key)
    service.offers()
    assert (await client.check_for_update(key)).update.version == "2.0"


async def test_threads_make_one_check(service, clock, key, tmp_path):
    """Sixteen clients that find a check due at once make one call."""
    service.offers()
    options = {"storage": tmp_path, "clock": clock, "slug": "notes", "version": "1.0"}

    def check():
        with LicenseClient(service.url, **options) as client:
            client.check_for_update(key)

    assert call_at_once([check] * 16) == [None] * 16
    assert service.count() == 1


async def test_verify_and_check_do_not_disturb_each_other(client, service, key):
    """A refused update check leaves the verified license alone, and the other way round."""
    service.grants()
    await client.verify(key)
    service.responds(401, {"error": "invalid_license", "message": "No."})
    await client.check_for_update(key)
    service.goes_down()
    assert (await client.verify(key)).product == "Notes"
    with pytest.raises((LicenseRefusedError, ServiceUnavailableError)):
        await client.verify(key[:-1] + "9")


async def test_a_version_is_skipped_for_this_app_alone(make_client, service, key):
    """One version to the letter, for any key, after a restart, until another is skipped (D-87)."""
    service.offers("2.0")
    client = make_client()
    first = (await client.check_for_update(key)).update
    assert not await client.is_skipped(first)
    await client.skip_update(first)
    assert await make_client().is_skipped(replace(first, changelog="Other."))
    assert (await client.check_for_update(key)).update == first
    assert not await client.is_skipped(replace(first, version="2.0.0"))
    assert not await client.is_skipped(replace(first, slug="photos"))
    assert not await make_client("https://elsewhere.example.com").is_skipped(first)
    await client.skip_update(replace(first, version="2.1"))
    assert not await client.is_skipped(first)


async def test_what_was_skipped_cannot_be_read(client, service, key, tmp_path):
    """A damaged file is no memory, and no mistake."""
    service.offers("2.0")
    update = (await client.check_for_update(key)).update
    await client.skip_update(update)
    [file] = (tmp_path / "state").glob("skipped-*.state")
    assert key not in file.read_text()
    file.write_bytes(b"{")
    assert not await client.is_skipped(update)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (lambda service: service.offers("2.0"), type(None)),
        (lambda service: service.offers("1.0"), type(None)),
        (lambda service: service.offers(download_url=None), type(None)),
        (
            lambda service: service.responds(403, {"error": "license_expired", "message": "No."}),
            LicenseRefusedError,
        ),
        (lambda service: service.goes_down(), ServiceUnavailableError),
    ],
)
async def test_the_result_is_the_update_or_why_there_is_none(client, service, key, script, expected):
    """It distinguishes "up to date" from "not known", for a button "Check now"; no worker can replace it."""
    script(service)
    check = await client.check_for_update(key, force=True)
    assert bool(check) is (check.update is not None) is ("2.0" in check.message)
    assert type(check.error) is expected
    assert check.message


@pytest.mark.parametrize(
    "script",
    [
        lambda service: service.offers("2.0"),
        lambda service: service.offers("1.0"),
        lambda service: service.offers("0.9"),
        lambda service: service.offers(download_url=None),
        lambda service: service.responds(403, {"error": "license_expired", "message": "No."}),
    ],
)
async def test_what_the_last_check_found_has_the_same_reason(make_client, service, key, script):
    """A check that is not due yet says why there is no update, as the check before it did."""
    script(service)
    first, again = [await make_client().check_for_update(key) for _ in range(2)]
    assert service.count() == 1
    assert first.message in again.message
    assert (again.is_ahead, bool(again)) == (first.is_ahead, bool(first))
    assert [type(check.error) for check in (first, again)] in ([type(None)] * 2, [LicenseRefusedError] * 2)
    assert getattr(again.error, "reason", None) == getattr(first.error, "reason", None)


async def test_looking_for_updates_without_a_key(client, service):
    """No key has been entered: that is the reason for None, and no request is made."""
    check = await client.check_for_update(force=True)
    assert not check
    assert isinstance(check.error, NotActivatedError)
    assert service.requests == []


# --- a slip of the app's developer ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "reason", "words"),
    [
        (404, "product_not_found", Reason.UNKNOWN_PRODUCT, "There is no product with this slug."),
        (403, "product_mismatch", Reason.OTHER_PRODUCT, "The license was issued for another product."),
    ],
)
async def test_a_mistyped_slug_is_shown_to_the_developer(
    make_client, service, key, caplog, status, code, reason, words
):
    """It was "no version at the moment", which a new product has as well."""
    service.responds(status, {"error": code, "message": words})
    client = make_client(slug="ntoes")
    check = await client.check_for_update(key)
    assert check.error.reason is reason
    assert check.message == f"{words} The slug of this app is 'ntoes'."
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage() == (
        f"The license service refused slug='ntoes': {words} Compare it with the slug of the product there."
    )
    again = await client.check_for_update(key)
    assert again.message == f"The last update check was refused: {check.message}"
    assert again.error.reason is reason


async def test_a_product_without_versions_is_no_slip(make_client, service, key, caplog):
    """Nothing is published yet: there is nothing to mend in the app."""
    service.responds(404, {"error": "no_versions", "message": "The product has no published version yet."})
    check = await make_client().check_for_update(key)
    assert check.message == "The product has no published version yet."
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
