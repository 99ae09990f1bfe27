import pytest
from stage.store import CONTENT

from licclient import Reason
from licclient.errors import LicenseRefusedError, ServiceUnavailableError


async def test_a_remembered_offer_gets_a_fresh_link(make_client, store, clock, key, fetch):
    """The link is never kept on disk, so a later run asks for one before it downloads."""
    await make_client().check_for_update(key)
    clock.move(hours=3)
    client = make_client()
    await fetch(client)
    assert (store.checks, store.requested_ranges) == (2, [None])
    await client.check_for_update(key)
    assert store.checks == 2


async def test_asking_for_a_link_counts_as_a_check(client, store, clock, folder, key):
    """It is never too early for a fresh link, and the next check is due twelve hours after it."""
    update = (await client.check_for_update(key)).update
    clock.move(hours=11)
    await client.download(update, folder, key=key)
    clock.move(hours=11)
    assert (await client.check_for_update(key)).update.version == "2.0"
    assert store.checks == 2


@pytest.mark.parametrize("code", ["link_expired", "invalid_link"])
async def test_a_refused_link_is_renewed_once(client, store, folder, key, code):
    """The server says that the link ran out: a fresh one is fetched, and the part goes on."""
    store.cuts = [100_000]
    update = (await client.check_for_update(key)).update
    plain = store.reply

    def refuse_the_second(request):
        if request.headers.get("range") and store.checks == 1:
            return store.answer(403, {"error": code, "message": "Late."})
        return plain(request)

    store.service.script = refuse_the_second
    assert (await client.download(update, folder, key=key)).path.read_bytes() == CONTENT
    assert store.requested_ranges == [None, "bytes=100000-", "bytes=100000-"]
    assert store.checks == 2


async def test_links_may_run_out_more_than_once(client, store, fetch):
    """On a slow line a download takes hours: every link that brought it further may be renewed."""
    store.cuts = [100_000, 100_000]
    plain = store.reply

    def refuse_old_links(request):
        spent = (request.headers.get("range"), store.checks) in (("bytes=100000-", 1), ("bytes=200000-", 2))
        return store.answer(403, b"<Error>AccessDenied</Error>") if spent else plain(request)

    store.service.script = refuse_old_links
    assert (await fetch(client)).path.read_bytes() == CONTENT
    assert store.checks == 3


async def test_a_server_that_refuses_its_own_links_is_unavailable(client, store, fetch):
    """It does not go round in circles."""
    store.refusals = [(403, "link_expired")] * 50
    with pytest.raises(ServiceUnavailableError):
        await fetch(client)
    assert len(store.requested_ranges) <= 4


async def test_a_key_revoked_within_the_hour_is_refused(client, store, fetch):
    """The download endpoint's own no is the license's end (D-31)."""
    store.refusals = [(403, "license_revoked")]
    with pytest.raises(LicenseRefusedError) as caught:
        await fetch(client)
    assert (caught.value.reason, caught.value.message) == (Reason.REVOKED, "It is license_revoked.")


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, {"error": "invalid_license", "message": "No."}, Reason.OTHER),
        (401, {"error": "license_expired", "message": "No."}, Reason.EXPIRED),
        (403, {"error": "product_mismatch", "message": "No."}, Reason.OTHER_PRODUCT),
        (200, "no link", Reason.SUPPORT_ENDED),
        (200, "withdrawn", Reason.NO_VERSION),
    ],
)
async def test_a_fresh_link_may_be_refused(client, store, service, clock, folder, key, status, body, reason):
    """When the link is asked for anew, every no of the update check is a refusal."""
    update = (await client.check_for_update(key)).update
    clock.move(hours=2)
    if body == "no link":
        body = service.listing(download_url=None)
    elif body == "withdrawn":
        body = service.listing("1.0")
    service.responds(status, body)
    with pytest.raises(LicenseRefusedError) as caught:
        await client.download(update, folder, key=key)
    assert caught.value.reason is reason


async def test_no_answer_when_a_link_is_needed(client, store, service, clock, folder, key):
    """Without a fresh link there is nothing to try."""
    update = (await client.check_for_update(key)).update
    clock.move(hours=2)
    service.goes_down()
    with pytest.raises(ServiceUnavailableError):
        await client.download(update, folder, key=key)
